"""The paired bootstrap against a loop over the samples, for metrics of examples and of a whole corpus."""

import numpy as np
import pytest
import sacrebleu
from scipy.stats import spearmanr
from sklearn.metrics import f1_score

from saccade import metrics
from saccade.metrics.compare import compare_scores
from saccade.metrics.score import record_resamples

RANDOM = np.random.default_rng(3)
SAMPLES = 200


def draws(count):
    """The samples of all metrics, which are seeded alike."""
    return np.random.Generator(np.random.PCG64(0)).integers(count, size=(SAMPLES, count))


def compare(metric, gold, first, second):
    found = []
    for answers in (first, second):
        with record_resamples() as values:
            found.append((metric(gold, answers, bootstrap_samples=SAMPLES), values))
    (one, mine), (two, theirs) = found
    (comparison,) = compare_scores([one], [two], mine, theirs)
    return comparison


def compare_by_loop(metric, gold, first, second, better="higher"):
    """Interval, p-value and share of the better samples, one sample after another by another implementation."""
    differences = []
    for rows in draws(len(gold)):
        sample = [[items[row] for row in rows] for items in (gold, first, second)]
        differences.append(metric(sample[0], sample[1]) - metric(sample[0], sample[2]))
    values = np.where(np.abs(differences) < 1e-9, 0, differences)
    low, high = np.quantile(values, [0.025, 0.975])
    lower, upper = sum(value <= 0 for value in values), sum(value >= 0 for value in values)
    p_value = min(1, 2 * (1 + min(lower, upper)) / (1 + SAMPLES))
    wins = sum(value > 0 if better == "higher" else value < 0 for value in values)
    return low, high, p_value, (wins + sum(value == 0 for value in values) / 2) / SAMPLES


def noisy(gold, right):
    return [label if RANDOM.random() < right else str(RANDOM.choice(["a", "b", "c"])) for label in gold]


def sentences(count, right):
    words = [f"w{n}" for n in range(20)]
    gold = [" ".join(RANDOM.choice(words, size=9)) for _ in range(count)]
    spoil = lambda text, right: " ".join(w if RANDOM.random() < right else "x" for w in text.split())
    return gold, [spoil(text, right) for text in gold], [spoil(text, right - 0.1) for text in gold]


def test_accuracy_is_that_of_a_loop():
    gold = noisy(["a"] * 60, 0.0)
    first, second = noisy(gold, 0.8), noisy(gold, 0.6)
    accuracy = lambda gold, answers: np.mean([a == b for a, b in zip(gold, answers, strict=True)])
    found = compare(metrics.accuracy, gold, first, second)
    expected = compare_by_loop(accuracy, gold, first, second)
    assert (found.low, found.high, found.p_value, found.better_share) == pytest.approx(expected)
    assert found.difference == pytest.approx(accuracy(gold, first) - accuracy(gold, second))


def test_macro_f1_is_that_of_a_loop_although_one_system_predicts_more_classes():
    gold = noisy(["a"] * 50, 0.0)
    first, second = noisy(gold, 0.7), ["a"] * 50
    macro = lambda gold, answers: f1_score(gold, answers, average="macro", zero_division=0)
    found = compare(metrics.macro_f1, gold, first, second)
    expected = compare_by_loop(macro, gold, first, second)
    assert (found.low, found.high, found.p_value, found.better_share) == pytest.approx(expected)
    assert found.is_significant


def test_bleu_of_a_corpus_is_that_of_a_loop():
    gold, first, second = sentences(30, 0.9)
    bleu = lambda gold, answers: sacrebleu.corpus_bleu(answers, [gold]).score
    found = compare(metrics.bleu, gold, first, second)
    expected = compare_by_loop(bleu, gold, first, second)
    assert (found.low, found.high, found.p_value, found.better_share) == pytest.approx(expected)


def test_rank_correlation_is_that_of_a_loop():
    gold = RANDOM.random(30).tolist()
    first, second = ([x + scale * RANDOM.standard_normal() for x in gold] for scale in (0.2, 0.6))
    rho = lambda gold, answers: spearmanr(gold, answers).statistic
    found = compare(metrics.spearman, gold, first, second)
    assert (found.low, found.high, found.p_value, found.better_share) == pytest.approx(
        compare_by_loop(rho, gold, first, second)
    )


def test_the_lower_error_is_the_better_one_and_exchanging_the_systems_changes_the_sign():
    gold = RANDOM.random(40).tolist()
    good, poor = ([x + scale * RANDOM.standard_normal() for x in gold] for scale in (0.1, 0.9))
    one, other = compare(metrics.mse, gold, good, poor), compare(metrics.mse, gold, poor, good)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
    assert (one.p_value, one.better_share) == pytest.approx((other.p_value, 1 - other.better_share))
    assert one.first_is_better
    assert not other.first_is_better
    assert "A is better" in one.describe("A", "B")
    assert "A is better" in other.describe("B", "A")


def test_a_system_is_not_better_than_itself():
    gold = noisy(["a"] * 30, 0.0)
    answers = noisy(gold, 0.5)
    same = compare(metrics.accuracy, gold, answers, answers)
    assert (same.difference, same.low, same.high, same.p_value, same.better_share) == (0, 0, 0, 1, 0.5)
    assert "no significant difference" in str(same)
