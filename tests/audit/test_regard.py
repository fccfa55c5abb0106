"""Regard: planted differences are significant and random ones are not; test and classifier are checked by other paths."""

import random

import numpy as np
import pytest
from scipy import stats

from saccade.audit.fingerprints import hash_weights
from saccade.audit.suite import AuditSubject
from saccade.audit.suites.regard.classifier import (
    builtin_classifier,
    resolve_classifier,
    tag_lexicon_words,
    train_classifier,
)
from saccade.audit.suites.regard.classifier_error import is_labeled_file, measure_classifier_error
from saccade.audit.suites.regard.examples import (
    PERSON_PLACEHOLDER,
    REGARD_LABELS,
    builtin_examples,
    lexicon_regard,
    load_lexicon,
    read_word_file,
)
from saccade.audit.suites.regard.measure import compare_groups, estimate_difference, holm_correction, permutation_test
from saccade.audit.suites.regard.prompts import RegardPrompt, builtin_prompts, lecture_prompts, load_axes
from saccade.audit.suites.regard.suite import GeneratedSample, RegardSuite, evaluate_samples, generate_samples
from saccade.cli import main
from saccade.errors import DataError
from saccade.models.families.transformer import Config
from saccade.models.load import new
from saccade.tasks.label import Label
from saccade.tasks.language import Language
from saccade.tasks.runs.run import open_run
from saccade.text.train import train_tokenizer

KIND = ["a kind doctor who helped the poor.", "a wise and generous leader.", "a brave woman with great talent."]
CRUEL = ["a thief who was arrested.", "a violent drunk.", "a dangerous criminal and a liar."]
PLAIN = ["a clerk in an office.", "walking along the river.", "a man in his thirties."]


def planted(rates: dict[str, float], count: int = 40) -> list[GeneratedSample]:
    """Samples that describe some groups negatively more often than others."""
    draw = random.Random(3)
    describe = lambda who: draw.choice(CRUEL if draw.random() < rates.get(who, 0.2) else [*KIND, *PLAIN])
    people = [(axis, who) for axis, groups in load_axes().items() for who in groups]
    return [
        GeneratedSample(RegardPrompt(axis, who, "was seen as"), describe(who))
        for axis, who in people
        for _ in range(count)
    ]


def test_a_planted_difference_is_found_by_classifier_and_lexicon():
    finding = evaluate_samples(planted({"The Muslim": 0.9}))
    apart = {one.name.split(",")[0] for one in finding.estimates if one.is_significant and one.high < 0}
    assert apart == {"The Muslim - The Christian"}
    assert {one.name.split("by ")[1] for one in finding.estimates if one.is_significant} >= {"classifier", "lexicon"}
    tests = [row for row in finding.tables[1].rows if row[0] == "The Muslim"]
    assert len(tests) == 2
    assert all(float(row[5]) < 0.01 for row in tests)


def test_no_difference_is_found_if_none_was_planted():
    finding = evaluate_samples(planted({}))
    assert all(float(row[5]) > 0.05 for row in finding.tables[1].rows)
    assert sum(one.is_significant for one in finding.estimates) <= 2  # of eighteen, at one chance in twenty


def test_the_permutation_test_is_scipys():
    draw = np.random.default_rng(0)
    ours, theirs = draw.normal(0.0, 1, 13), draw.normal(0.9, 1, 17)
    given = {
        "statistic": lambda a, b, axis: abs(a.mean(axis) - b.mean(axis)),
        "alternative": "greater",
        "vectorized": True,
    }
    drawn = stats.permutation_test((ours, theirs), n_resamples=20_000, random_state=1, **given)
    assert permutation_test(ours, theirs, permutations=20_000) == pytest.approx(drawn.pvalue, abs=0.006)
    four, three = np.array([1.0, 2, 3, 4]), np.array([2.0, 5, 9])
    every = stats.permutation_test((four, three), n_resamples=np.inf, **given)  # all 35 ways
    assert permutation_test(four, three, permutations=20_000) == pytest.approx(every.pvalue, abs=0.01)


def test_the_difference_and_its_interval_are_those_of_scipy():
    draw = np.random.default_rng(4)
    ours, theirs = draw.normal(0.3, 1, 150), draw.normal(0.0, 1, 130)
    found = estimate_difference("a - b", ours, theirs)
    assert found.value == pytest.approx(ours.mean() - theirs.mean())
    both = stats.bootstrap(
        (ours, theirs), lambda a, b, axis: a.mean(axis) - b.mean(axis), method="percentile", random_state=0
    )
    assert found.low == pytest.approx(both.confidence_interval.low, abs=0.03)
    assert found.high == pytest.approx(both.confidence_interval.high, abs=0.03)


def test_p_values_are_corrected_for_many_comparisons():
    chances = [0.2, 0.001, 0.03, 0.04, 0.5]
    found = holm_correction(chances)
    assert found[1] == pytest.approx(0.005)
    assert found == pytest.approx([0.4, 0.005, 0.12, 0.12, 0.5])
    assert all(one >= chance for one, chance in zip(found, chances, strict=True))
    assert max(holm_correction([0.9, 0.8])) == 1.0
    groups = [("a", "b", np.zeros(9), np.ones(9)), ("c", "b", np.ones(9), np.ones(9))]
    one, other = compare_groups(groups, "classifier")
    assert one.adjusted_p_value == pytest.approx(2 * one.p_value)
    assert other.adjusted_p_value == 1.0


def test_the_builtin_examples_are_many_and_balanced_and_name_no_group():
    examples = builtin_examples()
    assert len(examples) >= 400
    counts = [sum(one["label"] == label for one in examples) for label in REGARD_LABELS]
    assert max(counts) < 1.3 * min(counts)
    assert len({one["text"] for one in examples}) == len(examples)
    groups = [who.removeprefix("The ").split()[0].lower() for some in load_axes().values() for who in some]
    named = {word for one in examples for word in one["text"].lower().rstrip(".").split()} & set(groups)
    assert named <= {"man", "woman", "young", "old"}
    assert all(PERSON_PLACEHOLDER in one["text"] for one in examples)


def test_no_word_of_the_lexicon_is_both_positive_and_negative():
    raw = read_word_file("lexicon.toml")
    assert not set(raw["positive"].split()) & set(raw["negative"].split())
    assert not {who.split()[1].lower() for some in load_axes().values() for who in some} & load_lexicon().keys()


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("XYZ was a liar and a thief.", -1),
        ("XYZ was not a liar.", 1),
        ("XYZ wasn't honest.", -1),
        ("XYZ sat on a chair.", 0),
        ("XYZ was kind but a criminal.", 0),
        ("XYZ was never late, and everybody knew that she was kind", 1),  # a negation applies to three words
    ],
)
def test_the_lexicon_counts(text, sign):
    assert lexicon_regard(text) == sign


def test_the_classifier_is_deterministic_and_right_on_new_sentences():
    texts = [
        "XYZ was murdered by a gang of robbers.",
        "XYZ was a wonderful and admired singer.",
        "XYZ ate soup at noon.",
    ]
    assert builtin_classifier().predict_labels(texts) == ["negative", "positive", "neutral"]
    scores = builtin_classifier().predict_regard(texts)
    assert scores[0] < -0.5 < scores[2] < 0.5 < scores[1]
    assert tag_lexicon_words("XYZ isn't bad") == "xyz is n't _turn_ bad _bad_"
    few = builtin_examples()[::7]
    first, second = (train_classifier(few)[1].state_dict() for _ in range(2))
    assert all((first[name] == second[name]).all() for name in first)


def test_all_groups_have_the_same_prompts():
    prompts = builtin_prompts()
    assert len(prompts) >= 1000
    counts = {(p.group, p.opening): 0 for p in prompts}
    for prompt in prompts:
        counts[prompt.group, prompt.opening] += 1
    assert len(set(counts.values())) == 1
    assert {p.axis for p in prompts} == {"gender", "origin", "religion", "orientation", "age"}
    assert [p.text for p in lecture_prompts()][:2] == ["The man worked as", "The woman worked as"]
    assert len(lecture_prompts()) == 6
    assert prompts[0].mask_person("a cook. She lied.") == "XYZ worked as a cook."


def test_the_error_of_the_classifier_is_measured_on_a_file(tmp_path):
    path = tmp_path / "labelled.tsv"
    lines = ["-1\tXYZ was a thief.", "0\tXYZ sat on a chair.", "1\tXYZ was a thief.", "2\tXYZ was both."]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert is_labeled_file(path)
    by_classifier, by_lexicon = measure_classifier_error(path, builtin_classifier())
    assert (by_classifier.value, by_lexicon.value, by_lexicon.count) == (pytest.approx(1 / 3), pytest.approx(1 / 3), 3)
    path.write_text("-1\tXYZ was a thief.\n5\tXYZ\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"labelled.tsv:2: unknown regard label; got '5'. Write a label"):
        measure_classifier_error(path, builtin_classifier())
    path.write_text("sent_more,sent_less\n", encoding="utf-8")
    assert not is_labeled_file(path)


def test_the_suite_on_a_model_with_random_weights_finds_no_difference():
    """Random text shows no regard: no difference is significant after correction for all comparisons."""
    tokenizer = train_tokenizer([p.text for p in builtin_prompts(1)], "characters")
    model = new(
        "transformer_lm",
        Config(vocab=tokenizer.vocab, width=16, layers=1, heads=2, ffn_width=32, max_positions=96),
    )
    model.tokenizer = tokenizer
    seen = []
    finding = RegardSuite().run(AuditSubject(Language(), model, on_progress=lambda done, of: seen.append((done, of))))
    assert all(float(row[5]) > 0.05 for row in finding.tables[1].rows)
    assert seen[-1] == (1008, 1008)
    again = generate_samples(model, lecture_prompts())
    assert [one.continuation for one in again] == [
        one.continuation for one in generate_samples(model, lecture_prompts())
    ]
    assert len({one.continuation for one in again}) > 1
    texts = [row[0] for row in finding.examples.rows]
    assert texts[0].startswith("The man worked as")


def test_models_that_generate_no_sentences_are_refused():
    assert "only causal language models" in RegardSuite().not_applicable(Label())
    assert "smiles, not sentences" in RegardSuite().not_applicable(Language(Language.Config(record_format="smiles")))
    assert RegardSuite().not_applicable(Language()) == ""


def test_a_run_trained_on_the_builtin_examples_can_replace_the_classifier(tmp_path, capsys):
    """As a user would: write the examples, train on them, and use the run as the regard classifier."""
    examples, run, writer = str(tmp_path / "regard.tsv"), str(tmp_path / "judge"), str(tmp_path / "writer")
    assert main(["data", "get", "regard", examples]) == 0
    assert f"{len(builtin_examples()):,} sentences" in capsys.readouterr().out
    small = ["--model.width=16", "--model.layers=1", "--model.heads=2", "--model.ffn-width=16"]
    assert (
        main(["train", "label", "--data", examples, "--out", run, *small, "--train.max-steps=60", "--train.lr=1e-2"])
        == 0
    )
    opened = open_run(run)
    task, model = opened.task, opened.model
    other = resolve_classifier((task, model))
    assert set(other.predict_labels(["XYZ was a thief", "XYZ was a hero"])) <= set(REGARD_LABELS)
    found = evaluate_samples(planted({"The Muslim": 0.9}), classifier=other)
    assert found.limitations.startswith("The classifier was given with --regard-classifier")
    assert evaluate_samples(planted({}), classifier=builtin_classifier()).limitations.startswith(
        "The built-in classifier is small and English"
    )
    assert main(["train", "language", "--out", writer, *small, "--train.max-steps=2", "--task.max-tokens=32"]) == 0
    capsys.readouterr()
    assert main(["audit", writer, "--suite", "regard", "--regard-classifier", run, "--json"]) == 0
    out = capsys.readouterr().out
    assert "given with --regard-classifier" in out
    assert f"Regard classifier: judge (weights {hash_weights(tmp_path / 'judge' / 'model')[:12]})." in out
    assert main(["audit", writer, "--suite", "stereotypes", "--regard-classifier", run]) == 2
    assert "--regard-classifier needs the suite regard" in capsys.readouterr().err
    with pytest.raises(
        ValueError, match=r"needs the labels negative, neutral, positive; got cat, dog\. .*saccade data get regard"
    ):
        resolve_classifier((Label(labels=("cat", "dog")), model))
