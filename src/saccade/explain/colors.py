"""Color scales that begin at the ground they are drawn on: a weight of zero leaves no mark, and what stands out is weight.

The steps of lightness are even. Scales for numbers with a sign have the ground in their middle, blue below and red above it.
"""

from functools import cache

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

LIGHT_GROUND, DARK_GROUND = "#fdfcf9", "#16181b"  # of our pages
PAPER = "#ffffff"  # of a figure that matplotlib draws
STEPS = 257  # odd, so that the ground is the middle of a scale with a sign

LIGHT_INKS = ("#cca8d8", "#8f4aa4", "#380a45")
DARK_INKS = ("#55325f", "#9b5caa", "#efc9f7")
LIGHT_SIGNED = (("#0a3a75", "#6ba3d6"), ("#e28c70", "#8a1320"))
DARK_SIGNED = (("#a9d4ff", "#35699b"), ("#a34a34", "#ffbca6"))
VIOLET, BLUE, RED = (0x9D, 0x4E, 0xB4), (0x3B, 0x82, 0xC4), (0xCF, 0x5A, 0x45)  # as readable on dark as on light


@cache
def weight_scale(ground: str = PAPER) -> LinearSegmentedColormap:
    """From nothing, which is the ground, to the largest weight."""
    inks = DARK_INKS if ground == DARK_GROUND else LIGHT_INKS
    return LinearSegmentedColormap.from_list("weight", [ground, *inks], N=STEPS)


@cache
def signed_scale(ground: str = PAPER) -> LinearSegmentedColormap:
    """From the most negative number over zero, which is the ground, to the most positive."""
    below, above = DARK_SIGNED if ground == DARK_GROUND else LIGHT_SIGNED
    return LinearSegmentedColormap.from_list("signed", [*below, ground, *above], N=STEPS)


def paint_over(shares: np.ndarray) -> np.ndarray:
    """Shares from -1 to 1 as RGBA bytes for a ground that is not known: zero is transparent, the largest is opaque ink."""
    signed = shares.min(initial=0.0) < 0
    ink = np.where(shares[..., None] < 0, BLUE, RED) if signed else np.broadcast_to(VIOLET, (*shares.shape, 3))
    alpha = (np.abs(shares).clip(0, 1) * 255).round()
    return np.concatenate([ink, alpha[..., None]], axis=-1).astype(np.uint8)
