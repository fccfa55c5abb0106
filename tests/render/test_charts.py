"""SVG charts and heat maps: every value that is drawn, colored or shown as a tooltip is read back and compared with the input."""

import math
import random
import re
import xml.etree.ElementTree as ElementTree

import pytest
import torch
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager
from matplotlib.figure import Figure

from saccade.render import fonts
from saccade.render.charts import downsample, fit_axis, render_line_chart
from saccade.render.grid import COLOR_LEVELS, choose_text_color, class_to_colors
from saccade.render.heatmap import render_confusion_matrix, render_vector_heatmap
from saccade.render.panel_grid import plot_heatmap
from saccade.render.plot import Heatmap, LineChart, save_panels
from saccade.render.svg import format_token

SVG = "{http://www.w3.org/2000/svg}"


def tips(svg, tag):
    return [e.findtext(f"{SVG}title", "") for e in ElementTree.fromstring(svg).iter(f"{SVG}{tag}") if len(e)]


def test_a_heat_map_says_its_weights():
    weights = torch.rand(5, 7)
    svg = render_vector_heatmap(weights, list("abcde"), list("tuvwxyz"), title="t")
    said = dict(tip.rsplit(": ", 1) for tip in tips(svg, "rect"))
    assert len(said) == 35
    for i, row in enumerate("abcde"):
        for j, column in enumerate("tuvwxyz"):
            assert float(said[f"{row} → {column}"]) == pytest.approx(weights[i, j].item(), abs=5.1e-4)
    picture = ElementTree.fromstring(svg)
    assert picture.get("role") == "img"
    best = "tuvwxyz"[int(weights[2].argmax())]
    assert f"c attends most to {best}" in picture.findtext(f"{SVG}desc", "")


def test_colours_order_as_weights_do():
    """Read the fill of each cell through the style: a larger weight stands out more, on both grounds."""
    weights = torch.linspace(0, 1, 9).view(1, 9)
    svg = render_vector_heatmap(weights, ["q"], list("abcdefghi"), title="t")
    for ground, part in ((1, svg.split("@media")[1]), (0, svg.split("@media")[2])):
        fills = dict(re.findall(r"\.heat \.(m\d+)\{fill:(#\w+)\}", part))
        cells = re.findall(r'class="cell (m\d+)"', svg)
        far = [abs(ground - luminance(fills[name])) for name in cells]
        assert far == sorted(far)
        assert len(set(far)) == 9


def luminance(shade):
    parts = [int(shade[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    line = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(f * c for f, c in zip((0.2126, 0.7152, 0.0722), line, strict=True))


def test_numbers_can_be_read_on_every_colour():
    for name in [f"{kind}{i}" for kind in "md" for i in range(COLOR_LEVELS + 1)]:
        for shade in class_to_colors(name):
            text = {"#000": 0.0, "#fff": 1.0}[choose_text_color(shade)]
            low, high = sorted([luminance(shade), text])
            assert (high + 0.05) / (low + 0.05) >= 4.5


@pytest.mark.parametrize(("count", "drawn"), [(64, 64), (65, 65), (200, 96)])
def test_large_maps_have_no_names_and_are_cut_with_a_note(count, drawn):
    svg = render_vector_heatmap(torch.rand(count, count), ["row"] * count, ["column"] * count, title="t")
    assert len(tips(svg, "rect")) == drawn**2
    assert (">column</text>" in svg) is (count <= 64)
    assert (f"96 of {count}" in svg) is (count > drawn)


def test_weights_that_are_negative_or_no_numbers():
    svg = render_vector_heatmap([[-0.5, 0.25, math.nan]], ["q"], ["a", "b", "c"], title="t")
    assert tips(svg, "rect") == ["q → a: -0.500", "q → b: 0.250", "q → c: nan"]
    assert re.findall(r'class="cell (\w+)"', svg) == ["d0", "d48", "none"]
    with pytest.raises(ValueError, match=r"2 and 1 names.*shape \(1, 2\).*weights\[0, 0\]"):
        render_vector_heatmap([[1.0, 0.0]], ["a", "b"], ["c"], title="t")


def test_tokens_are_shown_readably():
    assert format_token(" a\n\t", 9) == "␣a↵⇥"
    assert format_token("مرحبا", 9) == "\u2068مرحبا\u2069"
    assert format_token("\u2069\u202eab", 99) == "⟨2069⟩⟨202E⟩ab"
    svg = render_vector_heatmap([[1.0]], ["שלום"], ["x" * 900], title="t")
    assert tips(svg, "rect") == ["\u2068שלום\u2069 → " + "x" * 23 + "…: 1.000"]


def test_a_confusion_matrix_says_its_counts():
    counts = [[5, 1, 0], [2, 11, 3], [0, 0, 7]]
    names = ["ham", "spam", "eggs"]
    said = tips(render_confusion_matrix(counts, names, title="t"), "rect")
    wanted = [
        f"{names[i]}, predicted {names[j]}: {n} ({n / sum(line):.1%})"
        for i, line in enumerate(counts)
        for j, n in enumerate(line)
    ]
    assert said == wanted


def test_a_curve_says_its_points():
    points = [(1.0, 0.123456), (20_000.0, -3.5), (40_000.0, 7e-9)]
    said = tips(render_line_chart({"loss": points}, title="t", x="step", y="loss"), "circle")
    read = [tuple(float(x.replace(",", "")) for x in re.findall(r"(-?[\d.,]*\de?-?\d*)(?::|$)", tip)) for tip in said]
    assert read == points


def test_points_are_drawn_where_the_axes_say():
    """The place of each point, read through the ticks: two ticks of an axis fix its scale."""
    points = [(float(i), 0.3 + 0.01 * i * i) for i in range(30)]
    picture = ElementTree.fromstring(render_line_chart({"a": points}, title="t", x="step", y="y"))
    texts = [
        (float(e.attrib["x"]), float(e.attrib["y"]), e.get("class"), e.text or "") for e in picture.iter(f"{SVG}text")
    ]
    across = [(x, float(text)) for x, _, kind, text in texts if kind == "mid"]
    up = [(y - 4, float(text)) for _, y, kind, text in texts if kind == "end" and text != "step"]
    spots = [(float(e.attrib["cx"]), float(e.attrib["cy"])) for e in picture.iter(f"{SVG}circle")]
    for (x, y), (cx, cy) in zip(points, spots, strict=True):
        assert read_off(across, cx) == pytest.approx(x, abs=0.02)
        assert read_off(up, cy) == pytest.approx(y, abs=0.02)


def read_off(ticks, at):
    (a, low), (b, high) = ticks[0], ticks[-1]
    return low + (at - a) / (b - a) * (high - low)


def test_thinning_keeps_the_extremes_of_every_stretch():
    noise = random.Random(5)
    points = [(float(i), noise.gauss(0, 1)) for i in range(50_000)]
    points[31_415] = (31_415.0, 99.0)
    points[27_182] = (27_182.0, -99.0)
    kept = downsample(points)
    assert len(kept) <= 500
    assert kept == sorted(set(kept))
    assert set(kept) <= set(points)
    assert {points[0], points[-1], points[31_415], points[27_182]} <= set(kept)
    for start in range(0, 49_000, 1000):  # a stretch of 1000 holds at least three whole bins of about 200
        inside = [y for x, y in kept if start <= x < start + 1000]
        middle = [y for x, y in points if start + 250 <= x < start + 750]
        assert min(inside) <= min(middle)
        assert max(inside) >= max(middle)


def test_what_is_no_number_leaves_a_gap():
    points = [(1.0, 2.0), (2.0, 3.0), (3.0, math.nan), (4.0, math.inf), (5.0, 1.0)]
    svg = render_line_chart({"a": points}, title="t", x="step", y="y")
    assert svg.count("<polyline") == 2
    assert "2 points are not finite numbers" in svg
    many = [(float(i), math.nan if i % 2 else 1.0 * i) for i in range(9000)]
    assert len(tips(render_line_chart({"a": many}, title="t", x="step", y="y"), "circle")) <= 500
    with pytest.raises(ValueError, match="no point to draw, because none of 1 is finite"):
        render_line_chart({"a": [(1.0, math.nan)]}, title="t", x="step", y="y")


@pytest.mark.parametrize(
    "values", [[0.0], [5.0, 5.0], [-3e-7, 2e-7], [1, 49_999], [1e-9, 1e9], [-7.2, -7.1], [0.1, 0.3]]
)
def test_axes_hold_all_values_between_round_ticks(values):
    found = fit_axis(values, max_steps=5)
    assert found.low <= min(values) + 1e-12
    assert found.high >= max(values) - 1e-12
    ticks = found.ticks()
    assert 2 <= len(ticks) <= 6
    assert f"{found.step:.3e}"[:5] in ("1.000", "2.000", "5.000")
    assert ticks[0] == pytest.approx(found.low)
    assert ticks[-1] == pytest.approx(found.high)
    if min(values) == max(values):
        assert found.low >= 0, "a flat line is measured from zero, and nothing below it could have been"


def test_a_font_of_the_system_draws_what_the_usual_one_lacks(tmp_path, monkeypatch):
    """The font is made here, and found as one that was installed after matplotlib made its list."""
    made = tmp_path / "two.ttf"
    builder = FontBuilder(1000)
    builder.setupGlyphOrder([".notdef", "sun"])
    builder.setupCharacterMap({ord("日"): "sun"})
    pen = TTGlyphPen(None)
    for move, at in zip((pen.moveTo, pen.lineTo, pen.lineTo), ((0, 0), (900, 0), (900, 900)), strict=True):
        move(at)
    pen.closePath()
    builder.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "sun": pen.glyph()})
    builder.setupHorizontalMetrics({".notdef": (1000, 0), "sun": (1000, 0)})
    builder.setupHorizontalHeader(ascent=900, descent=-100)
    builder.setupNameTable({"familyName": "Two", "styleName": "Regular"})
    builder.setupOS2(usWeightClass=400)
    builder.setupPost()
    builder.save(made)
    entries = [entry for entry in font_manager.fontManager.ttflist if entry.name == fonts.DEFAULT_FONT]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", entries)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(made)])
    fonts.list_system_fonts.cache_clear()
    try:
        assert fonts.find_covering_fonts("日 a") == ([fonts.DEFAULT_FONT, "Two"], [])
        assert fonts.find_covering_fonts("日本") == ([fonts.DEFAULT_FONT, "Two"], ["本"])
        save_panels(tmp_path / "map.png", [Heatmap("日", torch.rand(1, 1), tick_labels=(["日"], ["a"]))])
        figure = plot_heatmap(torch.eye(2), ["日", "b"], ["a", "b"], "日")
        assert fonts.choose_fonts(figure) == ""
        for text in (*figure.texts, *figure.axes[0].get_yticklabels()):
            assert text.get_fontfamily() == [fonts.DEFAULT_FONT, "Two"]
    finally:
        fonts.list_system_fonts.cache_clear()


def test_letters_that_no_font_has_are_named_with_the_package_that_brings_them(tmp_path, monkeypatch):
    monkeypatch.setattr(fonts, "list_system_fonts", tuple)
    names = (["수", "日"], ["ไ", "م"])
    with pytest.warns(fonts.FontWarning) as warned:
        save_panels(tmp_path / "map.png", [Heatmap("수 年月本", torch.rand(2, 2), tick_labels=names)])
    assert (tmp_path / "map.png").stat().st_size > 1000
    said = str(warned[0].message)
    assert "and 1 other character;" in said
    assert "fonts-noto-cjk and fonts-noto-core" in said
    assert not fonts.format_missing_glyphs(fonts.find_covering_fonts("√2 → é м")[1])


def test_one_description_is_drawn_on_a_page_and_in_a_file(tmp_path):
    """The tooltips of the page and the pixels of the file come from the same matrix and the same lines."""
    heatmap = Heatmap("t", torch.tensor([[0.0, 0.25]]), "layer", "head", vmax=1.0, tick_labels=(["q"], ["a", "b"]))
    assert tips(heatmap.to_svg(), "rect") == ["q → a: 0.000", "q → b: 0.250"]
    assert ">layer ↓</text>" in heatmap.to_svg()
    assert tips(Heatmap("t", torch.eye(1)).to_svg(), "rect") == ["0 → 0: 1.000"]
    chart = LineChart("t", torch.tensor([1.0, 2.0]), {"a": torch.tensor([0.5, 4.0])}, axis_labels=("layer", ""))
    assert tips(chart.to_svg(), "circle") == ["a, layer 1: 0.5", "a, layer 2: 4"]
    save_panels(tmp_path / "both.png", [heatmap, chart])
    with pytest.raises(ValueError, match="neither a logarithmic axis nor separate data points"):
        LineChart("t", chart.x, chart.lines, log_y=True).to_svg()


def test_a_large_heat_map_is_one_image_with_the_names_of_both_axes():
    svg = Heatmap("t", torch.rand(5, 60)).to_svg()
    assert svg.count("<image") == 1
    assert "query ↓, key →; no color is 0" in svg
    assert ">59</text>" in svg


def test_the_color_scale_of_a_panel_ends_at_vmax():
    figure = Figure()
    for most, end in ((None, 0.25), (1.0, 1.0)):
        axis = figure.subplots()
        Heatmap("", torch.tensor([[0.0, 0.25]]), vmax=most).draw(axis, figure)
        assert axis.images[0].get_clim() == (0.0, end)
