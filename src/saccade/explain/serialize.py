"""Serialization of attention maps: a safetensors file with all names as JSON in its header (no pickle), or a table of weights."""

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
MAX_TABLE_ROWS = 2**25  # most weights in a table: about 2 GB
TABLE_COLUMNS = ("side", "layer", "kind", "head", "query_position", "query", "key_position", "key", "weight")
MAP_FIELDS = ("name", "kind", "side", "layer")


def make_columns(attention_maps: AttentionMaps) -> dict[str, np.ndarray]:
    """All weights as columns of a table, with one row per weight: map by map, head by head, query by query."""
    rows = sum(m.weights.numel() for m in attention_maps.maps)
    if rows > MAX_TABLE_ROWS:
        raise UsageError(
            f"The table would have {rows:,} rows; choose layers, heads or queries, or keep fewer weights with `reduce`."
        )
    parts = [_make_map_columns(m) for m in attention_maps.maps]
    return {name: np.concatenate([part[name] for part in parts]) if parts else np.array([]) for name in TABLE_COLUMNS}


def _make_map_columns(m: AttentionMap) -> dict[str, np.ndarray]:
    heads, queries, keys = m.weights.shape
    index = torch.arange(keys).expand(m.weights.shape) if m.key_index is None else m.key_index
    key_position, query_position = index.flatten().numpy(), np.tile(np.repeat(np.arange(queries), keys), heads)
    constants = {"side": m.side, "layer": m.layer, "kind": m.kind}
    return {name: np.full(len(key_position), value) for name, value in constants.items()} | {
        "head": np.repeat(np.array(m.gates or m.heads), queries * keys),
        "query_position": query_position,
        "query": np.array(m.query_names, dtype=object)[query_position],
        "key_position": key_position,
        "key": np.array(m.key_names, dtype=object)[key_position],
        "weight": m.weights.flatten().numpy(),
    }


def make_data_frame(attention_maps: AttentionMaps) -> Any:
    """The columns as a pandas DataFrame."""
    try:
        import pandas  # type: ignore[import-not-found]  # an optional package
    except ImportError:
        raise ResourceError("A table of weights needs pandas; install it with: pip install pandas") from None
    frame = pandas.DataFrame(make_columns(attention_maps), columns=list(TABLE_COLUMNS))
    return frame.astype(dict.fromkeys(("side", "kind", "query", "key"), "category"))


def save_maps(attention_maps: AttentionMaps, path: Path) -> Path:
    """Save attention maps to a file; axes that several maps share are stored once."""
    tensors: dict[str, Tensor] = {}
    axes: list[Axis] = []
    maps = []
    for number, m in enumerate(attention_maps.maps):
        tensors[f"{number}.weights"] = m.weights.to(torch.float16).contiguous()
        if m.value_norms is not None:
            tensors[f"{number}.value_norms"] = m.value_norms.contiguous()
        if m.key_index is not None:
            tensors[f"{number}.key_index"] = m.key_index.to(torch.int32).contiguous()
        map_axes = [_axis_index(axes, axis) for axis in (m.query, m.key)]
        maps.append(
            {name: getattr(m, name) for name in MAP_FIELDS}
            | {"heads": m.heads, "gates": m.gates, "axes": map_axes, "pooled": m.pooled}
        )
    if attention_maps.image is not None:
        tensors["image"] = torch.from_numpy(np.ascontiguousarray(attention_maps.image))
    header = {
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
    save_file(tensors, path, {"format": FILE_FORMAT, "attention_maps": json.dumps(header, ensure_ascii=False)})
    return path


def _axis_index(axes: list[Axis], axis: Axis) -> int:
    if axis not in axes:
        axes.append(axis)
    return axes.index(axis)


def load_maps(path: Path) -> AttentionMaps:
    """Load attention maps from a file that `save_maps` wrote."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except SafetensorError as error:
        raise ModelError(f"{path} has no attention maps ({error}); `AttentionMaps.save` writes such a file.") from None
    file_format = metadata.get("format", "unknown")
    if file_format != FILE_FORMAT:
        raise ModelError(f"{path} has the format {file_format!r}, expected {FILE_FORMAT!r}; save it again.")
    raw = json.loads(metadata["attention_maps"])
    axes = [_parse_axis(axis) for axis in raw["axes"]]
    maps = tuple(_parse_map(raw_map, number, axes, tensors) for number, raw_map in enumerate(raw["maps"]))
    image = tensors["image"].numpy() if "image" in tensors else None
    optional = ("no_answer_reason", "truncated_at", "max_output_tokens", "truncated_input_tokens")
    fields = {name: raw[name] for name in optional if name in raw}
    return AttentionMaps(raw["model"], maps, tuple(raw["texts"]), raw["answer"], raw["generated_text"], image, **fields)


def _parse_axis(raw: dict[str, Any]) -> Axis:
    tokens = tuple(Token(name, (start, end), text) for name, start, end, text in raw["tokens"])
    return Axis(raw["kind"], tokens, None if raw["grid"] is None else (raw["grid"][0], raw["grid"][1]))


def _parse_map(raw: dict[str, Any], number: int, axes: list[Axis], tensors: dict[str, Tensor]) -> AttentionMap:
    query, key = (axes[index] for index in raw["axes"])
    weights, key_index = tensors[f"{number}.weights"].float(), tensors.get(f"{number}.key_index")
    shape = (len(raw["heads"]), len(query), len(key) if key_index is None else weights.size(-1))
    if tuple(weights.shape) != shape:
        got = f"Map {number} has weights of shape {tuple(weights.shape)}"
        raise ModelError(f"{got}, but its heads and axes need {shape}; save it again.")
    return AttentionMap(
        **{name: raw[name] for name in MAP_FIELDS},
        heads=tuple(raw["heads"]),
        weights=weights,
        query=query,
        key=key,
        key_index=None if key_index is None else key_index.long(),
        gates=tuple(raw["gates"]),
        value_norms=tensors.get(f"{number}.value_norms"),
        pooled=raw.get("pooled", False),
    )
