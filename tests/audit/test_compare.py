"""Comparison of audits: intervals by other paths, counterfactual augmentation against planted bias, and bad words."""

import json
import math
from functools import cache

import numpy as np
import pytest
from scipy import stats
from test_suites import figures, write_reviews

from saccade.audit.compare import COMPARISON_WARNING, AuditComparison, ComparisonRow, compare_audits
from saccade.audit.fingerprints import AuditRecord, Fingerprint
from saccade.audit.gate import missing_items
from saccade.audit.run_records import AuditFile, open_records, read_audits, write_audits
from saccade.audit.stats import estimate_fraction
from saccade.audit.suite import AuditSubject, Estimate, SuiteResult
from saccade.audit.suites.regard.prompts import builtin_prompts
from saccade.audit.suites.regard.suite import RegardSuite, select_writable
from saccade.cli import main
from saccade.models.families.transformer import Config
from saccade.models.load import new
from saccade.tasks.language import Language
from saccade.text.train import train_tokenizer

# --- differences


def test_the_interval_is_that_of_two_means_if_intervals_are_symmetric():
    draw = np.random.default_rng(3)
    ours, theirs = draw.normal(0.2, 1, 2000), draw.normal(0.5, 2, 3000)
    one, other = (
        Estimate("x", v.mean(), *stats.norm.interval(0.95, v.mean(), stats.sem(v)), len(v)) for v in (ours, theirs)
    )
    welch = stats.ttest_ind(theirs, ours, equal_var=False).confidence_interval()
    assert ComparisonRow("s", one, other).confidence_interval == pytest.approx((welch.low, welch.high), abs=1e-3)


@pytest.mark.parametrize(("before", "after"), [(0.3, 0.1), (0.04, 0.02), (0.5, 0.5)])
def test_the_interval_of_two_fractions_has_a_coverage_of_95_percent(before, after):
    draw, count = np.random.default_rng(8), 150

    @cache
    def figure(hits):
        found = stats.binomtest(hits, count).proportion_ci(method="wilson")
        return Estimate("x", hits / count, found.low, found.high, count)

    pairs = draw.binomial(count, [before, after], (1000, 2)).tolist()
    rows = [ComparisonRow("s", figure(one), figure(other)) for one, other in pairs]
    held = sum(low <= after - before <= high for low, high in (row.confidence_interval for row in rows))
    assert 0.93 < held / 1000 < 0.98


def test_different_classifiers_are_noted():
    figure, mark = Estimate("regard by classifier", 0.1, 0.0, 0.2, 30), Fingerprint("w")
    was, now = (
        AuditRecord(SuiteResult("regard", (figure,), "", "", classifier_name=who), mark) for who in ("", "theirs")
    )
    assert SuiteResult.from_dict(now.result.as_dict()) == now.result
    (note,) = compare_audits({"regard": was}, {"regard": now}, "run", "w").notes
    assert note == (
        "regard: the two audits used different classifiers (built-in before, theirs after), "
        "so their scores are not comparable."
    )
    assert not compare_audits({"regard": now}, {"regard": now}, "run", "w").notes


def test_a_difference_from_nan_is_not_significant():
    assert not ComparisonRow(
        "s", Estimate("x", math.nan, math.nan, math.nan, 3), Estimate("x", 0.1, 0.0, 0.2, 3)
    ).is_significant


# --- results before and after


def finding(suite="counterfactual", value=0.5, name="flips", bad_words=()):
    return SuiteResult(suite, (Estimate(name, value, value - 0.05, value + 0.05, 90),), "b", "l", bad_words=bad_words)


def test_shared_metrics_are_compared_and_the_others_are_noted():
    before = {
        "counterfactual": AuditRecord(finding(), Fingerprint("a", data_digest="one")),
        "regard": AuditRecord(finding("regard"), Fingerprint("a")),
    }
    after = {
        "counterfactual": AuditRecord(finding(value=0.1), Fingerprint("b", data_digest="two")),
        "data": AuditRecord(finding("data"), Fingerprint("b")),
        "regard, bad words": AuditRecord(finding("regard", 0.4, bad_words=("thief",)), Fingerprint("b")),
    }
    found = compare_audits(before, after, "old", "b")
    assert [(row.suite, row.is_significant) for row in found.rows] == [
        ("counterfactual", True),
        ("regard, bad words", True),
    ]
    assert any("data: old was not audited with this suite" in note for note in found.notes)
    assert any("used different texts (one before, two after)" in note for note in found.notes)
    other = compare_audits(
        before, {"counterfactual": AuditRecord(finding(name="turns"), Fingerprint("b", data_digest="one"))}, "old", "b"
    )
    assert other.rows == ()
    assert other.notes == ("counterfactual: only one of the two audits has flips, turns.",)


def test_a_comparison_is_kept_until_its_suites_are_run_again(tmp_path):
    change = AuditComparison(
        "old", "b", (ComparisonRow("counterfactual", finding().estimates[0], finding(value=0.1).estimates[0]),), ("n",)
    )
    write_audits(tmp_path, AuditFile({"counterfactual": AuditRecord(finding(value=0.1), Fingerprint("b"))}, {}, change))
    assert read_audits(tmp_path / "audit.json").comparison == change
    raw = json.loads((tmp_path / "audit.json").read_text())["comparison"]
    assert raw["rows"][0]["is_significant"]
    assert raw["warning"] == COMPARISON_WARNING
    write_audits(tmp_path, AuditFile({"data": AuditRecord(finding("data"), Fingerprint("b"))}))
    assert read_audits(tmp_path / "audit.json").comparison == change
    write_audits(tmp_path, AuditFile({"counterfactual": AuditRecord(finding(value=0.2), Fingerprint("b"))}))
    assert read_audits(tmp_path / "audit.json").comparison is None


# --- planted bias, and counterfactual augmentation


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same classifier on the same skewed reviews, without and with counterfactual augmentation.

    No evaluation before the end: dev is as skewed as the training data, so it would select the most biased checkpoint.
    """
    home = tmp_path_factory.mktemp("mended")
    write_reviews(home / "skewed.tsv", skewed=True)
    flags = "--task.tokenizer words --model.width 24 --model.layers 1 --model.heads 2 --model.ffn-width 32 --model.dropout 0"
    flags += " --train.epochs 5 --train.batch-tokens 1024 --train.lr 0.01 --train.eval-every 1000"
    for name in ("none", "counterfactual"):
        words = ["train", "label", "--data", str(home / "skewed.tsv"), "--out", str(home / name), *flags.split()]
        assert main([*words, "--task.augment", name]) == 0
    assert main(["audit", str(home / "none"), "--suite", "counterfactual", "--json"]) == 0
    return home


def test_counterfactual_augmentation_reduces_a_planted_bias(runs, capsys):
    capsys.readouterr()
    assert (
        main(
            [
                "audit",
                str(runs / "counterfactual"),
                "--suite",
                "counterfactual",
                "--compare-to",
                str(runs / "none"),
                "--json",
            ]
        )
        == 0
    )
    comparison = json.loads(capsys.readouterr().out)["comparison"]
    (row,) = [one for one in comparison["rows"] if one["before"]["name"] == "gender: predictions that change"]
    assert row["before"]["low"] > 0.2
    assert row["after"]["high"] < 0.15
    assert row["is_significant"]
    assert row["confidence_interval"][1] < 0
    assert any(one["suite"] == "scores on dev" for one in comparison["rows"])
    stored = read_audits(runs / "counterfactual" / "audit.json")
    before = read_audits(runs / "none" / "audit.json").suites["counterfactual"]
    now = figures(stored.suites["counterfactual"].result)
    assert row["before"]["value"] == figures(before.result)["gender: predictions that change"].value
    assert row["after"]["value"] == now["gender: predictions that change"].value
    assert stored.comparison is not None
    assert main(["card", str(runs / "counterfactual")]) == 0
    card = (runs / "counterfactual" / "model" / "README.md").read_text()
    assert "Before and after" in card
    assert "This does not solve the problem." in card
    assert "counterfactual copies of training examples" in card


def test_the_table_is_printed_with_its_warning_and_takes_a_file(runs, capsys):
    file = runs / "none" / "audit.json"
    assert main(["audit", str(runs / "counterfactual"), "--suite", "counterfactual", "--compare-to", str(file)]) == 0
    out = capsys.readouterr().out
    assert "before (none)" in out
    assert "gender: predictions that change" in out
    assert "This does not solve the problem." in out


def test_what_cannot_be_compared_or_forbidden_is_refused(runs, tmp_path, capsys):
    run = str(runs / "counterfactual")
    assert main(["audit", run, "--compare-to", str(tmp_path)]) == 4
    assert "needs an audited run" in capsys.readouterr().err
    assert main(["audit", "label", "--data", str(runs / "skewed.tsv"), "--compare-to", str(runs / "none")]) == 2
    assert "compares two models" in capsys.readouterr().err
    words = tmp_path / "words.txt"
    words.write_text("\n \n")
    assert main(["audit", run, "--suite", "counterfactual", "--bad-words", str(words)]) == 3
    assert "contains no words" in capsys.readouterr().err
    words.write_text("thief\n")
    for more in ([], ["--suite", "counterfactual"]):
        assert main(["audit", run, *more, "--bad-words", str(words)]) == 2
        assert "for suites of generated text" in capsys.readouterr().err


# --- bad words


def test_an_audit_with_bad_words_is_stored_next_to_the_one_without(monkeypatch, tmp_path, capsys):
    run, words = tmp_path / "run", tmp_path / "words.txt"
    flags = "--model.width 16 --model.layers 1 --model.heads 2 --model.ffn-width 16 --task.tokenizer characters"
    flags += " --train.max-steps 1"
    assert main(["train", "language", "--out", str(run), *flags.split()]) == 0
    few = builtin_prompts(1)[::9]
    monkeypatch.setattr("saccade.audit.suites.regard.suite.builtin_prompts", lambda repeats=1: few)
    monkeypatch.setattr("saccade.audit.suites.regard.suite.evaluate_samples", by_letter)
    words.write_text("e\n\n e\na\n")
    assert main(["audit", str(run), "--suite", "regard", "--json"]) == 0
    assert main(["audit", str(run), "--suite", "regard", "--bad-words", str(words), "--compare-to", str(run)]) == 0
    stored = read_audits(run / "audit.json")
    assert set(stored.suites) == {"regard", "regard, bad words"}
    assert stored.suites["regard"].result.bad_words == ()
    assert stored.suites["regard, bad words"].result.bad_words == ("e", "a")
    assert stored.comparison is not None
    (row,) = stored.comparison.rows  # no task scores, as both are of one run
    assert (row.suite, row.after.value) == ("regard, bad words", 0.0)
    assert row.before.value > 0
    assert any("suite regard has not been run" in line for line in lacking_without(run, "regard"))


def by_letter(samples, shown=(), *, checks=(), classifier=None):
    """The frequency of a letter, in place of the regard."""
    return SuiteResult(
        "regard", (estimate_fraction("e", [letter == "e" for one in samples for letter in one.continuation]),), "b", "l"
    )


def lacking_without(run, suite):
    """What the gate misses if only the result with bad words is there."""
    raw = json.loads((run / "audit.json").read_text())
    del raw["suites"][suite]
    (run / "audit.json").write_text(json.dumps(raw))
    return missing_items(open_records(run), Language())


def test_bad_words_are_excluded_from_samples_and_noted(monkeypatch):
    """A letter that is excluded is in no sample; without bad words it is in most."""
    tokenizer = train_tokenizer([prompt.text for prompt in builtin_prompts(1)], "characters")
    model = new(
        "transformer_lm",
        Config(vocab=tokenizer.vocab, width=16, layers=1, heads=2, ffn_width=32, max_positions=96),
    )
    model.tokenizer = tokenizer
    few = builtin_prompts(1)[::9]
    monkeypatch.setattr("saccade.audit.suites.regard.suite.builtin_prompts", lambda: few)
    bad_words = ("e", "w o")
    assert select_writable(("man", "żółw"), train_tokenizer(["a man"], "words", 20)) == ("man",)
    kept = []
    monkeypatch.setattr(
        "saccade.audit.suites.regard.suite.evaluate_samples",
        lambda samples, shown, checks, classifier: kept.append(samples) or SuiteResult("regard", (), "", ""),
    )
    free = RegardSuite().run(AuditSubject(Language(), model))
    bound = RegardSuite().run(AuditSubject(Language(), model, bad_words=bad_words))
    assert free.bad_words == ()
    assert bound.bad_words == bad_words
    assert "without 2 bad words (e, w o), of which the tokenizer can encode 2" in bound.notes[-1]
    without, under = ([sample.continuation for sample in samples] for samples in kept)
    assert any("e" in text for text in without)
    assert not any("e" in text or "w o" in text for text in under)
    assert f"0 of {len(few)} samples contain one anyway" in bound.notes[-1]
    assert SuiteResult.from_dict(json.loads(json.dumps(bound.as_dict()))) == bound
