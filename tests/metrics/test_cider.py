"""CIDEr-D by hand, by a plain loop over dictionaries of counts, and by the authors' own code where it is installed."""

import math
import random
from collections import Counter

import pytest

from saccade.metrics.cider import cider, count_document_frequencies, split_caption

GOLD = [
    ["a red ring on a table", "a ring lies on a wooden table"],
    ["two dogs run on grass", "dogs on the grass", "a pair of dogs running"],
    ["a man rides a horse", "a horse and a rider on a beach"],
]


def by_loops(gold, answers):
    """The formula as the paper writes it, one term at a time; the words are split at spaces."""
    grams = lambda text, n: Counter(zip(*(text.split()[i:] for i in range(n)), strict=False))
    total = 0.0
    for said, texts in zip(answers, gold, strict=True):
        for text in texts:
            for n in (1, 2, 3, 4):
                weight = {}
                for gram in grams(said, n) | grams(text, n):
                    having = sum(any(grams(other, n)[gram] for other in picture) for picture in gold)
                    weight[gram] = math.log(len(gold) / max(1, having))
                ours = {gram: count * weight[gram] for gram, count in grams(said, n).items()}
                theirs = {gram: count * weight[gram] for gram, count in grams(text, n).items()}
                dot = sum(min(ours[gram], theirs.get(gram, 0.0)) * theirs.get(gram, 0.0) for gram in ours)
                size = math.hypot(*ours.values()) * math.hypot(*theirs.values())
                penalty = math.exp(-((len(said.split()) - len(text.split())) ** 2) / (2 * 6**2))
                total += 10 / 4 / len(texts) * penalty * (dot / size if size else 0.0)
    return total / len(gold)


def drawn(seed):
    """Captions of a few words, so that runs of words are shared, repeated and missed; some are short or empty."""
    chance = random.Random(seed)
    text = lambda least: " ".join(chance.choices(["a", "b", "c", "d", "e"], k=chance.randint(least, 8)))
    gold = [[text(1) for _ in range(chance.randint(1, 4))] for _ in range(6)]
    return gold, [text(0) for _ in gold]


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_formula(seed):
    gold, answers = drawn(seed)
    assert cider(gold, answers, bootstrap_samples=1).value == pytest.approx(by_loops(gold, answers), abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_the_authors_compute(seed):
    scorer = pytest.importorskip("pycocoevalcap.cider.cider_scorer")
    gold, answers = drawn(seed)
    theirs = scorer.CiderScorer(n=4, sigma=6.0)
    for said, texts in zip(answers, gold, strict=True):
        theirs += (said, texts)
    assert cider(gold, answers, bootstrap_samples=1).value == pytest.approx(float(theirs.compute_score()[0]), abs=1e-9)


def test_one_word_by_hand():
    # two pictures; "x" stands in one, "b" in both: only x weighs, log 2, and only runs of one word exist in "x"
    # picture 1: said "x", right "x": cosine 1 for one of four lengths -> 10 / 4. Picture 2: nothing shared that weighs.
    assert cider([["x"], ["b b b b"]], ["x", "x"], bootstrap_samples=1).value == pytest.approx((2.5 + 0.0) / 2)


def test_repeating_a_word_does_not_pay():
    # said "x x" against "x y", both words of one picture of two: clipped min(2, 1) * 1 over norms 2 and sqrt 2
    one = 10 / 4 * (1 / (2 * math.sqrt(2)))
    assert cider([["x y"], ["z"]], ["x x", ""], bootstrap_samples=1).value == pytest.approx(one / 2)


def test_another_length_costs_what_the_bell_says():
    gold = [["one two three four five six"], ["other words"]]
    short = cider(gold, ["one two three", ""], bootstrap_samples=1).value
    # words shared 3 of 6: 3 / sqrt(18); pairs 2 of 5, threes 1 of 4, no four; three words apart
    cosines = 3 / math.sqrt(3 * 6) + 2 / math.sqrt(2 * 5) + 1 / math.sqrt(1 * 4)
    assert short == pytest.approx(10 / 4 * cosines * math.exp(-9 / 72) / 2)


def test_the_right_caption_has_ten_and_a_strange_one_nothing():
    perfect = cider([texts[:1] for texts in GOLD], [texts[0] for texts in GOLD])
    assert perfect.value == pytest.approx(10.0)
    assert (perfect.low, perfect.high) == pytest.approx((10.0, 10.0))
    assert cider(GOLD, ["xyzzy"] * 3).value == 0.0


def test_case_and_punctuation_do_not_count():
    assert split_caption("A man's dog, RUNNING – fast!") == ["a", "man's", "dog", "running", "fast"]
    assert (
        cider(GOLD, ["A red ring, on a table.", "", ""]).value == cider(GOLD, ["a red ring on a table", "", ""]).value
    )


def test_frequencies_of_other_pictures_may_be_given():
    known = count_document_frequencies(GOLD)
    assert known.counts["on",] == 3  # in each picture once, however many captions have it
    alone = cider(GOLD[:1], [GOLD[0][0]])
    among = cider(GOLD[:1], [GOLD[0][0]], frequencies=known)
    assert alone.value == 0.0  # of one picture every word is in all pictures, so none weighs
    assert among.value > 5.0
    assert "df:given" in among.signature
    assert "df:gold" in alone.signature


def test_the_interval_is_over_pictures():
    score = cider(GOLD, [GOLD[0][0], "", ""])
    assert score.count == 3
    assert score.low < score.value < score.high


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(ValueError, match="2 predictions"):
        cider(GOLD, ["a", "b"])
    with pytest.raises(ValueError, match="image 1 has no reference caption"):
        cider([["a"], []], ["a", "b"])
    with pytest.raises(ValueError, match="no examples"):
        cider([], [])
