"""Pages and plots of further analyses, and the selection of rows by the command."""

import json
import xml.etree.ElementTree as tree

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.cli import main
from saccade.explain.ablate import HeadImportance, HeadRef
from saccade.explain.architecture_maps import build_architecture_maps
from saccade.explain.faithfulness import Faithfulness
from saccade.explain.report_sections import (
    make_faithfulness_section,
    make_importance_heatmaps,
    make_importance_sections,
    make_word_charts,
)
from saccade.explain.word_contexts import LayerComparison
from saccade.models.build import new
from saccade.models.families import rnn
from saccade.models.families.transformer import Config
from saccade.render.page import render_page
from saccade.render.plot import save_panels
from saccade.text import train_tokenizer

ONE, OTHER = "the bank of the river", "the bank raised its rates"
HOSTILE = "<script>alert(1)</script>"


def made(family, **head):
    torch.manual_seed(2)
    words = train_tokenizer([ONE, OTHER] * 3, "bpe", 300, token_template="t5" if family == "transformer" else "bos_eos")
    model = new(family, Config(words.vocab, 8, layers=2, heads=2, ffn_width=8, dropout=0.0), **head).eval()
    model.tokenizer = words
    return model


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    model = made("transformer_encoder", head="label", labels=("good", "bad"))
    return str(model.save(tmp_path_factory.mktemp("run") / "run"))


def test_a_word_in_two_contexts_is_plotted_and_reported(run, tmp_path, capsys):
    page, drawn = tmp_path / "word.html", tmp_path / "word.svg"
    assert main(["look", run, ONE, OTHER, "--compare-word", "bank", "--html", str(page), "--png", str(drawn)]) == 0
    out, err = capsys.readouterr()
    assert err.count("wrote") == 2
    text = page.read_text(encoding="utf-8")
    for line in out.splitlines()[1:]:
        assert line.split("cosine similarity ")[1].split(",")[0] in text  # the number of each layer
    assert OTHER in text
    assert "<script" not in text
    tree.parse(drawn)


def test_faithfulness_is_on_the_page_with_its_label(run, tmp_path):
    page = tmp_path / "agree.html"
    assert main(["look", run, ONE, "--faithfulness", "--html", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "Does the prediction depend on it?" in text
    assert text.count(" evidence: ") == 2  # one for each layer
    section = render_page("t", make_faithfulness_section([Faithfulness(HOSTILE, 0.1, float("nan"))]))
    assert "weak evidence" in section
    assert "–" in section
    assert "&lt;script" in section
    assert "<script" not in section


def test_the_importance_of_heads_is_plotted_by_layer_and_head():
    """Two layers of two heads, of which one was not measured: it has no color and no number."""
    some = [(0, 0, 0.1), (0, 1, -0.2), (1, 1, 0.4), (1, None, 0.5)]
    found = [HeadImportance(HeadRef(("m",), "self", "", *at), "accuracy", 0.5, loss, loss, loss) for *at, loss in some]
    (panel,) = make_importance_heatmaps(found)
    assert panel.tick_labels == (["0", "1"], ["all", "0", "1"])
    wanted = [[float("nan"), 0.1, -0.2], [0.5, float("nan"), 0.4]]
    np.testing.assert_allclose(panel.matrix.numpy(), np.array(wanted, dtype=np.float32))
    figures, rows = (render_page("t", [section]) for section in make_importance_sections(found))
    assert "1 → 1: 0.400" in figures
    assert rows.count("<tr>") == 5


def test_a_heat_map_may_have_missing_values(tmp_path):
    switch = HeadRef(("m",), "self", "", 0, 0)
    found = [
        HeadImportance(switch, "f1", 0.5, 0.2, 0.1, 0.3),
        HeadImportance(HeadRef(("m",), "self", "", 1, 1), "f1", 1, 1, 1, 1),
    ]
    with Image.open(save_panels(tmp_path / "worth.png", make_importance_heatmaps(found))) as image:
        assert len(np.unique(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0)) > 10


def test_ablation_writes_its_page_and_its_plot(run, tmp_path, capsys):
    data = tmp_path / "data.tsv"
    data.write_text(f"text\tlabel\n{ONE}\tgood\n{OTHER}\tbad\n{ONE} now\tgood\n", encoding="utf-8")
    files = ["--html", str(tmp_path / "worth.html"), "--png", str(tmp_path / "worth.png")]
    assert main(["look", run, "--ablate", "--data", str(data), "--bootstrap-samples", "4", *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (tmp_path / "worth.html").read_text(encoding="utf-8").count("<tr>") == len(lines) + 1
    with Image.open(tmp_path / "worth.png") as image:
        assert min(image.size) > 100


def test_the_positions_and_patterns_of_a_model_are_plotted(run, tmp_path, capsys):
    """An encoder has the full pattern, a decoder the causal one; the positions are those of the model."""
    assert (
        main(["look", run, "--architecture", "--png", str(tmp_path / "code.svg"), "--html", str(tmp_path / "a.html")])
        == 0
    )
    assert "attention pattern" in capsys.readouterr().out
    tree.parse(tmp_path / "code.svg")
    assert "positions" in (tmp_path / "a.html").read_text(encoding="utf-8")
    model = made("transformer")
    panels = {one.title: one.matrix for one in build_architecture_maps(model, 7)}
    assert len(panels) == 4
    patterns = {title: matrix for title, matrix in panels.items() if "attention pattern" in title}
    assert len(patterns) == 2
    for title, matrix in patterns.items():
        assert torch.equal(matrix, torch.ones(7, 7).tril() if "decoder" in title else torch.ones(7, 7))
    code = next(matrix for title, matrix in panels.items() if "positions" in title)
    assert torch.equal(code, model.body.encoder.position.to_matrix(7))
    with pytest.raises(ValueError, match="no stack of layers"):
        build_architecture_maps(new("rnn", rnn.Config(vocab=9, width=4, layers=1)))


def test_a_word_of_dollars_is_no_formula(tmp_path):
    steps = [LayerComparison(0, 1.0, 0.0), LayerComparison(1, 0.9, 0.3)]
    assert save_panels(tmp_path / "dollar.png", make_word_charts(steps, r"$\frac$")).is_file()


def test_rows_are_selected_by_the_command_and_wrong_flags_are_refused(run, capsys):
    assert main(["look", run, ONE, "--query", "1", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["heads"]
    for wrong, said in (
        ([ONE, "--query", "99"], "Row 99 does not exist; the maps have"),
        ([ONE, "--query", "-1"], "Row -1 does not exist"),
        ([ONE, "--architecture"], "plots the model alone"),
        ([ONE, OTHER, "--compare-word", "bank", "--safetensors", "x"], "--safetensors stores attention maps"),
    ):
        assert main(["look", run, *wrong]) != 0
        assert said in capsys.readouterr().err
