"""Attention maps as images: the brightness of a cell is its weight, and text is escaped in every plot."""

import base64
import io
import re

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.explain.axis import Axis, Token
from saccade.explain.html_report import write_html_report
from saccade.explain.maps import AttentionMap, AttentionMaps
from saccade.explain.overlay import render_overlays
from saccade.explain.plots import save_attention_plot


def test_the_brightest_place_is_where_the_weight_is():
    picture = np.full((30, 30, 3), 255, np.uint8)
    weights = torch.zeros(1, 1, 9)
    weights[0, 0, 5] = 1.0  # the middle row, on the right
    cells = Axis("cells", tuple(Token(f"{i}") for i in range(9)), (3, 3))
    seen = AttentionMap("m", "image", "decoder", 0, (0,), weights, Axis("output", (Token("ring"),)), cells)
    (view,) = render_overlays(AttentionMaps("x", (seen,), (), image=picture))
    light = np.asarray(view.image.convert("L")).astype(float)
    side = len(light) // 3
    blocks = light[: 3 * side, : 3 * side].reshape(3, side, 3, side).mean((1, 3))
    assert np.unravel_index(blocks.argmax(), (3, 3)) == (1, 2)


def laid_over(weights, picture):
    """Words that attend to the cells of an image, three by three, in one head."""
    cells = Axis("cells", tuple(Token(f"{i}") for i in range(9)), (3, 3))
    words = Axis("output", tuple(Token(f"w{i}") for i in range(weights.size(1))))
    seen = AttentionMap("m", "image", "decoder", 0, (0,), weights, words, cells)
    return AttentionMaps("x", (seen,), (), image=picture)


@pytest.mark.parametrize("shade", [0, 90, 255])
def test_the_brightness_of_a_cell_is_its_weight(shade):
    """Pixel by pixel from the formula: cells have sharp borders and are visible on black and on white."""
    weights = torch.tensor([[[0.0, 0.1, 0.2, 0.3, 0.0, 0.4, 0.0, 0.0, 0.0], [0.05] * 9]])
    for number, view in enumerate(render_overlays(laid_over(weights, np.full((30, 30, 3), shade, np.uint8)))):
        drawn = np.asarray(view.image)[..., 0]
        side = len(drawn) // 3
        for cell in range(9):
            light = float(weights[0, number, cell]) / 0.4  # the largest weight of both words
            mask = 0.15 + 0.85 * light
            wanted = int(min(255, shade * mask + 60 * (mask - 0.15)) + 1e-4)
            row, column = divmod(cell, 3)
            found = drawn[row * side : (row + 1) * side, column * side : (column + 1) * side]
            assert set(np.unique(found).tolist()) <= {wanted, wanted - 1}, (number, cell)


def test_overlays_share_a_scale_and_state_it():
    looks = laid_over(torch.tensor([[[0.8] + [0.025] * 8, [1 / 9] * 9]]), np.full((30, 30, 3), 200, np.uint8))
    first, second = (np.asarray(view.image).max() for view in render_overlays(looks))
    assert second < first / 2  # a uniform word is darker than one that attends to one cell
    assert "the brightest is 0.8," in looks._repr_html_()


def test_heat_maps_of_a_page_are_on_one_scale(tmp_path):
    """A uniform head and a sharp one: their colors are their weights, from 0 to 1."""
    names = Axis("input", tuple(Token(f"t{i}", (i, i + 1), 0) for i in range(4)))
    weights = torch.stack([torch.full((4, 4), 0.25), torch.eye(4)])
    looks = AttentionMaps("x", (AttentionMap("m", "self", "", 0, (0, 1), weights, names, names),), ("abcd",), "a")
    write_html_report(looks, tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    small = [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(one))))[..., 3]
        for one in re.findall(r'<img src="data:image/png;base64,([^"]+)"', text)
    ]
    assert [int(one.max()) for one in small] == [64, 255]
    assert small[1].min() == 0
    assert "full color is 1." in text
    uneven = AttentionMap("m", "self", "", 0, (0, 1), 3 * weights, names, names)
    assert (looks[0].vmax, uneven.vmax) == (1.0, 3.0)


HOSTILE = "<script>alert(1)</script> \"'><img src=x onerror=y> </desc> \u202e $x$"


@pytest.mark.parametrize("size", [1, 46])
def test_text_is_escaped_in_every_plot(size, tmp_path):
    names = Axis("input", tuple(Token(HOSTILE, (0, 1), 0) for _ in range(size)))
    weights = torch.rand(2, size, size).softmax(-1)
    looks = AttentionMaps(
        HOSTILE, (AttentionMap("m", "self", "", 0, (0, 1), weights, names, names),), (HOSTILE,), HOSTILE
    )
    write_html_report(looks, tmp_path / "page.html", title=HOSTILE)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for text in (page, looks._repr_html_()):
        assert "<script" not in text
        assert not re.search(r"<img[^>]*onerror", text)
        assert "\u202e" not in text
        assert not re.search(r"(src|href)=\"(?!data:)", text)
    save_attention_plot(looks.select(heads=[0]), tmp_path / "one.svg")
    assert "<script" not in (tmp_path / "one.svg").read_text(encoding="utf-8")
