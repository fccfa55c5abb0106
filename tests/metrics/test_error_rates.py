"""Word and character error rates: equal to jiwer's, with intervals, and edits that a search over all of them finds."""

import random
from functools import cache

import jiwer
import pytest

from saccade.metrics import character_error_rate, count_edits, word_error_rate


def texts(seed, count=40):
    rng = random.Random(seed)
    gold = [" ".join(rng.choices(["go", "to", "the", "bank", "of", "it"], k=rng.randint(1, 8))) for _ in range(count)]

    def spoil(text):
        words = text.split()
        for _ in range(rng.randint(0, 3)):
            at = rng.randrange(len(words) + 1)
            words[at : at + rng.randint(0, 1)] = rng.choices(["go", "tothe", "bunk", "a"], k=rng.randint(0, 2))
        return " ".join(words)

    return gold, [spoil(text) for text in gold]


@pytest.mark.parametrize("seed", range(5))
def test_the_rates_are_those_of_jiwer(seed):
    gold, answers = texts(seed)
    assert word_error_rate(gold, answers).value == pytest.approx(jiwer.wer(gold, answers))
    assert character_error_rate(gold, answers).value == pytest.approx(jiwer.cer(gold, answers))
    details = jiwer.process_words(gold, answers)
    edits = [count_edits(a.split(), b.split()) for a, b in zip(gold, answers, strict=True)]
    assert sum(e.total for e in edits) == details.substitutions + details.deletions + details.insertions


@pytest.mark.parametrize("seed", range(20))
def test_no_other_way_of_editing_is_shorter(seed):
    rng = random.Random(seed)
    gold, answer = ("".join(rng.choices("ab", k=rng.randint(0, 6))) for _ in range(2))

    @cache
    def fewest(i, j):
        if i == len(gold) or j == len(answer):
            return len(gold) - i + len(answer) - j
        return min(fewest(i + 1, j + 1) + (gold[i] != answer[j]), fewest(i + 1, j) + 1, fewest(i, j + 1) + 1)

    edits = count_edits(gold, answer)
    assert edits.total == fewest(0, 0)
    assert len(gold) - edits.deletions + edits.insertions == len(answer)


def test_the_interval_holds_the_value_and_lower_is_better():
    gold, answers = texts(1)
    score = word_error_rate(gold, answers)
    assert score.low < score.value < score.high
    assert (score.name, score.better, score.count) == ("wer", "lower", len(gold))
    assert word_error_rate(gold, gold).value == character_error_rate(gold, gold).value == 0.0
    with pytest.raises(ValueError, match="40 gold"):
        word_error_rate(gold, answers[:-1])
