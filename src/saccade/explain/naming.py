"""Looks as they were collected, made into maps: steps joined, one row of the batch, names on both sides."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from saccade.attention.watch import Look, Reducer
from saccade.explain.axis import Axis, numbered
from saccade.explain.looks import Seen
from saccade.explain.places import FAR, Place


@dataclass(frozen=True)
class Wanted:
    """Which layers, heads and rows of queries, and what is kept of them; None is all."""

    layers: Sequence[int] | None = None
    heads: Sequence[int] | None = None
    rows: Sequence[int] | None = None
    reduce: Reducer | None = None


def named(looks: Sequence[Look], chosen: Sequence[Place], wanted: Wanted, marked: Sequence[int]) -> list[Seen]:
    """Looks of one module are one after the other in time; each axis gets the names of what it runs over."""
    parts: dict[str, list[Look]] = {}
    for one in looks:
        if one.weights is not None:
            parts.setdefault(one.name, []).append(one)
    seen = [_seen(parts[place.name], place, wanted) for place in chosen if place.name in parts]
    return _with_far(seen, marked, wanted.rows)


def _seen(parts: Sequence[Look], place: Place, wanted: Wanted) -> Seen:
    """The first row of a batch, with all steps joined."""
    values = [one.weights[0].float().cpu() for one in parts if one.weights is not None]
    if place.kind == "channel":
        return _made(place, (0,), values[0][None, None], place.query, numbered("channels", len(values[0])))
    seen = _gates(values, place, parts[0]) if place.kind == "gate" else _attention(values, place, parts, wanted)
    whole = parts[0].rows is None and len(seen.query) == len(place.query) and FAR not in place.name
    return seen.pick(rows=wanted.rows) if wanted.rows is not None and whole else seen


def _gates(values: Sequence[Tensor], place: Place, look: Look) -> Seen:
    """(time, gates, units) of each step to (gates, time, units) of all."""
    weights = torch.cat(list(values)).transpose(0, 1)
    query = place.query if look.rows is None else place.query.pick(look.rows.tolist())
    return _made(place, tuple(range(len(weights))), weights, query, numbered("units", weights.size(-1)))


def _attention(values: Sequence[Tensor], place: Place, parts: Sequence[Look], wanted: Wanted) -> Seen:
    """(H, Q, K) of each step, or (H, Q, rows, columns) of a picture, to (H, Q, K) of all."""
    steps = [one.flatten(2) for one in values]
    weights = steps[0] if len(steps) == 1 else torch.cat(steps, dim=1)
    columns = [one.columns[0].cpu() for one in parts if one.columns is not None]
    at = torch.cat(columns, dim=1) if columns else None
    heads = range(len(weights)) if wanted.heads is None else wanted.heads
    query, key = _fitted(place, weights, at, parts[0])
    asked = len(place.query) if parts[0].rows is None else len(parts[0].rows)
    pooled = len(query) != asked or len(key) != (len(place.key) or len(key))
    made = replace(_made(place, tuple(heads), weights, query, key), at=at, pooled=pooled)
    norms = parts[-1].value_norms  # a decoder that asks step by step has the same values at each
    return made if norms is None or norms.size(-1) != len(key) else replace(made, value_norms=norms[0].float().cpu())


def _made(place: Place, heads: tuple[int, ...], weights: Tensor, query: Axis, key: Axis) -> Seen:
    return Seen(place.name, place.kind, place.side, place.layer, heads, weights, query, key, gates=place.gates)


def _fitted(place: Place, weights: Tensor, at: Tensor | None, look: Look) -> tuple[Axis, Axis]:
    """The axes of what was kept: some rows, or neighbours pooled."""
    query, key = place.query, place.key
    if not len(key):
        key = numbered(key.of, weights.size(-1))
    if look.rows is not None:
        query = query.pick(look.rows.tolist())
    if weights.size(-2) != len(query):
        query = query.grouped(-(-len(query) // weights.size(-2)))
    if at is None and weights.size(-1) != len(key):
        key = key.grouped(-(-len(key) // weights.size(-1)))
    if len(query) != weights.size(-2) or (at is None and len(key) != weights.size(-1)):
        raise ValueError(
            f"{place.name} looked with {tuple(weights.shape[-2:])} rows and columns where {len(query)} and {len(key)} tokens "
            "are known; this is a bug of ours."
        )
    return query, key


def _with_far(seen: list[Seen], marked: Sequence[int], shown: Sequence[int] | None) -> list[Seen]:
    """Longformer's two looks as one: a marked token sees nothing near, so what it sees far stands in its place."""
    out: list[Seen] = []
    for one in seen:
        near = next((m for m in out if m.name == one.name.replace(FAR, ".near.")), None) if FAR in one.name else None
        if near is None or one.weights.shape[-1] != near.weights.shape[-1] or len(marked) != one.weights.size(1):
            out.append(one)
            continue
        rows = list(range(len(near.query))) if shown is None else [row for row in shown if row < len(one.key)]
        if len(rows) != near.weights.size(1):  # pooled: rows of many tokens
            out.append(one)
            continue
        mine = [place for place, number in enumerate(marked) if number in rows]
        there = [rows.index(marked[place]) for place in mine]
        weights, at = near.weights.clone(), near.at
        weights[:, there] = one.weights[:, mine]
        if at is not None and one.at is not None:
            at = at.clone()
            at[:, there] = one.at[:, mine]
        out[out.index(near)] = replace(
            near, weights=weights, at=at, value_norms=None
        )  # the two looks have values of their own
    return out
