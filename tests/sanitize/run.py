"""`make sanitize`: the compiled operators under the sanitizers of g++, of addresses and of undefined behaviour.

`python -m sanitize.run [CASES [SEED]]` builds two libraries, with the instructions of this machine and without, and starts a
process for each, which gives them random operands and runs their tests: the runtime of the address sanitizer has to be there
before anything else. A planted error comes first, so that nobody takes a sanitizer that sleeps for one that is content.
"""

import os
import subprocess
import sys
from pathlib import Path

import torch

from saccade.engine.kernels import library as kernel_loading
from saccade.engine.native import build, ops
from saccade.engine.native import library as loading
from sanitize import fuzz

CHECKS = "-fsanitize=address,undefined,float-cast-overflow"
FLAGS = ("-O1", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all", CHECKS)
BUILDS = {"with the instructions of this machine": "-march=native", "without them": "-DSACCADE_PLAIN"}
CASES = 5000
KERNEL_TESTS = ("kernels/test_packed_matrix.py", "kernels/test_encoder_program.py")
TESTS = (
    *KERNEL_TESTS,
    "test_native_ops.py",
    "test_step_program.py",
    "test_check_args.py",
    "test_kv_cache.py",
    "test_scheduler.py",
)
PLANTED = "planted"


def main(cases: int, seed: int) -> int:
    """Build, start and say how it went."""
    for name, flag in BUILDS.items():
        library = build.build_library(loading.SOURCES, flag, *FLAGS)
        kernels = build.build_units(
            kernel_loading.compile_units(), kernel_loading.SOURCES, *kernel_loading.COMPILER_FLAGS, *FLAGS
        )
        planted = start(library, kernels, PLANTED)
        if planted.returncode == 0 or "heap-buffer-overflow" not in planted.stderr:
            print(f"The sanitizer does not see a planted error ({name}): {planted.stderr[-2000:]}")
            return 1
        done = start(library, kernels, str(cases), str(seed))
        if done.returncode:
            print(f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}\nThe sanitized operators, {name}, failed: see above.")
            return 1
        print(f"{cases} random cases and {len(TESTS)} files of tests, {name}: no error.")
    return 0


def start(library: Path, kernels: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process that uses these libraries."""
    tests = str(Path(__file__).parents[1])
    settings = {
        # libstdc++ too: the sanitizer looks for what throws exceptions when it is loaded, before torch brings it
        "LD_PRELOAD": " ".join(runtime(name) for name in ("libasan.so", "libstdc++.so")),
        "ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",  # or small objects of Python's would lie side by side
        "PYTHONPATH": os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    command = [sys.executable, "-m", "sanitize.run", "--library", str(library), str(kernels), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | settings)


def runtime(name: str) -> str:
    """Where the compiler keeps a library."""
    command = [build._find_compiler(), f"-print-file-name={name}"]
    path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(path).is_absolute():
        raise SystemExit(f"{command[0]} has no {name}; the sanitizers need g++ with its libsanitizer (set CXX=g++).")
    return path


def use(library: Path, kernels: Path) -> None:
    """Let everybody in this process open these libraries, wherever they would have built one."""
    kernel_loading.build_units = lambda *units: kernels
    kernel_loading._load_library.cache_clear()
    plain = loading.build_library
    loading.build_library = lambda sources, *flags: (plain(sources, *flags), library)[1]
    loading._load_library.cache_clear()
    assert ops.is_available(), ops.unavailable_reason()


def child(library: Path, kernels: Path, first: str, seed: str = "0") -> int:
    use(library, kernels)
    if first == PLANTED:
        x, out = torch.zeros(1, 64), torch.empty(1, 64)
        short = torch.zeros(1)
        loading.library().saccade_norm(x.data_ptr(), x.data_ptr(), short.data_ptr(), 1e-5, out.data_ptr(), 1, 64, 0)
        return 0
    torch.set_num_threads(2)
    fuzz.main(int(first), int(seed))
    import pytest

    folder = Path(__file__).parents[1] / "engine"
    return pytest.main(["-q", "-x", "-p", "no:cacheprovider", *(str(folder / name) for name in TESTS)])


if __name__ == "__main__":
    given = sys.argv[1:]
    if given[:1] == ["--library"]:
        sys.exit(child(Path(given[1]), Path(given[2]), *given[3:]))
    cases, seed = [*map(int, given), *(CASES, 0)[len(given) :]]
    sys.exit(main(cases, seed))
