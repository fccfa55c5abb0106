"""Two audits in one table: intervals by other paths, bias that falls when twins are learnt, and rules for what is written."""

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


def test_the_bounds_are_those_of_two_means_where_intervals_are_even():
    draw = np.random.default_rng(3)
    ours, theirs = draw.normal(0.2, 1, 2000), draw.normal(0.5, 2, 3000)
    one, other = (
        Estimate("x", v.mean(), *stats.norm.interval(0.95, v.mean(), stats.sem(v)), len(v)) for v in (ours, theirs)
    )
    welch = stats.ttest_ind(theirs, ours, equal_var=False).confidence_interval()
    assert ComparisonRow("s", one, other).confidence_interval == pytest.approx((welch.low, welch.high), abs=1e-3)


@pytest.mark.parametrize(("before", "after"), [(0.3, 0.1), (0.04, 0.02), (0.5, 0.5)])
def test_the_bounds_of_two_shares_hold_the_true_difference_nineteen_times_in_twenty(before, after):
    draw, count = np.random.default_rng(8), 150

    @cache
    def figure(hits):
        found = stats.binomtest(hits, count).proportion_ci(method="wilson")
        return Estimate("x", hits / count, found.low, found.high, count)

    pairs = draw.binomial(count, [before, after], (1000, 2)).tolist()
    rows = [ComparisonRow("s", figure(one), figure(other)) for one, other in pairs]
    held = sum(low <= after - before <= high for low, high in (row.confidence_interval for row in rows))
    assert 0.93 < held / 1000 < 0.98


def test_figures_of_two_judges_are_not_compared_in_silence():
    figure, mark = Estimate("regard by classifier", 0.1, 0.0, 0.2, 30), Fingerprint("w")
    was, now = (
        AuditRecord(SuiteResult("regard", (figure,), "", "", classifier_name=who), mark) for who in ("", "theirs")
    )
    assert SuiteResult.from_dict(now.result.as_dict()) == now.result
    (note,) = compare_audits({"regard": was}, {"regard": now}, "run", "w").notes
    assert note == "regard: the judge is not the same (our own before, theirs after), so neither is what is judged."
    assert not compare_audits({"regard": now}, {"regard": now}, "run", "w").notes


def test_what_is_no_number_differs_from_nothing():
    assert not ComparisonRow(
        "s", Estimate("x", math.nan, math.nan, math.nan, 3), Estimate("x", 0.1, 0.0, 0.2, 3)
    ).is_significant


# --- findings beside each other


def finding(suite="counterfactual", value=0.5, name="flips", rule=()):
    return SuiteResult(suite, (Estimate(name, value, value - 0.05, value + 0.05, 90),), "b", "l", bad_words=rule)


def test_only_what_both_have_is_compared_and_the_rest_is_said():
    before = {
        "counterfactual": AuditRecord(finding(), Fingerprint("a", data_digest="one")),
        "regard": AuditRecord(finding("regard"), Fingerprint("a")),
    }
    after = {
        "counterfactual": AuditRecord(finding(value=0.1), Fingerprint("b", data_digest="two")),
        "data": AuditRecord(finding("data"), Fingerprint("b")),
        "regard, bad words": AuditRecord(finding("regard", 0.4, rule=("thief",)), Fingerprint("b")),
    }
    found = compare_audits(before, after, "old", "b")
    assert [(row.suite, row.is_significant) for row in found.rows] == [
        ("counterfactual", True),
        ("regard, bad words", True),
    ]
    assert any("data: old was not audited with this suite" in note for note in found.notes)
    assert any("not the same (one before, two after)" in note for note in found.notes)
    other = compare_audits(
        before, {"counterfactual": AuditRecord(finding(name="turns"), Fingerprint("b", data_digest="one"))}, "old", "b"
    )
    assert other.rows == ()
    assert other.notes == ("counterfactual: only one of the two audits has flips, turns.",)


def test_a_comparison_is_kept_until_its_figures_are_others(tmp_path):
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


# --- planted bias, and twins against it


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same classifier on the same skewed reviews, without and with twins.

    Nobody looks before the end: dev is as skewed as the rest, so the best model by it would be the one that took most of it over.
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


def test_a_planted_bias_falls_with_twins_and_the_table_says_so(runs, capsys):
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
    told = json.loads(capsys.readouterr().out)["comparison"]
    (row,) = [one for one in told["rows"] if one["before"]["name"] == "gender: answers that change"]
    assert row["before"]["low"] > 0.2
    assert row["after"]["high"] < 0.15
    assert row["is_significant"]
    assert row["confidence_interval"][1] < 0
    assert any(one["suite"] == "scores on dev" for one in told["rows"])
    stored = read_audits(runs / "counterfactual" / "audit.json")
    before = read_audits(runs / "none" / "audit.json").suites["counterfactual"]
    now = figures(stored.suites["counterfactual"].result)
    assert row["before"]["value"] == figures(before.result)["gender: answers that change"].value
    assert row["after"]["value"] == now["gender: answers that change"].value
    assert stored.comparison is not None
    assert main(["card", str(runs / "counterfactual")]) == 0
    card = (runs / "counterfactual" / "model" / "README.md").read_text()
    assert "Before and after" in card
    assert "This does not solve it." in card
    assert "swapped twins of training examples" in card


def test_the_table_is_printed_with_its_warning_and_takes_a_file(runs, capsys):
    file = runs / "none" / "audit.json"
    assert main(["audit", str(runs / "counterfactual"), "--suite", "counterfactual", "--compare-to", str(file)]) == 0
    out = capsys.readouterr().out
    assert "before (none)" in out
    assert "gender: answers that change" in out
    assert "This does not solve it." in out


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


# --- rules for what is written


def test_an_audit_under_a_rule_stands_beside_the_one_without(monkeypatch, tmp_path, capsys):
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
    (row,) = stored.comparison.rows  # the scores of one run are its scores
    assert (row.suite, row.after.value) == ("regard, bad words", 0.0)
    assert row.before.value > 0
    assert any("suite regard has not been run" in line for line in lacking_without(run, "regard"))


def by_letter(samples, shown=(), *, checks=(), classifier=None):
    """How often a letter is written, in place of the judge."""
    return SuiteResult(
        "regard", (estimate_fraction("e", [letter == "e" for one in samples for letter in one.continuation]),), "b", "l"
    )


def lacking_without(run, suite):
    """What the gate says where only the finding under a rule is there."""
    raw = json.loads((run / "audit.json").read_text())
    del raw["suites"][suite]
    (run / "audit.json").write_text(json.dumps(raw))
    return missing_items(open_records(run), Language())


def test_samples_are_written_under_a_rule_and_the_finding_says_so(monkeypatch):
    """A letter that is forbidden is in no sample; without the rule it is in most."""
    tokenizer = train_tokenizer([prompt.text for prompt in builtin_prompts(1)], "characters")
    model = new(
        "transformer_lm",
        Config(vocab=tokenizer.vocab, width=16, layers=1, heads=2, ffn_width=32, max_positions=96),
    )
    model.tokenizer = tokenizer
    few = builtin_prompts(1)[::9]
    monkeypatch.setattr("saccade.audit.suites.regard.suite.builtin_prompts", lambda: few)
    rule = ("e", "w o")
    assert select_writable(("man", "żółw"), train_tokenizer(["a man"], "words", 20)) == ("man",)
    kept = []
    monkeypatch.setattr(
        "saccade.audit.suites.regard.suite.evaluate_samples",
        lambda samples, shown, checks, classifier: kept.append(samples) or SuiteResult("regard", (), "", ""),
    )
    free = RegardSuite().run(AuditSubject(Language(), model))
    bound = RegardSuite().run(AuditSubject(Language(), model, bad_words=rule))
    assert free.bad_words == ()
    assert bound.bad_words == rule
    assert "2 texts were forbidden (e, w o), of which the tokenizer can write 2" in bound.notes[-1]
    without, under = ([sample.continuation for sample in samples] for samples in kept)
    assert any("e" in text for text in without)
    assert not any("e" in text or "w o" in text for text in under)
    assert f"0 of {len(few)} samples hold one" in bound.notes[-1]
    assert SuiteResult.from_dict(json.loads(json.dumps(bound.as_dict()))) == bound
