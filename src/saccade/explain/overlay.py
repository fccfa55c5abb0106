"""Attention overlays on an image: attended cells are bright, the others dark; one overlay for each word or head."""

from dataclasses import dataclass

import numpy as np
from PIL import Image
from torch import Tensor

from saccade.explain.maps import AttentionMap, AttentionMaps

MIN_BRIGHTNESS = 0.15  # brightness of a cell with weight 0
MAX_ADDED_BRIGHTNESS = 60  # added to the pixels of the cell with the largest weight
OVERLAY_PIXELS = 168  # longer side of an overlay
MAX_OVERLAYS = 40


@dataclass(frozen=True)
class ImageOverlay:
    """An image with one row of weights laid over it, and the name of that row."""

    name: str
    image: Image.Image


def render_overlays(attention_maps: AttentionMaps) -> list[ImageOverlay]:
    """Overlays for each generated word, or for each head of the last layer if the model is an encoder.

    All overlays share a scale, which ends at the largest weight of any of them, so that they can be compared.
    """
    selected = _select_overlay_weights(attention_maps)
    if selected is None or attention_maps.image is None:
        return []
    attention_map, names, rows = selected
    vmax = _max_cell_weight(attention_map, rows)
    return [
        ImageOverlay(name, render_overlay(attention_maps.image, row, attention_map, vmax=vmax))
        for name, row in zip(names, rows, strict=True)
    ]


def describe_brightness(attention_maps: AttentionMaps) -> str:
    """The brightness scale of the overlays, as a sentence."""
    selected = _select_overlay_weights(attention_maps)
    vmax = 0.0 if selected is None else _max_cell_weight(selected[0], selected[2])
    return f"Brightness shows the attention weight: the darkest is 0, the brightest is {vmax:.3g}, the largest in all images."


def _select_overlay_weights(attention_maps: AttentionMaps) -> tuple[AttentionMap, list[str], Tensor] | None:
    """The map that is laid over the image, with the name and the row of weights of each overlay, (overlays, K)."""
    by_word = [m for m in attention_maps.maps if m.kind == "image" and m.key.grid is not None]
    if by_word:
        last = by_word[-1]
        return last, [name.strip() or name for name in last.query_names[:MAX_OVERLAYS]], last.mean[:MAX_OVERLAYS]
    by_head = [
        m
        for m in attention_maps.maps
        if m.key.kind == "cells" and m.key.grid is not None and m.kind == "self" and m.side == ""
    ]
    if not by_head:
        return None
    last = by_head[-1]
    weights = last.to_dense()[:MAX_OVERLAYS]  # (H, Q, K)
    # the row of the token that stands for the whole image, such as [CLS]; without one, the mean of all rows
    rows = weights[:, 0] if last.query.special_tokens_mask[0] else weights.mean(1)
    return last, [last.head_name(i) for i in range(len(last.heads))][:MAX_OVERLAYS], rows


def _max_cell_weight(attention_map: AttentionMap, rows: Tensor) -> float:
    assert attention_map.key.grid is not None, "only cells can be laid over an image"
    return float(rows[:, -attention_map.key.grid[0] * attention_map.key.grid[1] :].max())


def render_overlay(
    image: np.ndarray, weights: Tensor, attention_map: AttentionMap, *, vmax: float | None = None
) -> Image.Image:
    """Lay one row of weights over an image: the brightness of a cell is its weight, and `vmax` is the brightest.

    The web viewer uses the same formula (viewer/image.js).
    """
    assert attention_map.key.grid is not None, "only cells can be laid over an image"
    rows, columns = attention_map.key.grid
    light = weights[-rows * columns :].reshape(rows, columns).float().numpy()
    light = light / max(float(light.max()) if vmax is None else vmax, 1e-9)
    high, wide = image.shape[:2]
    scale = OVERLAY_PIXELS / max(high, wide)
    size = (max(1, round(wide * scale)), max(1, round(high * scale)))
    base = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image[..., :3]).convert("RGB")
    shine = Image.fromarray(light.clip(0, 1).astype(np.float32)).resize(size, Image.Resampling.NEAREST)
    mask = MIN_BRIGHTNESS + (1 - MIN_BRIGHTNESS) * np.asarray(shine, dtype=np.float32)[..., None]
    # some brightness is also added, because scaling alone would not show on a dark image
    lit = np.asarray(base.resize(size, Image.Resampling.NEAREST), dtype=np.float32) * mask + MAX_ADDED_BRIGHTNESS * (
        mask - MIN_BRIGHTNESS
    )
    return Image.fromarray(lit.clip(0, 255).astype(np.uint8))
