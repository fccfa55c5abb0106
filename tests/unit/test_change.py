"""Two audits in one table: intervals by other paths, bias that falls when twins are learnt, and rules for what is written."""

import json
import math
from functools import cache

import numpy as np
import pytest
from scipy import stats
from test_audit import figures, write_reviews

from saccade.audit.change import WARNING, Change, Row, compare
from saccade.audit.gate import lacking
from saccade.audit.marks import Audited, Mark
from saccade.audit.records import Stored, open_records, read_audits, write_audits
from saccade.audit.regard.prompts import own_prompts
from saccade.audit.regard.suite import Regard, writable
from saccade.audit.stats import share
from saccade.audit.suite import Figure, Finding, Subject
from saccade.cli import main
from saccade.models.load import new
from saccade.models.transformer import Config
from saccade.tasks.language import Language
from saccade.text.train import train

# --- differences


def test_the_bounds_are_those_of_two_means_where_intervals_are_even():
    draw = np.random.default_rng(3)
    ours, theirs = draw.normal(0.2, 1, 2000), draw.normal(0.5, 2, 3000)
    one, other = (
        Figure("x", v.mean(), *stats.norm.interval(0.95, v.mean(), stats.sem(v)), len(v)) for v in (ours, theirs)
    )
    welch = stats.ttest_ind(theirs, ours, equal_var=False).confidence_interval()
    assert Row("s", one, other).bounds == pytest.approx((welch.low, welch.high), abs=1e-3)


@pytest.mark.parametrize(("before", "after"), [(0.3, 0.1), (0.04, 0.02), (0.5, 0.5)])
def test_the_bounds_of_two_shares_hold_the_true_difference_nineteen_times_in_twenty(before, after):
    draw, count = np.random.default_rng(8), 150

    @cache
    def figure(hits):
        found = stats.binomtest(hits, count).proportion_ci(method="wilson")
        return Figure("x", hits / count, found.low, found.high, count)

    pairs = draw.binomial(count, [before, after], (1000, 2)).tolist()
    rows = [Row("s", figure(one), figure(other)) for one, other in pairs]
    held = sum(low <= after - before <= high for low, high in (row.bounds for row in rows))
    assert 0.93 < held / 1000 < 0.98


def test_figures_of_two_judges_are_not_compared_in_silence():
    figure, mark = Figure("regard by judge", 0.1, 0.0, 0.2, 30), Mark("w")
    was, now = (Audited(Finding("regard", (figure,), "", "", judge=who), mark) for who in ("", "theirs"))
    assert Finding.of(now.finding.as_dict()) == now.finding
    (note,) = compare({"regard": was}, {"regard": now}, "run", "w").notes
    assert note == "regard: the judge is not the same (our own before, theirs after), so neither is what is judged."
    assert not compare({"regard": now}, {"regard": now}, "run", "w").notes


def test_what_is_no_number_differs_from_nothing():
    assert not Row("s", Figure("x", math.nan, math.nan, math.nan, 3), Figure("x", 0.1, 0.0, 0.2, 3)).differs


# --- findings beside each other


def finding(suite="swap", value=0.5, name="flips", rule=()):
    return Finding(suite, (Figure(name, value, value - 0.05, value + 0.05, 90),), "b", "l", rule=rule)


def test_only_what_both_have_is_compared_and_the_rest_is_said():
    before = {"swap": Audited(finding(), Mark("a", data="one")), "regard": Audited(finding("regard"), Mark("a"))}
    after = {
        "swap": Audited(finding(value=0.1), Mark("b", data="two")),
        "data": Audited(finding("data"), Mark("b")),
        "regard, words forbidden": Audited(finding("regard", 0.4, rule=("thief",)), Mark("b")),
    }
    found = compare(before, after, "old", "b")
    assert [(row.suite, row.differs) for row in found.rows] == [("swap", True), ("regard, words forbidden", True)]
    assert any("data: old was not audited with this suite" in note for note in found.notes)
    assert any("not the same (one before, two after)" in note for note in found.notes)
    other = compare(before, {"swap": Audited(finding(name="turns"), Mark("b", data="one"))}, "old", "b")
    assert other.rows == ()
    assert other.notes == ("swap: only one of the two audits has flips, turns.",)


def test_a_comparison_is_kept_until_its_figures_are_others(tmp_path):
    change = Change("old", "b", (Row("swap", finding().figures[0], finding(value=0.1).figures[0]),), ("n",))
    write_audits(tmp_path, Stored({"swap": Audited(finding(value=0.1), Mark("b"))}, {}, change))
    assert read_audits(tmp_path / "audit.json").change == change
    raw = json.loads((tmp_path / "audit.json").read_text())["change"]
    assert raw["rows"][0]["differs"]
    assert raw["warning"] == WARNING
    write_audits(tmp_path, Stored({"data": Audited(finding("data"), Mark("b"))}))
    assert read_audits(tmp_path / "audit.json").change == change
    write_audits(tmp_path, Stored({"swap": Audited(finding(value=0.2), Mark("b"))}))
    assert read_audits(tmp_path / "audit.json").change is None


# --- planted bias, and twins against it


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same classifier on the same skewed reviews, without and with twins.

    Nobody looks before the end: dev is as skewed as the rest, so the best model by it would be the one that took most of it over.
    """
    home = tmp_path_factory.mktemp("mended")
    write_reviews(home / "skewed.tsv", skewed=True)
    flags = "--task.pieces words --model.width 24 --model.layers 1 --model.heads 2 --model.inner 32 --model.dropout 0"
    flags += " --train.epochs 5 --train.tokens 1024 --train.rate 0.01 --train.look-every 1000"
    for name in ("none", "swap"):
        words = ["train", "label", "--data", str(home / "skewed.tsv"), "--out", str(home / name), *flags.split()]
        assert main([*words, "--task.augment", name]) == 0
    assert main(["audit", str(home / "none"), "--suite", "swap", "--json"]) == 0
    return home


def test_a_planted_bias_falls_with_twins_and_the_table_says_so(runs, capsys):
    capsys.readouterr()
    assert main(["audit", str(runs / "swap"), "--suite", "swap", "--before", str(runs / "none"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["change"]
    (row,) = [one for one in told["rows"] if one["before"]["name"] == "gender: answers that change"]
    assert row["before"]["low"] > 0.2
    assert row["after"]["high"] < 0.15
    assert row["differs"]
    assert row["bounds"][1] < 0
    assert any(one["suite"] == "scores on dev" for one in told["rows"])
    stored = read_audits(runs / "swap" / "audit.json")
    before = read_audits(runs / "none" / "audit.json").suites["swap"]
    now = figures(stored.suites["swap"].finding)
    assert row["before"]["value"] == figures(before.finding)["gender: answers that change"].value
    assert row["after"]["value"] == now["gender: answers that change"].value
    assert stored.change is not None
    assert main(["card", str(runs / "swap")]) == 0
    card = (runs / "swap" / "model" / "README.md").read_text()
    assert "Before and after" in card
    assert "This does not solve it." in card
    assert "swapped twins of training examples" in card


def test_the_table_is_printed_with_its_warning_and_takes_a_file(runs, capsys):
    file = runs / "none" / "audit.json"
    assert main(["audit", str(runs / "swap"), "--suite", "swap", "--before", str(file)]) == 0
    out = capsys.readouterr().out
    assert "before (none)" in out
    assert "gender: answers that change" in out
    assert "This does not solve it." in out


def test_what_cannot_be_compared_or_forbidden_is_refused(runs, tmp_path, capsys):
    run = str(runs / "swap")
    assert main(["audit", run, "--before", str(tmp_path)]) == 4
    assert "needs a run that was audited" in capsys.readouterr().err
    assert main(["audit", "label", "--data", str(runs / "skewed.tsv"), "--before", str(runs / "none")]) == 2
    assert "compares two models" in capsys.readouterr().err
    words = tmp_path / "words.txt"
    words.write_text("\n \n")
    assert main(["audit", run, "--suite", "swap", "--forbidden", str(words)]) == 3
    assert "no words in it" in capsys.readouterr().err
    words.write_text("thief\n")
    for more in ([], ["--suite", "swap"]):
        assert main(["audit", run, *more, "--forbidden", str(words)]) == 2
        assert "read what a model writes" in capsys.readouterr().err


# --- rules for what is written


def test_an_audit_under_a_rule_stands_beside_the_one_without(monkeypatch, tmp_path, capsys):
    run, words = tmp_path / "run", tmp_path / "words.txt"
    flags = "--model.width 16 --model.layers 1 --model.heads 2 --model.inner 16 --task.pieces characters --train.max-steps 1"
    assert main(["train", "language", "--out", str(run), *flags.split()]) == 0
    few = own_prompts(1)[::9]
    monkeypatch.setattr("saccade.audit.regard.suite.own_prompts", lambda repeats=1: few)
    monkeypatch.setattr("saccade.audit.regard.suite.judge", by_letter)
    words.write_text("e\n\n e\na\n")
    assert main(["audit", str(run), "--suite", "regard", "--json"]) == 0
    assert main(["audit", str(run), "--suite", "regard", "--forbidden", str(words), "--before", str(run)]) == 0
    stored = read_audits(run / "audit.json")
    assert set(stored.suites) == {"regard", "regard, words forbidden"}
    assert stored.suites["regard"].finding.rule == ()
    assert stored.suites["regard, words forbidden"].finding.rule == ("e", "a")
    assert stored.change is not None
    (row,) = stored.change.rows  # the scores of one run are its scores
    assert (row.suite, row.after.value) == ("regard, words forbidden", 0.0)
    assert row.before.value > 0
    assert any("suite regard has not been run" in line for line in lacking_without(run, "regard"))


def by_letter(samples, shown=(), *, checks=(), by=None):
    """How often a letter is written, in place of the judge."""
    return Finding("regard", (share("e", [letter == "e" for one in samples for letter in one.written]),), "b", "l")


def lacking_without(run, suite):
    """What the gate says where only the finding under a rule is there."""
    raw = json.loads((run / "audit.json").read_text())
    del raw["suites"][suite]
    (run / "audit.json").write_text(json.dumps(raw))
    return lacking(open_records(run), Language())


def test_samples_are_written_under_a_rule_and_the_finding_says_so(monkeypatch):
    """A letter that is forbidden is in no sample; without the rule it is in most."""
    tokenizer = train([prompt.text for prompt in own_prompts(1)], "characters")
    model = new("transformer_language", Config(vocab=tokenizer.vocab, width=16, layers=1, heads=2, inner=32, length=96))
    model.tokenizer = tokenizer
    few = own_prompts(1)[::9]
    monkeypatch.setattr("saccade.audit.regard.suite.own_prompts", lambda: few)
    rule = ("e", "w o")
    assert writable(("man", "żółw"), train(["a man"], "words", 20)) == ("man",)
    kept = []
    monkeypatch.setattr(
        "saccade.audit.regard.suite.judge",
        lambda samples, shown, checks, by: kept.append(samples) or Finding("regard", (), "", ""),
    )
    free = Regard().run(Subject(Language(), model))
    bound = Regard().run(Subject(Language(), model, forbidden=rule))
    assert free.rule == ()
    assert bound.rule == rule
    assert "2 texts were forbidden (e, w o), of which the tokenizer can write 2" in bound.notes[-1]
    without, under = ([sample.written for sample in samples] for samples in kept)
    assert any("e" in text for text in without)
    assert not any("e" in text or "w o" in text for text in under)
    assert f"0 of {len(few)} samples hold one" in bound.notes[-1]
    assert Finding.of(json.loads(json.dumps(bound.as_dict()))) == bound
