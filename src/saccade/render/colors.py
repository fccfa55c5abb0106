"""Color scales that begin at the ground they are drawn on: a weight of zero leaves no mark, and what stands out is weight.

The steps of lightness are even. Scales for numbers with a sign have the ground in their middle, blue below and red above it.
"""

from functools import cache

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

LIGHT_BACKGROUND, DARK_BACKGROUND = "#fdfcf9", "#16181b"  # of our pages
FIGURE_BACKGROUND = "#ffffff"  # of a figure that matplotlib draws
COLORMAP_LEVELS = 257  # odd, so that the ground is the middle of a scale with a sign

LIGHT_SEQUENTIAL = ("#cca8d8", "#8f4aa4", "#380a45")
DARK_SEQUENTIAL = ("#55325f", "#9b5caa", "#efc9f7")
LIGHT_DIVERGING = (("#0a3a75", "#6ba3d6"), ("#e28c70", "#8a1320"))
DARK_DIVERGING = (("#a9d4ff", "#35699b"), ("#a34a34", "#ffbca6"))
VIOLET, BLUE, RED = (0x9D, 0x4E, 0xB4), (0x3B, 0x82, 0xC4), (0xCF, 0x5A, 0x45)  # as readable on dark as on light


@cache
def sequential_colormap(background: str = FIGURE_BACKGROUND) -> LinearSegmentedColormap:
    """From nothing, which is the ground, to the largest weight."""
    inks = DARK_SEQUENTIAL if background == DARK_BACKGROUND else LIGHT_SEQUENTIAL
    return LinearSegmentedColormap.from_list("weight", [background, *inks], N=COLORMAP_LEVELS)


@cache
def diverging_colormap(background: str = FIGURE_BACKGROUND) -> LinearSegmentedColormap:
    """From the most negative number over zero, which is the ground, to the most positive."""
    below, above = DARK_DIVERGING if background == DARK_BACKGROUND else LIGHT_DIVERGING
    return LinearSegmentedColormap.from_list("signed", [*below, background, *above], N=COLORMAP_LEVELS)


def weights_to_rgba(fractions: np.ndarray) -> np.ndarray:
    """Shares from -1 to 1 as RGBA bytes for a ground that is not known: zero is transparent, the largest is opaque ink."""
    signed = fractions.min(initial=0.0) < 0
    ink = np.where(fractions[..., None] < 0, BLUE, RED) if signed else np.broadcast_to(VIOLET, (*fractions.shape, 3))
    alpha = (np.abs(fractions).clip(0, 1) * 255).round()
    return np.concatenate([ink, alpha[..., None]], axis=-1).astype(np.uint8)
