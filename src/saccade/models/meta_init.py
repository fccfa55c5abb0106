"""Builds models on the meta device: shapes without memory, and without random initialization."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

RANDOM_INIT_FUNCTIONS = {
    "normal_",
    "uniform_",
    "trunc_normal_",
    "kaiming_uniform_",
    "kaiming_normal_",
    "xavier_uniform_",
    "xavier_normal_",
}


class NoInit(TorchFunctionMode):
    """Skips random initialization, which has no effect on `meta` but imports modules for two seconds."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if getattr(func, "__name__", "") in RANDOM_INIT_FUNCTIONS:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def meta_init() -> Iterator[None]:
    """Context manager in which modules are built on the meta device."""
    with torch.device("meta"), NoInit():
        yield
