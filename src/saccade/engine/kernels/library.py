"""Loading of the encoder kernels: one library with code for every instruction set, of which the best is chosen at run time.

`SACCADE_KERNELS=avx2` forces an instruction set, and `SACCADE_NATIVE=0` switches all compiled code off.
"""

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from saccade.engine.native.build import BuildError, CompileUnit, build_units
from saccade.errors import UsageError

AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mfma")
INSTRUCTION_SETS = {  # from the fastest; the names are those of the tables in kernels.h
    "avx512_bf16": (*AVX512, "-mavx512bf16"),
    "avx512": AVX512,
    "avx_vnni": ("-mavx2", "-mfma", "-mavxvnni"),
    "avx2": ("-mavx2", "-mfma"),
    "plain": (),
}
FOLDER = Path(__file__).parent
SOURCE_NAMES = ("interface.cpp", "encoder.cpp", "linear.cpp", "threads.cpp")  # compiled once, for any processor
SOURCES = tuple(
    sorted((*FOLDER.glob("*.cpp"), *FOLDER.glob("*.h")), key=lambda path: (path.name != "kernels.cpp", path.name))
)
# results may differ in the last bits between instruction sets, which compute sums in another order anyway
# only the C interface is visible, so that several loaded copies of the library do not share anything
COMPILER_FLAGS = (
    *("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fvisibility=hidden", "-w"),
)
POINTER, LONG = ctypes.c_void_p, ctypes.c_long
SIGNATURES = {
    "saccade_find_kernels": ([ctypes.c_char_p], POINTER),
    "saccade_kernels_name": ([POINTER], ctypes.c_char_p),
    "saccade_linear": ([POINTER, POINTER, POINTER, LONG, LONG, POINTER, POINTER, LONG], LONG),
    "saccade_quantize": ([POINTER, LONG, POINTER, LONG, LONG, POINTER, LONG, POINTER, POINTER], None),
    "saccade_set_join_time": ([LONG], None),
    "saccade_shared_texts": ([], LONG),
    "saccade_encode": ([POINTER, POINTER, POINTER, LONG], LONG),
}
NATIVE_BFLOAT16 = ("avx512_bf16",)  # instruction sets that multiply bfloat16 numbers themselves

_forced: list[str] = []  # by `use_instruction_set`, the last one first


def is_available() -> bool:
    """Whether the kernels are in use; the first call compiles them, once per machine."""
    return library() is not None


def unavailable_reason() -> str:
    """Why the kernels are not in use; empty when they are."""
    return _load_library()[1]


def library() -> Any:
    """The compiled functions, or None."""
    return _load_library()[0]


def instruction_set() -> str:
    """The instruction set of the kernels in use."""
    return library().saccade_kernels_name(kernels()).decode()


def has_native_bfloat16() -> bool:
    """Whether the kernels in use multiply bfloat16 by an instruction of the processor, twice as fast as float32."""
    return is_available() and instruction_set() in NATIVE_BFLOAT16


def supported_instruction_sets() -> list[str]:
    """The instruction sets that this processor has, from the fastest."""
    return [name for name in INSTRUCTION_SETS if library().saccade_find_kernels(name.encode())]


def kernels() -> int:
    """The address of the kernels to call: the forced instruction set, or the best one that this processor has."""
    return _find_kernels(_forced[-1] if _forced else os.environ.get("SACCADE_KERNELS", ""))


@contextmanager
def use_instruction_set(name: str) -> Iterator[None]:
    """Force an instruction set, for all threads, in a `with` block."""
    _find_kernels(name)
    _forced.append(name)
    try:
        yield
    finally:
        _forced.remove(name)


@cache
def _find_kernels(name: str) -> int:
    if name and name not in INSTRUCTION_SETS:
        raise UsageError(f"SACCADE_KERNELS is {name!r}; the instruction sets are {', '.join(INSTRUCTION_SETS)}.")
    found = library().saccade_find_kernels(name.encode())
    if not found:
        raise UsageError(
            f"This processor does not have the instruction set {name!r}; set SACCADE_KERNELS to one of "
            f"{', '.join(supported_instruction_sets())}, or leave it unset."
        )
    return found


@cache
def _load_library() -> tuple[Any, str]:
    if os.environ.get("SACCADE_NATIVE") == "0":
        return None, "SACCADE_NATIVE=0 switches the compiled operators off"
    reason = ""
    for units in (compile_units(), compile_units(plain_only=True)):  # a compiler may not know all instruction sets
        try:
            return open_library(build_units(units, SOURCES, *COMPILER_FLAGS, *units[0].flags)), ""
        except (BuildError, OSError) as error:
            reason = reason or str(error)
    return None, reason


def compile_units(*, plain_only: bool = platform.machine() not in ("x86_64", "AMD64")) -> list[CompileUnit]:
    """The files to compile: kernels.cpp once for each instruction set, all others once."""
    sets = {"plain": ()} if plain_only else INSTRUCTION_SETS
    common = ("-DSACCADE_PLAIN_ONLY",) if plain_only else ()
    units = [CompileUnit(FOLDER / name, common) for name in SOURCE_NAMES]
    return units + [CompileUnit(FOLDER / "kernels.cpp", (f"-DKERNELS={name}", *flags)) for name, flags in sets.items()]


def open_library(path: Path) -> Any:
    """Open a compiled library and declare its functions."""
    opened = ctypes.CDLL(str(path))
    for name, (arguments, result) in SIGNATURES.items():
        getattr(opened, name).argtypes = arguments
        getattr(opened, name).restype = result
    return opened
