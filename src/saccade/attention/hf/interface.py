"""Seeing the calls of the attention interface of `transformers`, without a change to any model or its settings.

While somebody watches, each attention function of the interface is followed by a look at its arguments. What it returns goes on
untouched, and calls by other modules pass at once. The interface is as before when the last watcher has left.
"""

import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from saccade.attention.hf.modules import find_attention_interface
from saccade.attention.hf.weights import InterfaceCall, check_call, is_fused
from saccade.errors import ModelError

Watcher = Callable[[Callable[[Tensor], Tensor], tuple[int, ...], Tensor | None], None]
ARGUMENTS = ("module", "query", "key", "value", "attention_mask")  # of every attention function, in this order


class InterfaceWatch:
    """One attention interface that is watched: what it had before, and who watches which module."""

    def __init__(self, interface: MutableMapping[str, Any]):
        self.interface = interface
        self.watchers: dict[nn.Module, list[Watcher]] = {}
        self.calls: dict[nn.Module, int] = {}
        self.before: dict[str, Any] = {}
        compiles = (
            "torch._dynamo" in sys.modules
        )  # then what is shown to watchers is kept out of the graph of a compiled model
        self.show: Any = torch.compiler.disable(self._show) if compiles else self._show

    def install(self) -> None:
        """Follow every function that is registered, and the one of its own that a module falls back to (eager)."""
        self.before = dict(self.interface)
        for name, function in self.before.items():
            self.interface[name] = self._follow(function, name)
        resolve = getattr(self.interface, "get_interface", None)
        if resolve is not None:

            def get_interface(attn_implementation: str, default: Callable[..., Any]) -> Callable[..., Any]:
                function = resolve(attn_implementation, default)
                return (
                    function
                    if hasattr(function, "_followed_by_saccade")
                    else self._follow(function, attn_implementation)
                )

            self.interface.get_interface = get_interface  # type: ignore[attr-defined]

    def remove(self) -> None:
        """Everything as it was: registered functions become visible again when those of this instance are deleted."""
        self.interface.__dict__.pop("get_interface", None)
        for name, function in self.before.items():
            if not hasattr(self.interface.get(name), "_followed_by_saccade"):
                continue  # somebody has registered another in the meantime
            del self.interface[name]
            if self.interface.get(name) is not function:
                self.interface[name] = function

    def _follow(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @wraps(function)
        def follow(*args: Any, **kwargs: Any) -> Any:
            output = function(*args, **kwargs)
            given = dict(zip(ARGUMENTS, args, strict=False)) | kwargs
            watchers = self.watchers.get(given["module"])
            if watchers:
                self.show(function, name, given, output, list(watchers))
            return output

        follow._followed_by_saccade = True  # type: ignore[attr-defined]
        return follow

    def _show(
        self, function: Callable[..., Any], name: str, given: dict[str, Any], output: Any, watchers: list[Watcher]
    ) -> None:
        module, query, key, value, mask = (given.pop(argument, None) for argument in ARGUMENTS)
        self.calls[module] = self.calls.get(module, 0) + 1
        with torch.no_grad():
            if (
                not is_fused(function) and module.training and given.get("dropout")
            ):  # its weights are those after dropout
                output = function(module, query, key, value, mask, **given | {"dropout": 0.0})
            weights = None if is_fused(function) else output[1]
            call = InterfaceCall(function, module, query, key, value, mask, given, weights)
            check_call(call, name)
            for watcher in watchers:
                watcher(call.compute_weights, call.shape, value)


_watches: dict[int, InterfaceWatch] = {}
_lock = threading.RLock()


@contextmanager
def watch_calls(module: nn.Module, watcher: Watcher) -> Iterator[None]:
    """Hand every call that a module makes to the attention interface to a watcher."""
    interface = find_attention_interface(type(module))
    assert interface is not None, "only modules that call the interface are listed"
    with _lock:
        watch = _watches.get(id(interface))
        if watch is None:
            watch = _watches[id(interface)] = InterfaceWatch(interface)
            watch.install()
        watch.watchers.setdefault(module, []).append(watcher)
    try:
        with _require_calls(module, watch.calls):
            yield
    finally:
        with _lock:
            watch.watchers[module].remove(watcher)
            if not watch.watchers[module]:
                del watch.watchers[module]
                watch.calls.pop(module, None)
            if not watch.watchers:
                watch.remove()
                del _watches[id(interface)]


@contextmanager
def _require_calls(module: nn.Module, calls: dict[nn.Module, int]) -> Iterator[None]:
    """A module that ends its pass without having called the interface is an error: its weights would be missing."""
    counts: list[int] = []

    def before(module: nn.Module, given: Any) -> None:
        counts.append(calls.get(module, 0))

    def after(module: nn.Module, given: Any, output: Any) -> None:
        if counts and counts.pop() == calls.get(module, 0):
            raise ModelError(
                f"{type(module).__name__} computed its attention without the attention interface of transformers, by a setting "
                "of its own, so its weights cannot be watched. Switch to the fused kernel: model.set_attn_implementation('sdpa')"
            )

    hooks = [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
