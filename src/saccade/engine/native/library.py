"""Loading of the compiled operators, which are built on first use and run on PyTorch's thread pool."""

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

import torch

from saccade.engine.native.build import BuildError, build_library

SOURCE_NAMES = (
    "native.cpp",
    "topk.cpp",
    "attend.cpp",
    "step_program.cpp",
    "int8_matmul.h",
    "vector_math.h",
    "thread_pool.h",
    "float16.h",
    "kv_buffer.h",
)
SOURCES = tuple(Path(__file__).with_name(name) for name in SOURCE_NAMES)
POINTER, LONG, FLOAT = ctypes.c_void_p, ctypes.c_long, ctypes.c_float
SIGNATURES = {
    "saccade_set_thread_pool": ([POINTER, POINTER], None),
    "saccade_pack_int8": ([POINTER, LONG, LONG, POINTER, POINTER, POINTER], None),
    "saccade_int8_linear": (
        [POINTER, POINTER, POINTER, POINTER, LONG, LONG, POINTER, POINTER, POINTER, LONG, LONG],
        None,
    ),
    "saccade_topk": (
        [POINTER, POINTER, POINTER, POINTER, LONG, LONG, POINTER, LONG, LONG, POINTER, POINTER, POINTER],
        None,
    ),
    "saccade_attend": ([POINTER, POINTER, LONG, POINTER, POINTER, LONG, POINTER, LONG, LONG, LONG, LONG, FLOAT], LONG),
    "saccade_gather": ([POINTER, POINTER, POINTER, LONG, LONG, LONG, LONG, LONG, LONG, LONG], None),
    "saccade_norm": ([POINTER, POINTER, POINTER, FLOAT, POINTER, LONG, LONG, LONG], None),
    "saccade_run_program": ([POINTER, LONG, POINTER, POINTER, POINTER, POINTER, POINTER, LONG], LONG),
}


def is_available() -> bool:
    """Whether the compiled operators are in use; the first call compiles them, in a few seconds, once per machine."""
    return library() is not None


def unavailable_reason() -> str:
    """Why the compiled operators are not in use; empty when they are."""
    return _load_library()[1]


def library() -> Any:
    """The compiled functions, or None."""
    return _load_library()[0]


@cache
def _load_library() -> tuple[Any, str]:
    if os.environ.get("SACCADE_NATIVE") == "0":
        return None, "SACCADE_NATIVE=0 switches the compiled operators off"
    reason = ""
    for flags in (("-march=native",), ()):  # some compilers do not support it
        try:
            return open_library(build_library(SOURCES, *flags)), ""
        except (BuildError, OSError) as error:
            reason = reason or str(error)
    return None, reason


def open_library(path: Path) -> Any:
    """Open a compiled library, declare its functions, and let it use PyTorch's thread pool."""
    opened = ctypes.CDLL(str(path))
    for name, (arguments, result) in SIGNATURES.items():
        getattr(opened, name).argtypes = arguments
        getattr(opened, name).restype = result
    # symbols looked up through torch belong to the OpenMP runtime that torch uses, whatever others are loaded
    torch_library = ctypes.CDLL(torch._C.__file__)
    if hasattr(torch_library, "GOMP_parallel") and hasattr(torch_library, "omp_get_max_threads"):
        run, size = torch_library.GOMP_parallel, torch_library.omp_get_max_threads
        opened.saccade_set_thread_pool(ctypes.cast(run, POINTER), ctypes.cast(size, POINTER))
    return opened
