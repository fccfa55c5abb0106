"""Plots of heads and gates: token labels, a shared scale for comparable panels, and a color bar."""

import warnings

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from saccade.cli.commands.look import LookOutputs, _write_files
from saccade.cli.font_warnings import report_missing_fonts
from saccade.explain import plots
from saccade.explain.axis import Axis, Token, make_numbered_axis
from saccade.explain.maps import AttentionMap, AttentionMaps
from saccade.render import fonts
from saccade.render.panel_grid import Panel, PanelGroup, make_shared_scale, plot_heatmap, plot_panels

WORDS = ("the", "cat", "$at", "")


def axis(of="input", words=WORDS):
    return Axis(of, tuple(Token(word, (0, 1), 0) for word in words))


def attention(layer, weights):
    return AttentionMap(f"l{layer}", "self", "", layer, tuple(range(len(weights))), weights, axis(), axis())


def gate():
    weights = torch.rand(2, 4, 6, generator=torch.Generator().manual_seed(0))
    return AttentionMap(
        "g", "gate", "encoder", 0, (0, 1), weights, axis(), make_numbered_axis("units", 6), gates=("reset", "update")
    )


def drawn(looks, tmp_path, monkeypatch) -> Figure:
    """The figure that the function saves."""
    kept = []
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: kept.append(figure) or path)
    plots.save_attention_plot(looks, tmp_path / "x.png")
    return kept[0]


def panels(figure):
    return [one for one in figure.axes if one.images]


def names(axis):
    return [text.get_text() for text in axis.get_xticklabels()], [text.get_text() for text in axis.get_yticklabels()]


def test_all_heads_have_names_one_scale_and_a_color_bar(tmp_path, monkeypatch):
    even, sharp = torch.full((1, 4, 4), 0.25), torch.eye(4)[None]
    looks = AttentionMaps("x", (attention(0, torch.cat([even, sharp])), attention(1, torch.cat([sharp, even]))), ("t",))
    figure = drawn(looks, tmp_path, monkeypatch)
    assert [one.get_title() for one in panels(figure)] == ["head 0", "head 1", "head 0", "head 1"]
    assert {one.images[0].get_clim() for one in panels(figure)} == {(0.0, 1.0)}
    want = ["the", "cat", "$at", "∅"]
    assert all(names(one)[0] == want for one in panels(figure))
    assert [names(one)[1] for one in panels(figure)] == [want, [], want, []]
    for one, weights in zip(panels(figure), (even, sharp, sharp, even), strict=True):
        assert np.array_equal(one.images[0].get_array(), weights[0].numpy())
    assert len(figure.axes) == 4 + 1


def test_gates_are_plotted_next_to_attention_with_a_separate_scale(tmp_path, monkeypatch):
    figure = drawn(AttentionMaps("x", (attention(0, torch.eye(4)[None] / 2), gate()), ("t",)), tmp_path, monkeypatch)
    assert [one.get_title() for one in panels(figure)] == ["head 0", "reset gate", "update gate"]
    assert [one.images[0].get_clim()[1] for one in panels(figure)][1:] == [1.0, 1.0]
    assert names(panels(figure)[1]) == (["the", "cat", "$at", "∅"], [str(i) for i in range(6)])
    assert np.array_equal(panels(figure)[2].images[0].get_array(), gate().weights[1].T.numpy())
    assert len(figure.axes) == 3 + 2


def test_labels_are_thinned_and_a_note_says_so():
    many = [f"w{i}" for i in range(90)]
    heads = [Panel(f"head {head}", torch.eye(90), many, many) for head in range(2)]
    figure = plot_panels([PanelGroup("layer 0", heads, make_shared_scale("weight", [heads[0].values]))])
    across, up = names(panels(figure)[0])
    every = int(across[1].removeprefix("w"))
    assert across == up == many[::every]
    assert every > 1
    assert any(f"one of {every} tokens is labeled" in text.get_text() for text in figure.texts)


def test_one_head_alone_has_all_its_names():
    many = [f"w{i}" for i in range(90)]
    figure = plot_heatmap(torch.eye(90), many, many, "layer 0, head 0")
    assert names(panels(figure)[0]) == (many, many)
    assert not any("labeled" in text.get_text() for text in figure.texts)


def test_a_shared_scale_ends_at_the_largest_value():
    assert make_shared_scale("w", [torch.tensor([[0.1]]), torch.tensor([[0.4]])]).vmax == pytest.approx(0.4)
    assert make_shared_scale("w", [torch.tensor([[0.1]]), torch.tensor([[-0.4]])]).signed


def test_the_command_names_characters_that_no_font_has(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fonts, "list_system_fonts", tuple)
    words = axis(words=("日", "本"))
    looks = AttentionMaps("x", (AttentionMap("l", "self", "", 0, (0,), torch.eye(2)[None], words, words),), ("日本",))
    assert _write_files(looks, None, [], LookOutputs(png=str(tmp_path / "x.png"))) == [f"wrote {tmp_path / 'x.png'}"]
    said = capsys.readouterr().err
    assert said.startswith("saccade look: No font on this machine has 日 本; boxes are drawn instead.")
    assert "fonts-noto-cjk" in said


def test_other_warnings_stay_warnings():
    with pytest.warns(RuntimeWarning, match="something else"), report_missing_fonts("look"):
        warnings.warn("something else", RuntimeWarning, stacklevel=1)
