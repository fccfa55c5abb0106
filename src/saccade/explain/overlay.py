"""Attention over a picture: what was looked at stays bright, the rest goes dark; one view for each word or head."""

from dataclasses import dataclass

import numpy as np
from PIL import Image
from torch import Tensor

from saccade.explain.maps import AttentionMap, AttentionMaps

MIN_BRIGHTNESS = 0.15  # how bright the least looked-at cell stays
MAX_ADDED_BRIGHTNESS = 60  # brightness that the most looked-at cell gains
OVERLAY_PIXELS = 168  # pixels of a view
MAX_OVERLAYS = 40  # views


@dataclass(frozen=True)
class ImageOverlay:
    """A picture under one row of weights, and what the row is."""

    name: str
    image: Image.Image


def render_overlays(attention_maps: AttentionMaps) -> list[ImageOverlay]:
    """Of a writer, what each word looked at; of a reader, what each head of the last layer looked at for the whole picture.

    All views have one scale, which ends at the largest weight of any of them, so that they can be compared.
    """
    found = _select_overlay_weights(attention_maps)
    if found is None or attention_maps.image is None:
        return []
    seen, names, rows = found
    top = _max_cell_weight(seen, rows)
    return [
        ImageOverlay(name, render_overlay(attention_maps.image, row, seen, vmax=top))
        for name, row in zip(names, rows, strict=True)
    ]


def describe_brightness(attention_maps: AttentionMaps) -> str:
    """What the brightness of the views stands for, in a sentence."""
    found = _select_overlay_weights(attention_maps)
    top = 0.0 if found is None else _max_cell_weight(found[0], found[2])
    return f"Brightness is weight: the darkest stands for 0, the brightest for {top:.3g}, the largest weight of all these views."


def _select_overlay_weights(attention_maps: AttentionMaps) -> tuple[AttentionMap, list[str], Tensor] | None:
    """The map that is laid over the picture, with the name of each view and its row of weights, (views, K)."""
    by_word = [m for m in attention_maps.maps if m.kind == "image" and m.key.grid is not None]
    if by_word:
        seen = by_word[-1]
        return seen, [name.strip() or name for name in seen.query_names[:MAX_OVERLAYS]], seen.mean[:MAX_OVERLAYS]
    whole = [
        m
        for m in attention_maps.maps
        if m.key.kind == "cells" and m.key.grid is not None and m.kind == "self" and m.side == ""
    ]
    if not whole:
        return None
    seen = whole[-1]
    return seen, [seen.head_name(i) for i in range(len(seen.heads))][:MAX_OVERLAYS], seen.to_dense()[:MAX_OVERLAYS, 0]


def _max_cell_weight(attention_map: AttentionMap, rows: Tensor) -> float:
    assert attention_map.key.grid is not None, "only cells can be laid over a picture"
    return float(rows[:, -attention_map.key.grid[0] * attention_map.key.grid[1] :].max())


def render_overlay(
    image: np.ndarray, weights: Tensor, attention_map: AttentionMap, *, vmax: float | None = None
) -> Image.Image:
    """One row of weights as light on the picture, every cell as bright as its weight and none between; `top` is the brightest.

    The page draws the same by the same formula (viewer/image.js).
    """
    assert attention_map.key.grid is not None, "only cells can be laid over a picture"
    rows, columns = attention_map.key.grid
    light = weights[-rows * columns :].reshape(rows, columns).float().numpy()
    light = light / max(float(light.max()) if vmax is None else vmax, 1e-9)
    high, wide = image.shape[:2]
    scale = OVERLAY_PIXELS / max(high, wide)
    size = (max(1, round(wide * scale)), max(1, round(high * scale)))
    base = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image[..., :3]).convert("RGB")
    shine = Image.fromarray(light.clip(0, 1).astype(np.float32)).resize(size, Image.Resampling.NEAREST)
    mask = MIN_BRIGHTNESS + (1 - MIN_BRIGHTNESS) * np.asarray(shine, dtype=np.float32)[..., None]
    # a dark ground would hide where the light falls, so some of the light is added, too
    lit = np.asarray(base.resize(size, Image.Resampling.NEAREST), dtype=np.float32) * mask + MAX_ADDED_BRIGHTNESS * (
        mask - MIN_BRIGHTNESS
    )
    return Image.fromarray(lit.clip(0, 255).astype(np.uint8))
