"""Attention over a picture: what was looked at stays bright, the rest goes dark; one view for each word or head."""

from dataclasses import dataclass

import numpy as np
from PIL import Image
from torch import Tensor

from saccade.explain.looks import Looks, Seen

DARK = 0.15  # how bright the least looked-at cell stays
GLOW = 60  # brightness that the most looked-at cell gains
SIDE = 168  # pixels of a view
MOST = 40  # views


@dataclass(frozen=True)
class View:
    """A picture under one row of weights, and what the row is."""

    name: str
    image: Image.Image


def views(looks: Looks) -> list[View]:
    """Of a writer, what each word looked at; of a reader, what each head of the last layer looked at for the whole picture.

    All views have one scale, which ends at the largest weight of any of them, so that they can be compared.
    """
    found = _rows(looks)
    if found is None or looks.picture is None:
        return []
    seen, names, rows = found
    top = _top(seen, rows)
    return [View(name, overlay(looks.picture, row, seen, top=top)) for name, row in zip(names, rows, strict=True)]


def brightness(looks: Looks) -> str:
    """What the brightness of the views stands for, in a sentence."""
    found = _rows(looks)
    top = 0.0 if found is None else _top(found[0], found[2])
    return f"Brightness is weight: the darkest stands for 0, the brightest for {top:.3g}, the largest weight of all these views."


def _rows(looks: Looks) -> tuple[Seen, list[str], Tensor] | None:
    """The map that is laid over the picture, with the name of each view and its row of weights, (views, K)."""
    by_word = [m for m in looks.maps if m.kind == "picture" and m.key.grid is not None]
    if by_word:
        seen = by_word[-1]
        return seen, [name.strip() or name for name in seen.rows[:MOST]], seen.mean[:MOST]
    whole = [
        m for m in looks.maps if m.key.of == "cells" and m.key.grid is not None and m.kind == "self" and m.side == ""
    ]
    if not whole:
        return None
    seen = whole[-1]
    return seen, [seen.called(i) for i in range(len(seen.heads))][:MOST], seen.dense()[:MOST, 0]


def _top(seen: Seen, rows: Tensor) -> float:
    assert seen.key.grid is not None, "only cells can be laid over a picture"
    return float(rows[:, -seen.key.grid[0] * seen.key.grid[1] :].max())


def overlay(picture: np.ndarray, weights: Tensor, seen: Seen, *, top: float | None = None) -> Image.Image:
    """One row of weights as light on the picture, every cell as bright as its weight and none between; `top` is the brightest.

    The page draws the same by the same formula (viewer/picture.js).
    """
    assert seen.key.grid is not None, "only cells can be laid over a picture"
    rows, columns = seen.key.grid
    light = weights[-rows * columns :].reshape(rows, columns).float().numpy()
    light = light / max(float(light.max()) if top is None else top, 1e-9)
    high, wide = picture.shape[:2]
    scale = SIDE / max(high, wide)
    size = (max(1, round(wide * scale)), max(1, round(high * scale)))
    base = Image.fromarray(picture[..., 0] if picture.shape[-1] == 1 else picture[..., :3]).convert("RGB")
    shine = Image.fromarray(light.clip(0, 1).astype(np.float32)).resize(size, Image.Resampling.NEAREST)
    mask = DARK + (1 - DARK) * np.asarray(shine, dtype=np.float32)[..., None]
    # a dark ground would hide where the light falls, so some of the light is added, too
    lit = np.asarray(base.resize(size, Image.Resampling.NEAREST), dtype=np.float32) * mask + GLOW * (mask - DARK)
    return Image.fromarray(lit.clip(0, 255).astype(np.uint8))
