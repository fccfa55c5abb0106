"""Attention maps as data: a file of safetensors with all names as JSON in its header (no pickle), and a table of weights."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from saccade.errors import ModelError, ResourceError, UsageError
from saccade.explain.axis import Axis, Token
from saccade.explain.maps import AttentionMap, AttentionMaps

FILE_FORMAT = "saccade attention-maps 1"
MAX_TABLE_ROWS = 2**25  # weights in a table: some 2 GB
TABLE_COLUMNS = ("side", "layer", "kind", "head", "query_position", "query", "key_position", "key", "weight")
MAP_FIELDS = ("name", "kind", "side", "layer")


def make_columns(attention_maps: AttentionMaps) -> dict[str, np.ndarray]:
    """All weights as columns of a table, with a row for each: map by map, head by head, query by query."""
    rows = sum(one.weights.numel() for one in attention_maps.maps)
    if rows > MAX_TABLE_ROWS:
        raise UsageError(
            f"A table of all weights would have {rows:,} rows; choose layers, heads or queries, or keep fewer."
        )
    parts = [_make_map_columns(one) for one in attention_maps.maps]
    return {name: np.concatenate([part[name] for part in parts]) if parts else np.array([]) for name in TABLE_COLUMNS}


def _make_map_columns(one: AttentionMap) -> dict[str, np.ndarray]:
    heads, queries, keys = one.weights.shape
    index = torch.arange(keys).expand(one.weights.shape) if one.key_index is None else one.key_index
    key_position, query_position = index.flatten().numpy(), np.tile(np.repeat(np.arange(queries), keys), heads)
    constants = {"side": one.side, "layer": one.layer, "kind": one.kind}
    return {name: np.full(len(key_position), value) for name, value in constants.items()} | {
        "head": np.repeat(np.array(one.gates or one.heads), queries * keys),
        "query_position": query_position,
        "query": np.array(one.query_names, dtype=object)[query_position],
        "key_position": key_position,
        "key": np.array(one.key_names, dtype=object)[key_position],
        "weight": one.weights.flatten().numpy(),
    }


def make_data_frame(attention_maps: AttentionMaps) -> Any:
    """The columns as a pandas DataFrame, where that package is installed."""
    try:
        import pandas  # type: ignore[import-not-found]  # an optional package
    except ImportError:
        raise ResourceError("A table of weights needs pandas; install it with: pip install pandas") from None
    frame = pandas.DataFrame(make_columns(attention_maps), columns=list(TABLE_COLUMNS))
    return frame.astype(dict.fromkeys(("side", "kind", "query", "key"), "category"))


def save_maps(attention_maps: AttentionMaps, path: Path) -> Path:
    """Write looks; axes that several maps share are written once."""
    tensors: dict[str, Tensor] = {}
    axes: list[Axis] = []
    maps = []
    for number, one in enumerate(attention_maps.maps):
        tensors[f"{number}.weights"] = one.weights.to(torch.float16).contiguous()
        if one.value_norms is not None:
            tensors[f"{number}.value_norms"] = one.value_norms.contiguous()
        if one.key_index is not None:
            tensors[f"{number}.key_index"] = one.key_index.to(torch.int32).contiguous()
        sides = [_axis_index(axes, axis) for axis in (one.query, one.key)]
        maps.append(
            {name: getattr(one, name) for name in MAP_FIELDS}
            | {"heads": one.heads, "gates": one.gates, "axes": sides, "pooled": one.pooled}
        )
    if attention_maps.image is not None:
        tensors["image"] = torch.from_numpy(np.ascontiguousarray(attention_maps.image))
    said = {
        "model": attention_maps.model,
        "texts": attention_maps.texts,
        "answer": attention_maps.answer,
        "generated_text": attention_maps.generated_text,
        "no_answer_reason": attention_maps.no_answer_reason,
        "truncated_at": attention_maps.truncated_at,
        "max_output_tokens": attention_maps.max_output_tokens,
        "truncated_input_tokens": attention_maps.truncated_input_tokens,
        "maps": maps,
        "axes": [
            {"kind": a.kind, "grid": a.grid, "tokens": [[t.name, *t.span, t.text_index] for t in a.tokens]}
            for a in axes
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, {"format": FILE_FORMAT, "attention_maps": json.dumps(said, ensure_ascii=False)})
    return path


def _axis_index(axes: list[Axis], axis: Axis) -> int:
    if axis not in axes:
        axes.append(axis)
    return axes.index(axis)


def load_maps(path: Path) -> AttentionMaps:
    """Read looks; a file of another kind is refused by name."""
    try:
        with safe_open(path, "pt") as file:
            said = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
    except SafetensorError as error:
        raise ModelError(f"{path} holds no looks ({error}); `AttentionMaps.save` writes such a file.") from None
    if said.get("format") != FILE_FORMAT:
        raise ModelError(
            f"{path} holds {said.get('format', 'something else')!r}, and {FILE_FORMAT!r} is needed; save it again."
        )
    raw = json.loads(said["attention_maps"])
    axes = [_parse_axis(one) for one in raw["axes"]]
    maps = tuple(_parse_map(one, number, axes, tensors) for number, one in enumerate(raw["maps"]))
    image = tensors["image"].numpy() if "image" in tensors else None
    known = ("no_answer_reason", "truncated_at", "max_output_tokens", "truncated_input_tokens")
    more = {name: raw[name] for name in known if name in raw}
    return AttentionMaps(raw["model"], maps, tuple(raw["texts"]), raw["answer"], raw["generated_text"], image, **more)


def _parse_axis(raw: dict[str, Any]) -> Axis:
    tokens = tuple(Token(name, (start, end), text) for name, start, end, text in raw["tokens"])
    return Axis(raw["kind"], tokens, None if raw["grid"] is None else (raw["grid"][0], raw["grid"][1]))


def _parse_map(raw: dict[str, Any], number: int, axes: list[Axis], tensors: dict[str, Tensor]) -> AttentionMap:
    query, key = (axes[place] for place in raw["axes"])
    weights, at = tensors[f"{number}.weights"].float(), tensors.get(f"{number}.key_index")
    shape = (len(raw["heads"]), len(query), len(key) if at is None else weights.size(-1))
    if tuple(weights.shape) != shape:
        raise ModelError(
            f"Map {number} has weights {tuple(weights.shape)} where its names make {shape}; save it again."
        )
    kept = {name: raw[name] for name in MAP_FIELDS}
    places = None if at is None else at.long()
    more = {
        "key_index": places,
        "value_norms": tensors.get(f"{number}.value_norms"),
        "pooled": raw.get("pooled", False),
    }
    return AttentionMap(
        **kept, heads=tuple(raw["heads"]), weights=weights, query=query, key=key, gates=tuple(raw["gates"]), **more
    )
