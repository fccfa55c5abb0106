"""Looks on disk: one safetensors file, weights in half precision, all names as JSON in its header. No pickle."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from saccade.errors import ModelError
from saccade.explain.axis import Axis, Token
from saccade.explain.looks import Looks, Seen

FORMAT = "saccade looks 1"
FIELDS = ("name", "kind", "side", "layer")


def save(looks: Looks, path: Path) -> Path:
    """Write looks; axes that several maps share are written once."""
    tensors: dict[str, Tensor] = {}
    axes: list[Axis] = []
    maps = []
    for number, one in enumerate(looks.maps):
        tensors[f"{number}.weights"] = one.weights.to(torch.float16).contiguous()
        if one.value_norms is not None:
            tensors[f"{number}.value_norms"] = one.value_norms.contiguous()
        if one.at is not None:
            tensors[f"{number}.at"] = one.at.to(torch.int32).contiguous()
        sides = [_number(axes, axis) for axis in (one.query, one.key)]
        maps.append(
            {name: getattr(one, name) for name in FIELDS}
            | {"heads": one.heads, "gates": one.gates, "axes": sides, "pooled": one.pooled}
        )
    if looks.picture is not None:
        tensors["picture"] = torch.from_numpy(np.ascontiguousarray(looks.picture))
    said = {
        "model": looks.model,
        "texts": looks.texts,
        "answer": looks.answer,
        "written": looks.written,
        "no_answer": looks.no_answer,
        "cut": looks.cut,
        "room": looks.room,
        "unread": looks.unread,
        "maps": maps,
        "axes": [{"of": a.of, "grid": a.grid, "tokens": [[t.name, *t.span, t.text] for t in a.tokens]} for a in axes],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, {"format": FORMAT, "looks": json.dumps(said, ensure_ascii=False)})
    return path


def _number(axes: list[Axis], axis: Axis) -> int:
    if axis not in axes:
        axes.append(axis)
    return axes.index(axis)


def load(path: Path) -> Looks:
    """Read looks; a file of another kind is refused by name."""
    try:
        with safe_open(path, "pt") as file:
            said = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
    except SafetensorError as error:
        raise ModelError(f"{path} holds no looks ({error}); `Looks.save` writes such a file.") from None
    if said.get("format") != FORMAT:
        raise ModelError(
            f"{path} holds {said.get('format', 'something else')!r}, and {FORMAT!r} is needed; save it again."
        )
    raw = json.loads(said["looks"])
    axes = [_axis(one) for one in raw["axes"]]
    maps = tuple(_map(one, number, axes, tensors) for number, one in enumerate(raw["maps"]))
    picture = tensors["picture"].numpy() if "picture" in tensors else None
    more = {name: raw[name] for name in ("no_answer", "cut", "room", "unread") if name in raw}
    return Looks(raw["model"], maps, tuple(raw["texts"]), raw["answer"], raw["written"], picture, **more)


def _axis(raw: dict[str, Any]) -> Axis:
    tokens = tuple(Token(name, (start, end), text) for name, start, end, text in raw["tokens"])
    return Axis(raw["of"], tokens, None if raw["grid"] is None else (raw["grid"][0], raw["grid"][1]))


def _map(raw: dict[str, Any], number: int, axes: list[Axis], tensors: dict[str, Tensor]) -> Seen:
    query, key = (axes[place] for place in raw["axes"])
    weights, at = tensors[f"{number}.weights"].float(), tensors.get(f"{number}.at")
    shape = (len(raw["heads"]), len(query), len(key) if at is None else weights.size(-1))
    if tuple(weights.shape) != shape:
        raise ModelError(
            f"Map {number} has weights {tuple(weights.shape)} where its names make {shape}; save it again."
        )
    kept = {name: raw[name] for name in FIELDS}
    places = None if at is None else at.long()
    more = {"at": places, "value_norms": tensors.get(f"{number}.value_norms"), "pooled": raw.get("pooled", False)}
    return Seen(
        **kept, heads=tuple(raw["heads"]), weights=weights, query=query, key=key, gates=tuple(raw["gates"]), **more
    )
