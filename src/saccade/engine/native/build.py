"""A few C++ files made into a library for this very machine, kept in the user's cache, and never waited for twice."""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

# Contraction would let the compiler round differently from one machine to the next; nothing else is given up for speed.
COMPILER_FLAGS = ("-std=c++17", "-O3", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off")


class BuildError(Exception):
    """There is no library, and the message says why."""


def build_library(sources: Sequence[Path], *extra_flags: str) -> Path:
    """The shared library of the sources, from the cache if the same files, compiler, flags and processor made it before."""
    compiler = _find_compiler()
    folder = _cache_dir()
    made = folder / f"{sources[0].stem}-{_cache_key(sources, compiler, extra_flags)}.so"
    if made.exists():
        return made
    # Everyone builds in a place of their own; the rename is atomic, so two builders at once leave one whole file.
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        fresh = Path(scratch) / made.name
        command = [
            compiler,
            *COMPILER_FLAGS,
            *extra_flags,
            "-shared",
            "-fPIC",
            *(str(s) for s in sources if s.suffix != ".h"),
            "-o",
            str(fresh),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildError(f"{compiler} did not run: {error}") from error
        if done.returncode:
            raise BuildError(f"{compiler} cannot compile {sources[0].name}: {done.stderr.strip()[:500]}")
        os.replace(fresh, made)
    return made


def _find_compiler() -> str:
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        if name and (found := shutil.which(name)):
            return found
    raise BuildError("there is no C++ compiler (looked for $CXX, g++, clang++ and c++); install g++ to have it")


def _cache_dir() -> Path:
    """Our directory in the user's cache, readable by nobody else: what lies there is run."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "saccade" / "native"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError) as error:
        raise BuildError(f"there is no place for a cache ({error}); set XDG_CACHE_HOME to a directory") from error
    if not os.access(folder, os.W_OK) or folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o022:
        raise BuildError(
            f"the cache {folder} must be yours alone to write; change its owner or mode, or XDG_CACHE_HOME"
        )
    return folder


def _cache_key(sources: Sequence[Path], compiler: str, extra_flags: tuple[str, ...]) -> str:
    real = Path(compiler).resolve()
    about = (compiler, real, real.stat().st_size, real.stat().st_mtime_ns, COMPILER_FLAGS, extra_flags, _cpu_info())
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources) + repr(about).encode()).hexdigest()[:20]


def _cpu_info() -> str:
    """What `-march=native` depends on: the model and its instruction sets."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part")
    return platform.machine() + "".join(sorted({line for line in lines if line.startswith(wanted)}))
