"""Build attention maps from what `watch` collected: steps joined, one row of the batch, named queries and keys."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from saccade.attention.watch import Look, Reducer
from saccade.explain.axis import Axis, make_numbered_axis
from saccade.explain.maps import AttentionMap
from saccade.explain.watched_modules import GLOBAL_BRANCH, WatchedModule


@dataclass(frozen=True)
class Selection:
    """Which layers, heads and query rows to keep, and how to reduce their weights; None keeps all."""

    layers: Sequence[int] | None = None
    heads: Sequence[int] | None = None
    queries: Sequence[int] | None = None
    reduce: Reducer | None = None


def build_maps(
    looks: Sequence[Look], modules: Sequence[WatchedModule], selection: Selection, global_positions: Sequence[int]
) -> list[AttentionMap]:
    """Join the looks of each module, which follow each other in time, into a map with named axes."""
    by_module: dict[str, list[Look]] = {}
    for look in looks:
        if look.weights is not None:
            by_module.setdefault(look.name, []).append(look)
    maps = [_build_map(by_module[module.name], module, selection) for module in modules if module.name in by_module]
    return _merge_global_branch(maps, global_positions, selection.queries)


def _build_map(looks: Sequence[Look], module: WatchedModule, selection: Selection) -> AttentionMap:
    """The map of one module for the first row of the batch, with all decoding steps joined."""
    values = [look.weights[0].float().cpu() for look in looks if look.weights is not None]
    if module.kind == "channel":
        return _make_map(
            module, (0,), values[0][None, None], module.query, make_numbered_axis("channels", len(values[0]))
        )
    built = (
        _build_gate_map(values, module, looks[0])
        if module.kind == "gate"
        else _build_attention_map(values, module, looks, selection)
    )
    has_all_rows = looks[0].rows is None and len(built.query) == len(module.query) and GLOBAL_BRANCH not in module.name
    return built.select(queries=selection.queries) if selection.queries is not None and has_all_rows else built


def _build_gate_map(values: Sequence[Tensor], module: WatchedModule, look: Look) -> AttentionMap:
    """Join gate values (time, gates, units) of each step into (gates, time, units) over all steps."""
    weights = torch.cat(list(values)).transpose(0, 1)
    query = module.query if look.rows is None else module.query.select(look.rows.tolist())
    return _make_map(module, tuple(range(len(weights))), weights, query, make_numbered_axis("units", weights.size(-1)))


def _build_attention_map(
    values: Sequence[Tensor], module: WatchedModule, looks: Sequence[Look], selection: Selection
) -> AttentionMap:
    """Join weights (H, Q, K) of each step, or (H, Q, rows, columns) of an image, into (H, Q, K) over all steps."""
    steps = [x.flatten(2) for x in values]
    weights = steps[0] if len(steps) == 1 else torch.cat(steps, dim=1)
    columns = [look.columns[0].cpu() for look in looks if look.columns is not None]
    key_index = torch.cat(columns, dim=1) if columns else None
    heads = range(len(weights)) if selection.heads is None else selection.heads
    query, key = _fit_axes(module, weights, key_index, looks[0])
    row_count = len(module.query) if looks[0].rows is None else len(looks[0].rows)
    pooled = len(query) != row_count or len(key) != (len(module.key) or len(key))
    built = replace(_make_map(module, tuple(heads), weights, query, key), key_index=key_index, pooled=pooled)
    norms = looks[-1].value_norms  # a decoder that runs step by step attends to the same values at each step
    return built if norms is None or norms.size(-1) != len(key) else replace(built, value_norms=norms[0].float().cpu())


def _make_map(module: WatchedModule, heads: tuple[int, ...], weights: Tensor, query: Axis, key: Axis) -> AttentionMap:
    return AttentionMap(
        module.name, module.kind, module.side, module.layer, heads, weights, query, key, gates=module.gates
    )


def _fit_axes(module: WatchedModule, weights: Tensor, key_index: Tensor | None, look: Look) -> tuple[Axis, Axis]:
    """The axes of the weights that were kept: selected rows, or pooled neighbors."""
    query, key = module.query, module.key
    if not len(key):
        key = make_numbered_axis(key.kind, weights.size(-1))
    if look.rows is not None:
        query = query.select(look.rows.tolist())
    if weights.size(-2) != len(query):
        query = query.pool(-(-len(query) // weights.size(-2)))
    if key_index is None and weights.size(-1) != len(key):
        key = key.pool(-(-len(key) // weights.size(-1)))
    if len(query) != weights.size(-2) or (key_index is None and len(key) != weights.size(-1)):
        raise ValueError(
            f"{module.name} has weights with (rows, columns) = {tuple(weights.shape[-2:])}, but there are {len(query)} queries "
            f"and {len(key)} keys; this is a bug of saccade, please report it."
        )
    return query, key


def _merge_global_branch(
    maps: list[AttentionMap], global_positions: Sequence[int], queries: Sequence[int] | None
) -> list[AttentionMap]:
    """Merge local and global attention of Longformer: the local rows of global tokens are empty, and replaced."""
    merged: list[AttentionMap] = []
    for m in maps:
        local = (
            next((other for other in merged if other.name == m.name.replace(GLOBAL_BRANCH, ".near.")), None)
            if GLOBAL_BRANCH in m.name
            else None
        )
        if (
            local is None
            or m.weights.shape[-1] != local.weights.shape[-1]
            or len(global_positions) != m.weights.size(1)
        ):
            merged.append(m)
            continue
        rows = list(range(len(local.query))) if queries is None else [row for row in queries if row < len(m.key)]
        if len(rows) != local.weights.size(1):  # pooled: each row stands for several tokens
            merged.append(m)
            continue
        global_rows = [i for i, position in enumerate(global_positions) if position in rows]
        local_rows = [rows.index(global_positions[i]) for i in global_rows]
        weights, key_index = local.weights.clone(), local.key_index
        weights[:, local_rows] = m.weights[:, global_rows]
        if key_index is not None and m.key_index is not None:
            key_index = key_index.clone()
            key_index[:, local_rows] = m.key_index[:, global_rows]
        # local and global attention have different value vectors, so the merged map has no norms
        merged[merged.index(local)] = replace(local, weights=weights, key_index=key_index, value_norms=None)
    return merged
