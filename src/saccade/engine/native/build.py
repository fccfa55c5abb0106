"""Compilation of the C++ operators into a shared library for this machine, cached in the user's cache directory."""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from saccade.system import cpu_count

# -ffp-contract=off: fused multiply-adds would make results differ between machines. The other flags do not change results.
COMPILER_FLAGS = ("-std=c++17", "-O3", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off")


class BuildError(Exception):
    """The library could not be built; the message gives the reason."""


@dataclass(frozen=True)
class CompileUnit:
    """A source file and the flags that it is compiled with; one file may be compiled several times with different flags."""

    source: Path
    flags: tuple[str, ...] = ()


def build_library(sources: Sequence[Path], *extra_flags: str) -> Path:
    """Build the shared library, or take it from the cache if sources, compiler, flags and processor are unchanged."""
    units = [CompileUnit(source) for source in sources if source.suffix != ".h"]
    return build_units(units, sources, *COMPILER_FLAGS, *extra_flags)


def build_units(units: Sequence[CompileUnit], sources: Sequence[Path], *flags: str) -> Path:
    """Compile each unit with its own flags and with `flags`, all at the same time, and link them into a shared library.

    `sources` are all files that the result depends on, headers included; the library is named after the first.
    """
    compiler = _find_compiler()
    folder = _cache_dir()
    library_path = folder / f"{sources[0].stem}-{_cache_key(sources, compiler, (tuple(units), flags))}.so"
    if library_path.exists():
        return library_path
    # every process builds in a temporary directory of its own and renames atomically, so concurrent builds are safe
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        inputs = [unit.source for unit in units]
        if any(unit.flags for unit in units):
            inputs = _compile_objects([compiler, *flags], units, Path(scratch))
        new_path = Path(scratch) / library_path.name
        command = [compiler, *flags, "-shared", "-fPIC", "-pthread", *map(str, inputs), "-o", str(new_path)]
        _run_compiler(command, sources[0].name)
        os.replace(new_path, library_path)
    return library_path


def _compile_objects(command: Sequence[str], units: Sequence[CompileUnit], folder: Path) -> list[Path]:
    """Compile each unit with its own flags into an object file."""
    objects = [folder / f"{number}.o" for number in range(len(units))]
    commands = [
        [*command, *unit.flags, "-fPIC", "-c", str(unit.source), "-o", str(target)]
        for unit, target in zip(units, objects, strict=True)
    ]
    with ThreadPoolExecutor(max_workers=cpu_count()) as pool:
        list(pool.map(_run_compiler, commands, [unit.source.name for unit in units]))
    return objects


def _run_compiler(command: Sequence[str], name: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{command[0]} could not be run: {error}") from error
    if done.returncode:
        raise BuildError(f"{command[0]} cannot compile {name}: {done.stderr.strip()[:500]}")


def _find_compiler() -> str:
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        if name and (found := shutil.which(name)):
            return found
    raise BuildError("no C++ compiler was found (tried $CXX, g++, clang++ and c++); install g++")


def _cache_dir() -> Path:
    """The cache directory of the compiled operators; only its owner may write to it, since its files are executed."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "saccade" / "native"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError) as error:
        raise BuildError(
            f"no cache directory can be created ({error}); set XDG_CACHE_HOME to a writable directory"
        ) from error
    if not os.access(folder, os.W_OK) or folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o022:
        raise BuildError(
            f"the cache {folder} must be writable by you alone; change its owner or mode, or set XDG_CACHE_HOME"
        )
    return folder


def _cache_key(sources: Sequence[Path], compiler: str, flags: tuple[object, ...]) -> str:
    path = Path(compiler).resolve()
    facts = (compiler, path, path.stat().st_size, path.stat().st_mtime_ns, flags, _cpu_info())
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources) + repr(facts).encode()).hexdigest()[:20]


def _cpu_info() -> str:
    """The CPU model and its instruction sets, on which `-march=native` depends."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part")
    return platform.machine() + "".join(sorted({line for line in lines if line.startswith(wanted)}))
