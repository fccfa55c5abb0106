"""The compiled operators: built on first use, opened, and put on torch's own threads; or why there are none."""

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

import torch

from saccade.engine.building import CannotBuild, build

FILES = ("native.cpp", "best.cpp", "attend.cpp", "chain.cpp", "product.h", "maths.h", "pool.h", "half.h", "room.h")
SOURCES = tuple(Path(__file__).with_name(name) for name in FILES)
P, N, R = ctypes.c_void_p, ctypes.c_long, ctypes.c_float
SIGNATURES = {
    "saccade_pool": ([P, P], None),
    "saccade_pack": ([P, N, N, P, P, P], None),
    "saccade_linear": ([P, P, P, P, N, N, P, P, P, N, N], None),
    "saccade_best": ([P, P, P, P, N, N, P, N, N, P, P, P], None),
    "saccade_attend": ([P, P, N, P, P, N, P, N, N, N, N, R], N),
    "saccade_gather": ([P, P, P, N, N, N, N, N, N, N], None),
    "saccade_norm": ([P, P, P, R, P, N, N, N], None),
    "saccade_chain": ([P, N, P, P, P, P, P, N], N),
}


def ready() -> bool:
    """Whether the compiled operators are in use; the first call compiles them, in a few seconds, once per machine."""
    return library() is not None


def why() -> str:
    """Why the compiled operators are not in use; empty when they are."""
    return _library()[1]


def library() -> Any:
    """The compiled functions, or None."""
    return _library()[0]


@cache
def _library() -> tuple[Any, str]:
    if os.environ.get("SACCADE_NATIVE") == "0":
        return None, "SACCADE_NATIVE=0 switches the compiled operators off"
    reason = ""
    for flags in (("-march=native",), ()):  # some compilers know no native
        try:
            return open_library(build(SOURCES, *flags)), ""
        except (CannotBuild, OSError) as error:
            reason = reason or str(error)
    return None, reason


def open_library(path: Path) -> Any:
    """The compiled functions with their signatures, on torch's own pool of threads."""
    opened = ctypes.CDLL(str(path))
    for name, (arguments, result) in SIGNATURES.items():
        getattr(opened, name).argtypes = arguments
        getattr(opened, name).restype = result
    # looked up through torch, the names lead to the very OpenMP that torch uses, whatever else is loaded
    torch_itself = ctypes.CDLL(torch._C.__file__)
    if hasattr(torch_itself, "GOMP_parallel") and hasattr(torch_itself, "omp_get_max_threads"):
        run, size = torch_itself.GOMP_parallel, torch_itself.omp_get_max_threads
        opened.saccade_pool(ctypes.cast(run, P), ctypes.cast(size, P))
    return opened
