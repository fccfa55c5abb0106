"""Attention over a picture: what was looked at stays bright, the rest goes dark; one view for each word or head."""

from dataclasses import dataclass

import numpy as np
from PIL import Image
from torch import Tensor

from saccade.explain.looks import Looks, Seen

DARK = 0.15  # how bright the least looked-at cell stays
SIDE = 168  # pixels of a view
MOST = 40  # views


@dataclass(frozen=True)
class View:
    """A picture under one row of weights, and what the row is."""

    name: str
    image: Image.Image


def views(looks: Looks) -> list[View]:
    """Of a writer, what each word looked at; of a reader, what each head of the last layer looked at for the whole picture."""
    if looks.picture is None:
        return []
    by_word = [m for m in looks.maps if m.kind == "picture" and m.key.grid is not None]
    if by_word:
        seen = by_word[-1]
        mean = seen.mean
        return [
            View(name.strip() or name, overlay(looks.picture, mean[i], seen)) for i, name in enumerate(seen.rows[:MOST])
        ]
    whole = [
        m for m in looks.maps if m.key.of == "cells" and m.key.grid is not None and m.kind == "self" and m.side == ""
    ]
    if not whole:
        return []
    seen = whole[-1]
    return [View(seen.called(i), overlay(looks.picture, seen.dense()[i, 0], seen)) for i in range(len(seen.heads))][
        :MOST
    ]


def overlay(picture: np.ndarray, weights: Tensor, seen: Seen) -> Image.Image:
    """One row of weights as light on the picture."""
    assert seen.key.grid is not None, "only cells can be laid over a picture"
    rows, columns = seen.key.grid
    light = weights[-rows * columns :].reshape(rows, columns).float().numpy()
    light = light / max(float(light.max()), 1e-9)
    high, wide = picture.shape[:2]
    scale = SIDE / max(high, wide)
    size = (max(1, round(wide * scale)), max(1, round(high * scale)))
    base = Image.fromarray(picture[..., 0] if picture.shape[-1] == 1 else picture[..., :3]).convert("RGB")
    shine = Image.fromarray((light * 255).astype(np.uint8)).resize(size, Image.Resampling.BICUBIC)
    mask = DARK + (1 - DARK) * np.asarray(shine, dtype=np.float32)[..., None] / 255
    # a dark ground would hide where the light falls, so some of the light is added, too
    lit = np.asarray(base.resize(size, Image.Resampling.NEAREST), dtype=np.float32) * mask + 60 * (mask - DARK)
    return Image.fromarray(lit.clip(0, 255).astype(np.uint8))
