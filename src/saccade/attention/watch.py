"""Record the exact attention weights of any model while the fast path computes the output, unchanged bit for bit.

    with watch(model, where="*.3.*", heads=[0, 5]) as looks:
        model(batch)
    looks[0].weights        # (B, 2, Q, K)

Every module with a `watcher` can be watched: attention, the gates of an LSTM, squeeze-and-excitation; and the attention of any
model of the `transformers` package that goes through its attention interface (`saccade.attention.hf`). Weights are computed in
chunks of query rows, so long sequences need little memory: select rows, or reduce the weights to the largest of each row
(`TopK`), to a smaller matrix (`Downsample`), or hand them to a function (`RowCallback`).
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
from saccade.keywords import check_keywords
from saccade.notebook import html_heatmap, html_table, html_text
from saccade.system import trim_heap

WeightChunks = Iterable[tuple[Tensor, Tensor]]  # (row indices, weights of those rows)
ReducedWeights = tuple[Tensor | None, Tensor | None]  # (weights, columns)
ATTENTION_AXES = ("batch", "head", "query", "key")
MAX_LOOKS_SHOWN = 20
MAX_CHUNK_WEIGHTS = 2**20  # weights computed at a time: 4 MB in float32, plus temporary tensors of the same size
MIN_CHUNK_ROWS = 16  # rows computed at a time, however long: every chunk reads all keys again
MIN_TRIM_BYTES = 2**26  # size of a buffer from which the heap is trimmed before and after it is filled
MAX_WEIGHTS_PER_MODULE = 2**29  # most weights that KeepAll stores of one module: 2 GB in float32


@dataclass
class Look:
    """The attention weights of one module in one call."""

    name: str
    weights: Tensor | None
    axes: tuple[str, ...]
    rows: Tensor | None = None  # indices of the selected query rows; None = all
    columns: Tensor | None = None  # the key index of each weight, if only the largest weights are kept
    value_norms: Tensor | None = (
        None  # (B, H, K): the norm of the value vector of each key; None for gates and channels
    )
    shape: tuple[int, ...] = ()  # shape of the full weights of the call, before they were reduced

    def __repr__(self) -> str:
        return f"Look({self.name}{', ' if self.weights is None else ': '}{self.describe_shape()})"

    def describe_shape(self) -> str:
        """The axes of the weights with their sizes, such as "batch 1, head 2, query 5, key 5"."""
        if self.weights is None:
            return "no weights"
        return ", ".join(f"{axis} {size}" for axis, size in zip(self.axes, self.weights.shape, strict=False))

    def _repr_html_(self) -> str:
        if self.weights is None or self.columns is not None or self.axes != ATTENTION_AXES:
            return html_text(repr(self))
        first = self.weights[0].detach().float().cpu()  # (H, Q, K) of the first sequence
        heads = f"the mean of {len(first)} heads" if len(first) > 1 else "one head"
        return html_heatmap(first.mean(0).tolist(), caption=f"{self!r}: {heads} for the first sequence")


class Looks(list[Look]):
    """The looks of a block in the order of their calls, which a notebook shows as a table."""

    def __repr__(self) -> str:
        lines = [f"  {number}  {look!r}" for number, look in enumerate(self[:MAX_LOOKS_SHOWN])]
        more = [f"  ... and {len(self) - MAX_LOOKS_SHOWN:,} more"] if len(self) > MAX_LOOKS_SHOWN else []
        return "\n".join([f"Looks({len(self):,})", *lines, *more])

    def _repr_html_(self) -> str:
        rows = [(number, look.name, look.describe_shape()) for number, look in enumerate(self[:MAX_LOOKS_SHOWN])]
        return html_table(("", "name", "weights"), rows, caption=f"{len(self):,} looks")


class _ChunkBuffer:
    """Collects chunks in one tensor that is allocated with the first chunk; many small tensors would fragment the heap."""

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
        """Next to a large buffer, memory freed earlier in the forward pass but still held by the process would add up."""
        if self.tensor.nbytes >= MIN_TRIM_BYTES:
            trim_heap()


@dataclass(frozen=True)
class KeepAll:
    """Keep all weights."""

    def __call__(self, chunks: WeightChunks, axis: int, count: int) -> ReducedWeights:
        kept = _ChunkBuffer(axis, count)
        for _, weights in chunks:
            if weights.size(axis) == count:
                return weights, None
            kept.add(weights)
        return kept.tensor, None


@dataclass(frozen=True)
class TopK:
    """Keep the `count` largest weights of each row and the indices of their keys."""

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
    """Downsample the weights to at most `size` x `size`: sums over groups of keys, means over groups of queries."""

    size: int = 256

    def __call__(self, chunks: WeightChunks, axis: int, count: int) -> ReducedWeights:
        buffer = _ChunkBuffer(-2, count)
        for _, weights in chunks:
            weights = weights.movedim(axis, -2)  # (..., rows, keys)
            group = -(-weights.size(-1) // self.size)
            weights = F.pad(weights, (0, -weights.size(-1) % group))
            buffer.add(weights.unflatten(-1, (-1, group)).sum(-1))
        pooled = buffer.tensor
        group = -(-pooled.size(-2) // self.size)
        rows = [chunk.mean(-2) for chunk in pooled.split(group, dim=-2)]
        return torch.stack(rows, dim=-2).movedim(-2, axis), None


@dataclass(frozen=True)
class RowCallback:
    """Keep nothing; call a function with (row indices, weights) for each chunk."""

    callback: Callable[[Tensor, Tensor], None]

    def __call__(self, chunks: WeightChunks, axis: int, count: int) -> ReducedWeights:
        for rows, weights in chunks:
            self.callback(rows, weights)
        return None, None


Reducer = Callable[[WeightChunks, int, int], ReducedWeights]  # KeepAll, TopK, Downsample, RowCallback or a function


def watchable_modules(model: nn.Module) -> dict[str, nn.Module]:
    """All watchable modules of a model by name, in the order of definition.

    A module that several layers share has several names; a compiled model has the names of the model that was compiled.
    Modules of `transformers` are named by side, layer and kind, such as `decoder.0.cross`.
    """
    named = model.named_modules(remove_duplicate=False)
    watchable = {n.replace("_orig_mod.", "").removesuffix("_orig_mod"): m for n, m in named if hasattr(m, "watcher")}
    own = {name or type(module).__name__.lower(): module for name, module in watchable.items()}
    return own | {name: attention.module for name, attention in list_attention_modules(model).items()}


class Watchers(list[Callable[..., None]]):
    """The watchers of one module, which can be removed in any order. A copy of the module has none."""

    def __call__(self, weights: Callable[[Tensor], Tensor], shape: Sequence[int], values: Tensor | None = None) -> None:
        for watcher in list(self):
            watcher(weights, shape, values)

    def __deepcopy__(self, memo: dict[int, object]) -> None:
        return None

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return type(None), ()


def _find_modules(model: nn.Module, where: str | int | Sequence[str | int]) -> dict[str, nn.Module]:
    """The watchable modules that match: by glob pattern over their names, or by index; those of `transformers` also by path."""
    foreign = list_attention_modules(model)
    watchable = watchable_modules(model)
    _check_foreign_model(model, matches_any=bool(watchable), is_everything=where == "*")
    names = list(watchable)
    paths = {name: foreign[name].path if name in foreign else name for name in names}
    matches: list[str] = []
    for pattern in [where] if isinstance(where, (str, int)) else where:
        if isinstance(pattern, int):
            if not -len(names) <= pattern < len(names):
                raise ValueError(f"The model has {len(names)} watchable modules, numbered from 0; got {pattern}.")
            matches.append(names[pattern])
            continue
        hits = [name for name in names if fnmatch(name, pattern) or fnmatch(paths[name], pattern)]
        if not hits and not names:
            raise ValueError(f"{type(model).__name__} has no watchable modules, so {pattern!r} matches nothing.")
        if not hits:
            near = get_close_matches(pattern.strip("*."), names, n=3, cutoff=0.3) or names[:3]
            raise ValueError(
                f"No watchable module matches {pattern!r}; the model has {len(names)}, such as {', '.join(near)}."
            )
        matches += hits
    names_by_module: dict[int, str] = {}
    for name in names:
        if name in matches:
            names_by_module.setdefault(id(watchable[name]), name)
    return {name: watchable[name] for name in names_by_module.values()}


def _check_foreign_model(model: nn.Module, *, matches_any: bool, is_everything: bool) -> None:
    """Refuse a model of `transformers` whose attention cannot be watched; warn if that is true of some of its modules."""
    theirs = find_transformers_model(model)
    if theirs is None:
        return
    if not matches_any:
        raise make_unsupported_error(theirs)
    missing = find_modules_without_interface(model) if is_everything else {}
    if missing:
        classes = sorted({type(module).__name__ for module in missing.values()})
        warnings.warn(
            f"{type(theirs).__name__} is watched in part: {join_names(classes)} ({len(missing)} modules) computes attention "
            "without the attention interface of transformers.",
            stacklevel=5,
        )


@check_keywords
@contextmanager
def watch(
    model: nn.Module,
    where: str | int | Sequence[str | int] = "*",
    *,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | Tensor | None = None,
    reduce: Reducer = KeepAll(),
) -> Iterator[Looks]:
    """Record the attention weights of the matching modules: one `Look` for every call inside the block.

    `model` is a model of saccade or of `transformers`, or contains one. `where` is a glob pattern over module names ("*.3.*"), an
    index, or a list of either. Select query `rows` to compute less (-1 is the last row of a call) and `heads` to keep less;
    `reduce` decides what is kept: KeepAll(), TopK(32), Downsample(256) or RowCallback(function).
    """
    looks = Looks()
    modules = _find_modules(model, where)

    def make_watcher(name: str, module: nn.Module):
        axes = tuple(getattr(module, "axes", ATTENTION_AXES))

        def watcher(weights: Callable[[Tensor], Tensor], shape: Sequence[int], values: Tensor | None) -> None:
            with torch.no_grad():
                look = _make_look(name, axes, weights, list(shape), heads, rows, reduce)
                look.value_norms = None if values is None else _value_norms(values, shape, heads)
                looks.append(look)

        return watcher

    with ExitStack() as stack:
        for name, module in modules.items():
            stack.enter_context(_attach_watcher(module, make_watcher(name, module)))
        yield looks


def _attach_watcher(module: nn.Module, watcher: Callable[..., None]) -> AbstractContextManager[None]:
    """Report every call of a module, of saccade or of `transformers`, to a watcher."""
    return _watch_module(module, watcher) if hasattr(module, "watcher") else watch_calls(module, watcher)


@contextmanager
def _watch_module(module: Any, watcher: Callable[..., None]) -> Iterator[None]:
    if not isinstance(module.watcher, Watchers):
        module.watcher = Watchers()
    module.watcher.append(watcher)
    try:
        yield
    finally:
        if isinstance(module.watcher, Watchers) and watcher in module.watcher:
            module.watcher.remove(watcher)
            module.watcher = module.watcher or None


def _value_norms(values: Tensor, shape: Sequence[int], heads: Sequence[int] | None) -> Tensor:
    """The Euclidean norm of each value vector, (B, H, K), for all query heads or for those in `heads`."""
    norms = values.detach().float().flatten(2, -2).norm(dim=-1)
    norms = norms.repeat_interleave(shape[1] // norms.size(1), dim=1)  # grouped-query attention
    return norms if heads is None else norms[:, list(heads)]


def _make_look(name: str, axes: tuple[str, ...], weights, shape: list[int], heads, rows, reduce: Reducer) -> Look:
    """Compute the weights of one call in chunks of rows, and reduce them."""
    is_grid = len(shape) > len(axes)  # the keys form a grid of rows and columns
    keeps_rows = isinstance(reduce, KeepAll | RowCallback)
    if is_grid and keeps_rows:
        axes = (*axes[:-1], "row", "column")
    axis = next((i for i, kind in enumerate(axes) if kind in ("query", "time")), None)
    if axis is None:  # no query rows to select, as in the channels of squeeze-and-excitation
        all_weights = weights(torch.arange(1)).detach()
        if isinstance(reduce, RowCallback):
            reduce.callback(torch.arange(1), all_weights)
        return Look(name, None if isinstance(reduce, RowCallback) else all_weights, axes, shape=tuple(shape))
    count = shape[axes.index("head")] if "head" in axes else 0
    if heads is not None and "head" in axes and not all(0 <= head < count for head in heads):
        raise ValueError(f"{name} has {count} heads, numbered from 0; got heads={list(heads)}.")
    selected = torch.arange(shape[axis]) if rows is None else torch.as_tensor(rows).long()
    selected = torch.where(selected < 0, selected + shape[axis], selected)  # -1: the last row of each decoding step
    if len(selected) and not 0 <= int(selected.min()) <= int(selected.max()) < shape[axis]:
        raise ValueError(f"{name} has {shape[axis]} rows, numbered from 0; got rows={selected.tolist()[:8]}.")
    row_weights = prod(shape) // max(1, shape[axis])
    if heads is not None and "head" in axes:
        kept = row_weights // shape[axes.index("head")] * len(heads) * len(selected)
    else:
        kept = row_weights * len(selected)
    if isinstance(reduce, KeepAll) and kept > MAX_WEIGHTS_PER_MODULE:
        raise ValueError(
            f"The attention weights of {name} would need {kept * 4 / 2**30:.1f} GB; select `rows` or `heads`, or keep less with "
            "reduce=TopK(32), reduce=Downsample(256) or reduce=RowCallback(function)."
        )

    def chunks() -> Iterator[tuple[Tensor, Tensor]]:
        for index in selected.split(max(MIN_CHUNK_ROWS, MAX_CHUNK_WEIGHTS // max(1, row_weights))):
            chunk = weights(index).detach()
            if is_grid and not keeps_rows:
                chunk = chunk.flatten(axis + 1)  # the keys of the grid, row by row
            if heads is not None and "head" in axes:
                chunk = chunk.index_select(axes.index("head"), torch.tensor(list(heads), device=chunk.device))
            yield index, chunk

    kept_weights, columns = reduce(chunks(), axis, len(selected))
    return Look(name, kept_weights, axes, None if rows is None else selected, columns, shape=tuple(shape))
