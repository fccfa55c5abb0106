"""Looks as they were collected, made into maps: steps joined, one row of the batch, names on both sides."""

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
    """Which layers, heads and rows of queries, and what is kept of them; None is all."""

    layers: Sequence[int] | None = None
    heads: Sequence[int] | None = None
    queries: Sequence[int] | None = None
    reduce: Reducer | None = None


def build_maps(
    looks: Sequence[Look], modules: Sequence[WatchedModule], selection: Selection, global_positions: Sequence[int]
) -> list[AttentionMap]:
    """Looks of one module are one after the other in time; each axis gets the names of what it runs over."""
    parts: dict[str, list[Look]] = {}
    for one in looks:
        if one.weights is not None:
            parts.setdefault(one.name, []).append(one)
    seen = [_build_map(parts[place.name], place, selection) for place in modules if place.name in parts]
    return _merge_global_branch(seen, global_positions, selection.queries)


def _build_map(looks: Sequence[Look], module: WatchedModule, selection: Selection) -> AttentionMap:
    """The first row of a batch, with all steps joined."""
    values = [one.weights[0].float().cpu() for one in looks if one.weights is not None]
    if module.kind == "channel":
        return _make_map(
            module, (0,), values[0][None, None], module.query, make_numbered_axis("channels", len(values[0]))
        )
    seen = (
        _build_gate_map(values, module, looks[0])
        if module.kind == "gate"
        else _build_attention_map(values, module, looks, selection)
    )
    whole = looks[0].rows is None and len(seen.query) == len(module.query) and GLOBAL_BRANCH not in module.name
    return seen.select(queries=selection.queries) if selection.queries is not None and whole else seen


def _build_gate_map(values: Sequence[Tensor], module: WatchedModule, look: Look) -> AttentionMap:
    """(time, gates, units) of each step to (gates, time, units) of all."""
    weights = torch.cat(list(values)).transpose(0, 1)
    query = module.query if look.rows is None else module.query.select(look.rows.tolist())
    return _make_map(module, tuple(range(len(weights))), weights, query, make_numbered_axis("units", weights.size(-1)))


def _build_attention_map(
    values: Sequence[Tensor], module: WatchedModule, looks: Sequence[Look], selection: Selection
) -> AttentionMap:
    """(H, Q, K) of each step, or (H, Q, rows, columns) of a picture, to (H, Q, K) of all."""
    steps = [one.flatten(2) for one in values]
    weights = steps[0] if len(steps) == 1 else torch.cat(steps, dim=1)
    columns = [one.columns[0].cpu() for one in looks if one.columns is not None]
    at = torch.cat(columns, dim=1) if columns else None
    heads = range(len(weights)) if selection.heads is None else selection.heads
    query, key = _fit_axes(module, weights, at, looks[0])
    asked = len(module.query) if looks[0].rows is None else len(looks[0].rows)
    pooled = len(query) != asked or len(key) != (len(module.key) or len(key))
    made = replace(_make_map(module, tuple(heads), weights, query, key), key_index=at, pooled=pooled)
    norms = looks[-1].value_norms  # a decoder that asks step by step has the same values at each
    return made if norms is None or norms.size(-1) != len(key) else replace(made, value_norms=norms[0].float().cpu())


def _make_map(module: WatchedModule, heads: tuple[int, ...], weights: Tensor, query: Axis, key: Axis) -> AttentionMap:
    return AttentionMap(
        module.name, module.kind, module.side, module.layer, heads, weights, query, key, gates=module.gates
    )


def _fit_axes(module: WatchedModule, weights: Tensor, key_index: Tensor | None, look: Look) -> tuple[Axis, Axis]:
    """The axes of what was kept: some rows, or neighbours pooled."""
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
            f"{module.name} looked with {tuple(weights.shape[-2:])} rows and columns where {len(query)} and {len(key)} tokens "
            "are known; this is a bug of ours."
        )
    return query, key


def _merge_global_branch(
    maps: list[AttentionMap], global_positions: Sequence[int], queries: Sequence[int] | None
) -> list[AttentionMap]:
    """Longformer's two looks as one: a marked token sees nothing near, so what it sees far stands in its place."""
    out: list[AttentionMap] = []
    for one in maps:
        near = (
            next((m for m in out if m.name == one.name.replace(GLOBAL_BRANCH, ".near.")), None)
            if GLOBAL_BRANCH in one.name
            else None
        )
        if (
            near is None
            or one.weights.shape[-1] != near.weights.shape[-1]
            or len(global_positions) != one.weights.size(1)
        ):
            out.append(one)
            continue
        rows = list(range(len(near.query))) if queries is None else [row for row in queries if row < len(one.key)]
        if len(rows) != near.weights.size(1):  # pooled: rows of many tokens
            out.append(one)
            continue
        mine = [place for place, number in enumerate(global_positions) if number in rows]
        there = [rows.index(global_positions[place]) for place in mine]
        weights, at = near.weights.clone(), near.key_index
        weights[:, there] = one.weights[:, mine]
        if at is not None and one.key_index is not None:
            at = at.clone()
            at[:, there] = one.key_index[:, mine]
        out[out.index(near)] = replace(
            near, weights=weights, key_index=at, value_norms=None
        )  # the two looks have values of their own
    return out
