"""Looks as pictures: light falls where the weight is, and text stays text in every drawing."""

import re

import numpy as np
import pytest
import torch

from saccade.explain.axis import Axis, Token
from saccade.explain.figures import write_figure
from saccade.explain.gallery import write_gallery
from saccade.explain.looks import Looks, Seen
from saccade.explain.overlay import views


def test_the_brightest_place_is_where_the_weight_is():
    picture = np.full((30, 30, 3), 255, np.uint8)
    weights = torch.zeros(1, 1, 9)
    weights[0, 0, 5] = 1.0  # the middle row, on the right
    cells = Axis("cells", tuple(Token(f"{i}") for i in range(9)), (3, 3))
    seen = Seen("m", "picture", "decoder", 0, (0,), weights, Axis("written", (Token("ring"),)), cells)
    (view,) = views(Looks("x", (seen,), (), picture=picture))
    light = np.asarray(view.image.convert("L")).astype(float)
    side = len(light) // 3
    blocks = light[: 3 * side, : 3 * side].reshape(3, side, 3, side).mean((1, 3))
    assert np.unravel_index(blocks.argmax(), (3, 3)) == (1, 2)


HOSTILE = "<script>alert(1)</script> \"'><img src=x onerror=y> </desc> \u202e $x$"


@pytest.mark.parametrize("size", [1, 46])
def test_text_stays_text_in_every_drawing(size, tmp_path):
    names = Axis("read", tuple(Token(HOSTILE, (0, 1), 0) for _ in range(size)))
    weights = torch.rand(2, size, size).softmax(-1)
    looks = Looks(HOSTILE, (Seen("m", "self", "", 0, (0, 1), weights, names, names),), (HOSTILE,), HOSTILE)
    write_gallery(looks, tmp_path / "page.html", title=HOSTILE)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for text in (page, looks._repr_html_()):
        assert "<script" not in text
        assert not re.search(r"<img[^>]*onerror", text)
        assert "\u202e" not in text
        assert not re.search(r"(src|href)=\"(?!data:)", text)
    write_figure(looks.pick(heads=[0]), tmp_path / "one.svg")
    assert "<script" not in (tmp_path / "one.svg").read_text(encoding="utf-8")
