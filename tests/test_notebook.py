"""What a notebook shows: scores, results, reports, patterns and looks as tables and pictures, and training while it goes on."""

import re
import sys
from types import SimpleNamespace

import pytest
import torch

import saccade
from saccade import progress
from saccade.attention import CAUSAL, Global, ScaledDot, Sight, Window, watch
from saccade.metrics import Score
from saccade.models.build import new
from saccade.models.families import gpt2
from saccade.models.model import LoadReport
from saccade.notebook import get_notebook_display, html_heatmap
from saccade.text.train import train_tokenizer
from saccade.training import notebook as showing
from saccade.training.events import DevEvaluation, Message, RunResult

SCORE = Score("accuracy", 0.8934, 0.8791, 0.9072, 1821, "engine:plain")


def cells(html: str) -> list[str]:
    return re.findall(r"<td[^>]*><bdi>(.*?)</bdi></td>", html)


def test_a_score_is_a_row_and_a_result_a_table():
    assert cells(SCORE._repr_html_()) == ["accuracy", "0.893", "0.879–0.907", "1,821", "engine:plain"]
    result = RunResult("end of schedule", 1200, {"dev": [SCORE], "test": [SCORE]}, notes=("dev: <low>.",))
    assert cells(result._repr_html_())[0::6] == ["dev", "test"]
    assert "finished after 1,200 steps (end of schedule). dev: &lt;low&gt;." in result._repr_html_()
    assert str(result).splitlines() == [
        "finished after 1,200 steps (end of schedule)",
        f"dev   {SCORE}",
        f"test  {SCORE}",
        "dev: <low>.",
    ]


def test_reports_are_read_line_by_line():
    assert "loaded     47 tensors\n" in LoadReport("47 tensors")._repr_html_()
    found = saccade.check(torch.nn.Linear(4, 4))
    assert cells(found._repr_html_())[1::3] == [one.status for one in found.findings]


def test_a_pattern_is_drawn():
    pattern = Window(1, 1) | Global(1)
    assert pattern.draw(8) in pattern._repr_html_()
    assert "Window(" in pattern._repr_html_()


def test_a_look_says_its_sizes_and_draws_the_mean_of_its_heads():
    q, k, v = torch.randn(3, 1, 2, 5, 4).unbind(0)
    with watch(mechanism := ScaledDot()) as looks:
        mechanism(q, k, v, Sight(CAUSAL))
    assert repr(looks[0]) == f"Look({looks[0].name}: batch 1, head 2, query 5, key 5)"
    shown = re.findall(r"<title>(\d) → (\d): (.*?)</title>", looks[0]._repr_html_())
    weights = mechanism.weights(q, k, Sight(CAUSAL))[0].mean(0).tolist()
    assert shown == [(str(i), str(j), f"{w:.3f}") for i, row in enumerate(weights) for j, w in enumerate(row)]
    assert "the mean of 2 heads" in looks[0]._repr_html_()


def test_one_map_of_a_model_is_shown_by_itself():
    model = new("gpt2", gpt2.Config(vocab=30, width=8, layers=1, heads=2, max_positions=16)).eval()
    model.tokenizer = train_tokenizer(["a cat sat on a mat"], "words", 20, token_template="none")
    seen = saccade.look(model, "a cat sat")[0]
    assert repr(seen) == f"AttentionMap({seen.title}: 2 heads, {len(seen.query)} queries, {len(seen.key)} keys)"
    assert "<svg" in seen._repr_html_()


def test_a_large_heatmap_is_an_image_and_a_small_one_has_a_tooltip_for_each_cell():
    large = html_heatmap([[0.5] * 100] * 40, caption="weights")
    assert "40 rows and 100 columns; full color is 0.500" in large
    assert large.count("<image") == 1
    assert html_heatmap([[0.0, 0.0]], caption="none").count(": 0.000</title>") == 2


class Display:
    """IPython's display: what was shown, and how often it was brought up to date."""

    def __init__(self):
        self.shown = []

    def __call__(self, thing, display_id):
        self.shown.append(thing._repr_html_())
        return SimpleNamespace(update=lambda thing: self.shown.append(thing._repr_html_()))


def test_training_shows_its_progress_in_a_notebook_only(tmp_path, monkeypatch):
    display, asked = Display(), {"out": tmp_path / "run", "train": {"max_steps": 3, "eval_every": 1}}
    assert get_notebook_display() is None
    monkeypatch.setattr("saccade.api.train.get_notebook_display", lambda: display)
    monkeypatch.setattr(showing, "MIN_SECONDS_BETWEEN_UPDATES", 0.0)
    result = saccade.train("regress", **asked)
    assert re.match(r"<div[^>]*>\s*<pre", display.shown[0])
    assert any("step 3, epoch" in one for one in display.shown)
    assert "on held-out data" in display.shown[-1]
    assert result.scores["dev"][0].name in display.shown[-1]
    heard = []
    saccade.train("regress", **asked | {"on_event": heard.append})
    assert isinstance(heard[-1], RunResult)


def test_a_kernel_is_a_notebook_and_a_terminal_is_none(monkeypatch):
    show = object()
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=show))
    for kernel, wanted in ((object(), show), (None, None)):
        shell = SimpleNamespace(kernel=kernel)
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda shell=shell: shell))
        assert get_notebook_display() is wanted


def test_progress_keeps_the_last_lines_and_evaluations():
    shown = showing.NotebookProgress(Display())
    for step in range(1, 12):
        shown(Message(f"line {step}"))
        shown(DevEvaluation(step, [SCORE], best=step == 11))
    assert repr(shown).splitlines()[0] == "line 4"
    assert cells(shown._repr_html_())[0] == "4"
    assert "best so far" in shown._repr_html_()


@pytest.mark.parametrize("thing", [SCORE, CAUSAL, LoadReport("nothing")])
def test_what_is_shown_is_whole_html(thing):
    html = thing._repr_html_()
    for tag in ("table", "pre", "tr", "td"):
        assert len(re.findall(rf"<{tag}\b", html)) == html.count(f"</{tag}>")


def test_a_progress_bar_in_a_notebook_needs_no_widgets(monkeypatch):
    shown = []

    class Handle:
        def update(self, value):
            shown.append((repr(value), value._repr_html_()))

    monkeypatch.setattr(progress, "get_notebook_display", lambda: lambda value, display_id: Handle())
    monkeypatch.setattr(progress, "MIN_SECONDS_BEFORE_BAR", 0)
    monkeypatch.setattr(progress, "MIN_SECONDS_BETWEEN_UPDATES", 0)
    assert list(progress.track("ab", total=2)) == ["a", "b"]
    assert shown == [
        ("1 of 2", '<progress value="1" max="2"></progress> 1 of 2'),
        ("2 of 2", '<progress value="2" max="2"></progress> 2 of 2'),
        ("", ""),
    ]
