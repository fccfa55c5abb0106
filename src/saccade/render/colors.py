"""Color maps for attention weights: zero has the color of the background, and larger weights stand out more.

Lightness changes in even steps. Diverging color maps have the background in their middle, blue below and red above it.
"""

from functools import cache

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

LIGHT_BACKGROUND, DARK_BACKGROUND = "#fdfcf9", "#16181b"  # of pages
FIGURE_BACKGROUND = "#ffffff"  # of matplotlib figures
COLORMAP_LEVELS = 257  # odd, so that zero is the middle of a diverging color map

LIGHT_SEQUENTIAL = ("#cca8d8", "#8f4aa4", "#380a45")
DARK_SEQUENTIAL = ("#55325f", "#9b5caa", "#efc9f7")
LIGHT_DIVERGING = (("#0a3a75", "#6ba3d6"), ("#e28c70", "#8a1320"))
DARK_DIVERGING = (("#a9d4ff", "#35699b"), ("#a34a34", "#ffbca6"))
VIOLET, BLUE, RED = (0x9D, 0x4E, 0xB4), (0x3B, 0x82, 0xC4), (0xCF, 0x5A, 0x45)  # readable on dark and on light pages


@cache
def sequential_colormap(background: str = FIGURE_BACKGROUND) -> LinearSegmentedColormap:
    """From the background at zero to the color of the largest weight."""
    colors = DARK_SEQUENTIAL if background == DARK_BACKGROUND else LIGHT_SEQUENTIAL
    return LinearSegmentedColormap.from_list("weight", [background, *colors], N=COLORMAP_LEVELS)


@cache
def diverging_colormap(background: str = FIGURE_BACKGROUND) -> LinearSegmentedColormap:
    """From the most negative value in blue, over the background at zero, to the most positive in red."""
    below, above = DARK_DIVERGING if background == DARK_BACKGROUND else LIGHT_DIVERGING
    return LinearSegmentedColormap.from_list("signed", [*below, background, *above], N=COLORMAP_LEVELS)


def weights_to_rgba(fractions: np.ndarray) -> np.ndarray:
    """Values from -1 to 1 as RGBA bytes for any background: zero is transparent, the largest value is opaque."""
    signed = fractions.min(initial=0.0) < 0
    ink = np.where(fractions[..., None] < 0, BLUE, RED) if signed else np.broadcast_to(VIOLET, (*fractions.shape, 3))
    alpha = (np.abs(fractions).clip(0, 1) * 255).round()
    return np.concatenate([ink, alpha[..., None]], axis=-1).astype(np.uint8)
