"""See where any model looked: exact weights beside the fast path, whose answer stays as it is, bit for bit.

    with watch(model, where="*.3.*", heads=[0, 5]) as looks:
        model(batch)
    looks[0].weights        # (B, 2, Q, K)

Anything with a `watcher` can be watched: attention, the gates of an LSTM, squeeze-and-excitation; and the attention of any
model of the `transformers` package that goes through its attention interface (`saccade.attention.hf`). Weights are computed in
chunks of query rows, so a long text needs little memory: choose rows, or keep only the largest weights of
each row (`TopK`), a downsampled picture (`Downsample`), or nothing at all (`RowCallback`).
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatch
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.attention.hf.interface import watch_calls
from saccade.attention.hf.modules import (
    find_modules_without_interface,
    find_transformers_model,
    join_names,
    list_attention_modules,
    make_unsupported_error,
)
from saccade.notebook import html_heatmap, html_text
from saccade.system import trim_heap

WeightChunks = Iterable[tuple[Tensor, Tensor]]  # (row numbers, weights of those rows)
ReducedWeights = tuple[Tensor | None, Tensor | None]  # (weights, columns)
ATTENTION_AXES = ("batch", "head", "query", "key")
MAX_CHUNK_WEIGHTS = 2**20  # numbers computed at a time: 4 MB in float32, and a few times that in between
MIN_CHUNK_ROWS = 16  # computed at a time however long they are: all keys are read again for each lot
MIN_TRIM_BYTES = 2**26  # bytes of a piece before and after which memory that is free is given back
MAX_WEIGHTS_PER_MODULE = 2**29  # numbers kept of one module without being asked to choose: 2 GB in float32


@dataclass
class Look:
    """Where one module looked in one call."""

    name: str
    weights: Tensor | None
    axes: tuple[str, ...]
    rows: Tensor | None = None  # the numbers of the query rows, where only some were asked for
    columns: Tensor | None = None  # the key behind each weight, where only the top ones are kept
    value_norms: Tensor | None = (
        None  # (B, H, K): the length of the value vector of each key; gates and channels have none
    )
    shape: tuple[int, ...] = ()  # of all weights of the call, whatever was kept of them

    def __repr__(self) -> str:
        if self.weights is None:
            return f"Look({self.name}, no weights)"
        sizes = ", ".join(f"{axis} {size}" for axis, size in zip(self.axes, self.weights.shape, strict=False))
        return f"Look({self.name}: {sizes})"

    def _repr_html_(self) -> str:
        if self.weights is None or self.columns is not None or self.axes != ATTENTION_AXES:
            return html_text(repr(self))
        first = self.weights[0].detach().float().cpu()  # (H, Q, K) of the first text
        heads = f"the mean of {len(first)} heads" if len(first) > 1 else "one head"
        return html_heatmap(first.mean(0).tolist(), caption=f"{self!r}: {heads} for the first text")


class _ChunkBuffer:
    """What is kept of all chunks, in one piece that is made at the first: small pieces between large ones that come and go
    would break up the heap, and memory would grow without end."""

    def __init__(self, axis: int, count: int):
        self.axis, self.count, self.offset = axis, count, 0
        self.tensor = torch.empty(0)

    def add(self, weights: Tensor) -> None:
        if not self.offset:
            shape = list(weights.shape)
            shape[self.axis] = self.count
            self.tensor = weights.new_empty(shape)
            self._trim_if_large()
        self.tensor.narrow(self.axis, self.offset, weights.size(self.axis)).copy_(weights)
        self.offset += weights.size(self.axis)
        if self.offset == self.count:
            self._trim_if_large()

    def _trim_if_large(self) -> None:
        """Beside a large piece, what the pass and the chunks before it have freed would count for much."""
        if self.tensor.nbytes >= MIN_TRIM_BYTES:
            trim_heap()


@dataclass(frozen=True)
class KeepAll:
    """Keep all weights as they are."""

    def __call__(self, chunks: WeightChunks, axis: int, count: int) -> ReducedWeights:
        kept = _ChunkBuffer(axis, count)
        for _, weights in chunks:
            if weights.size(axis) == count:
                return weights, None
            kept.add(weights)
        return kept.tensor, None


@dataclass(frozen=True)
class TopK:
    """Keep the `count` largest weights of each row, and which keys they fall on."""

    count: int

    def __call__(self, chunks: WeightChunks, axis: int, count: int) -> ReducedWeights:
        values, columns = _ChunkBuffer(axis, count), _ChunkBuffer(axis, count)
        for _, weights in chunks:
            best = weights.topk(min(self.count, weights.size(-1)), dim=-1)
            values.add(best.values)
            columns.add(best.indices)
        return values.tensor, columns.tensor


@dataclass(frozen=True)
class Downsample:
    """Keep a picture of at most `size` x `size`: each point is the mean over its rows of the sum over its keys."""

    size: int = 256

    def __call__(self, chunks: WeightChunks, axis: int, count: int) -> ReducedWeights:
        parts = _ChunkBuffer(-2, count)
        for _, weights in chunks:
            weights = weights.movedim(axis, -2)  # (..., rows, keys)
            group = -(-weights.size(-1) // self.size)
            weights = F.pad(weights, (0, -weights.size(-1) % group))
            parts.add(weights.unflatten(-1, (-1, group)).sum(-1))
        whole = parts.tensor
        group = -(-whole.size(-2) // self.size)
        rows = [part.mean(-2) for part in whole.split(group, dim=-2)]
        return torch.stack(rows, dim=-2).movedim(-2, axis), None


@dataclass(frozen=True)
class RowCallback:
    """Keep nothing; hand (row numbers, weights) to a function, chunk by chunk."""

    callback: Callable[[Tensor, Tensor], None]

    def __call__(self, chunks: WeightChunks, axis: int, count: int) -> ReducedWeights:
        for rows, weights in chunks:
            self.callback(rows, weights)
        return None, None


Reducer = Callable[[WeightChunks, int, int], ReducedWeights]  # KeepAll, TopK, Downsample, RowCallback or a function


def watchable_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Every module of the model that can be watched, by name, in the order of definition.

    A module that several layers share has several names; a compiled model has the names of the model inside. Modules of
    `transformers` are named by side, layer and kind, such as `decoder.0.cross`.
    """
    found = model.named_modules(remove_duplicate=False)
    names = {name.replace("_orig_mod.", "").removesuffix("_orig_mod"): m for name, m in found if hasattr(m, "watcher")}
    ours = {name or type(module).__name__.lower(): module for name, module in names.items()}
    return ours | {name: one.module for name, one in list_attention_modules(model).items()}


class Watchers(list):
    """Those who watch one module; each leaves by itself, in any order. A copy of the module starts with none."""

    def __call__(self, weights: Callable[[Tensor], Tensor], shape: Sequence[int], values: Tensor | None = None) -> None:
        for see in list(self):
            see(weights, shape, values)

    def __deepcopy__(self, memo: dict) -> None:
        return None

    def __reduce__(self):
        return type(None), ()


def _find_modules(model: nn.Module, where: str | int | Sequence[str | int]) -> dict[str, nn.Module]:
    """The watchable modules that are meant: by glob over their names, or by number; those of `transformers` also by path."""
    foreign = list_attention_modules(model)
    known = watchable_modules(model)
    _check_foreign_model(model, found_any=bool(known), whole=where == "*")
    names = list(known)
    paths = {name: foreign[name].path if name in foreign else name for name in names}
    found: list[str] = []
    for want in [where] if isinstance(where, (str, int)) else where:
        if isinstance(want, int):
            if not -len(names) <= want < len(names):
                raise ValueError(f"There are {len(names)} modules to watch, numbered from 0; got {want}.")
            found.append(names[want])
            continue
        hits = [name for name in names if fnmatch(name, want) or fnmatch(paths[name], want)]
        if not hits:
            near = get_close_matches(want.strip("*."), names, n=3, cutoff=0.3) or names[:3]
            raise ValueError(
                f"Nothing to watch matches {want!r}; there are {len(names)} names, such as {', '.join(near)}."
            )
        found += hits
    chosen: dict[int, str] = {}
    for name in names:
        if name in found:
            chosen.setdefault(id(known[name]), name)
    return {name: known[name] for name in chosen.values()}


def _check_foreign_model(model: nn.Module, *, found_any: bool, whole: bool) -> None:
    """Refuse a model of `transformers` whose attention cannot be seen by name; warn where a part of it cannot."""
    theirs = find_transformers_model(model)
    if theirs is None:
        return
    if not found_any:
        raise make_unsupported_error(theirs)
    missing = find_modules_without_interface(model) if whole else {}
    if missing:
        classes = sorted({type(module).__name__ for module in missing.values()})
        warnings.warn(
            f"{type(theirs).__name__} is watched in part: {join_names(classes)} ({len(missing)} modules) computes attention "
            "without the attention interface of transformers.",
            stacklevel=5,
        )


@contextmanager
def watch(
    model: nn.Module,
    where: str | int | Sequence[str | int] = "*",
    *,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | Tensor | None = None,
    reduce: Reducer = KeepAll(),
) -> Iterator[list[Look]]:
    """Collect a `Look` for every call of the chosen modules inside the block.

    `model` is one of saccade or of `transformers`, or holds one. `where` is a glob over module names ("*.3.*"), a number, or
    a list of either. Choose query `rows` to compute less (-1 is the last row of a call) and `heads` to keep less; `reduce`
    says what to keep: KeepAll(), TopK(32), Downsample(256) or RowCallback(function).
    """
    looks: list[Look] = []
    chosen = _find_modules(model, where)

    def watcher(name: str, module: nn.Module):
        axes = tuple(getattr(module, "axes", ATTENTION_AXES))

        def see(weights: Callable[[Tensor], Tensor], shape: Sequence[int], values: Tensor | None) -> None:
            with torch.no_grad():
                look = _make_look(name, axes, weights, list(shape), heads, rows, reduce)
                look.value_norms = None if values is None else _value_norms(values, shape, heads)
                looks.append(look)

        return see

    with ExitStack() as stack:
        for name, module in chosen.items():
            stack.enter_context(_place_watcher(module, watcher(name, module)))
        yield looks


def _place_watcher(module: nn.Module, see: Callable[..., None]) -> AbstractContextManager[None]:
    """Let a watcher see every call of a module, ours or one of `transformers`."""
    return _watch_module(module, see) if hasattr(module, "watcher") else watch_calls(module, see)


@contextmanager
def _watch_module(module: Any, see: Callable[..., None]) -> Iterator[None]:
    if not isinstance(module.watcher, Watchers):
        module.watcher = Watchers()
    module.watcher.append(see)
    try:
        yield
    finally:
        if isinstance(module.watcher, Watchers) and see in module.watcher:
            module.watcher.remove(see)
            module.watcher = module.watcher or None


def _value_norms(values: Tensor, shape: Sequence[int], heads: Sequence[int] | None) -> Tensor:
    """The Euclidean norm of each value vector, (B, H, K), for every query head or for those that are asked for."""
    norms = values.detach().float().flatten(2, -2).norm(dim=-1)
    norms = norms.repeat_interleave(shape[1] // norms.size(1), dim=1)  # value heads that serve a group of query heads
    return norms if heads is None else norms[:, list(heads)]


def _make_look(name: str, axes: tuple[str, ...], weights, shape: list[int], heads, rows, reduce: Reducer) -> Look:
    """Compute the weights of one call, chunk by chunk of rows, and keep what is asked for."""
    grid = len(shape) > len(axes)  # keys on rows and columns
    whole = isinstance(reduce, KeepAll | RowCallback)
    if grid and whole:
        axes = (*axes[:-1], "row", "column")
    axis = next((i for i, kind in enumerate(axes) if kind in ("query", "time")), None)
    if axis is None:  # no rows to choose from, such as the channels of squeeze-and-excitation
        every = weights(torch.arange(1)).detach()
        if isinstance(reduce, RowCallback):
            reduce.callback(torch.arange(1), every)
        return Look(name, None if isinstance(reduce, RowCallback) else every, axes, shape=tuple(shape))
    count = shape[axes.index("head")] if "head" in axes else 0
    if heads is not None and "head" in axes and not all(0 <= head < count for head in heads):
        raise ValueError(f"{name} has {count} heads, numbered from 0; asked for {list(heads)}.")
    wanted = torch.arange(shape[axis]) if rows is None else torch.as_tensor(rows).long()
    wanted = torch.where(wanted < 0, wanted + shape[axis], wanted)  # -1 is the last, of each step of a generation
    if len(wanted) and not 0 <= int(wanted.min()) <= int(wanted.max()) < shape[axis]:
        raise ValueError(f"{name} has {shape[axis]} rows, numbered from 0; asked for {wanted.tolist()[:8]}.")
    a_row = prod(shape) // max(1, shape[axis])
    if heads is not None and "head" in axes:
        kept = a_row // shape[axes.index("head")] * len(heads) * len(wanted)
    else:
        kept = a_row * len(wanted)
    if isinstance(reduce, KeepAll) and kept > MAX_WEIGHTS_PER_MODULE:
        raise ValueError(
            f"The weights of {name} would take {kept * 4 / 2**30:.1f} GB; choose `rows` or `heads`, or keep less with "
            "reduce=TopK(32), reduce=Downsample(256) or reduce=RowCallback(function)."
        )

    def chunks() -> Iterator[tuple[Tensor, Tensor]]:
        for some in wanted.split(max(MIN_CHUNK_ROWS, MAX_CHUNK_WEIGHTS // max(1, a_row))):
            part = weights(some).detach()
            if grid and not whole:
                part = part.flatten(axis + 1)  # keys by number, row by row
            if heads is not None and "head" in axes:
                part = part.index_select(axes.index("head"), torch.tensor(list(heads), device=part.device))
            yield some, part

    kept_weights, columns = reduce(chunks(), axis, len(wanted))
    return Look(name, kept_weights, axes, None if rows is None else wanted, columns, shape=tuple(shape))
