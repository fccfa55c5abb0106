"""The color scales: zero is the ground of the page, light or dark, and lightness goes one way in even steps."""

import re
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from saccade.render.colors import (
    DARK_BACKGROUND,
    FIGURE_BACKGROUND,
    LIGHT_BACKGROUND,
    diverging_colormap,
    sequential_colormap,
    weights_to_rgba,
)
from saccade.render.grid import COLOR_LEVELS, class_to_colors
from saccade.render.page import Paragraph, Section, render_page


def lightness(color: str) -> float:
    """CIE L*, from 0 to 100, by the formula of the standard."""
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    y = 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
    return 116 * y ** (1 / 3) - 16 if y > 216 / 24389 else y * 24389 / 27


def test_the_grounds_are_those_of_the_pages():
    style = (files("saccade.viewer") / "style.css").read_text(encoding="utf-8")
    for text in (style, render_page("x", [Section("a", [Paragraph("b")])])):
        assert re.findall(r"--ground: (#\w+)", text)[:2] == [LIGHT_BACKGROUND, DARK_BACKGROUND]


def test_zero_is_the_ground_itself():
    assert class_to_colors("m0") == (LIGHT_BACKGROUND, DARK_BACKGROUND)
    assert class_to_colors(f"d{COLOR_LEVELS // 2}") == (LIGHT_BACKGROUND, DARK_BACKGROUND)
    assert sequential_colormap()(0.0)[:3] == diverging_colormap()(0.5)[:3] == to_rgb(FIGURE_BACKGROUND)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_more_weight_is_further_from_the_ground_in_even_steps(dark):
    found = [lightness(class_to_colors(f"m{level}")[dark]) for level in range(COLOR_LEVELS + 1)]
    steps = [abs(b - a) for a, b in pairwise(found)]
    assert sorted(found, reverse=not dark) == found
    assert abs(found[-1] - found[0]) > 70
    assert max(steps) < 2.2 * (sum(steps) / len(steps))
    below = [lightness(class_to_colors(f"d{level}")[dark]) for level in range(COLOR_LEVELS // 2, -1, -1)]
    above = [lightness(class_to_colors(f"d{level}")[dark]) for level in range(COLOR_LEVELS // 2, COLOR_LEVELS + 1)]
    for side in (below, above):
        assert sorted(side, reverse=not dark) == side
        assert abs(side[-1] - side[0]) > 60


def test_a_picture_for_any_ground_leaves_zero_transparent():
    drawn = weights_to_rgba(np.array([[0.0, 0.5, 1.0]]))
    assert drawn[0, :, 3].tolist() == [0, 128, 255]
    red, blue = weights_to_rgba(np.array([[1.0, -1.0]]))[0, :, :3].tolist()
    assert red[0] > red[2]
    assert blue[2] > blue[0]
