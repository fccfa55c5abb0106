"""Modified Kneser-Ney against the formula, written as loops over dictionaries."""

import gzip
from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_allclose

from saccade.baselines.compression import gzip_bits_per_byte
from saccade.baselines.kneser_ney import FALLBACK_DISCOUNTS, KneserNey, cross_fit, estimate_discounts

VOCAB = 5


def random_text(length=400, seed=0):
    """Symbols that depend on the two before them, over an alphabet whose last symbol never occurs."""
    draw = np.random.default_rng(seed)
    text = [0, 1]
    for _ in range(length - 2):
        text.append(int((text[-1] + 2 * text[-2] + (draw.random() < 0.3)) % (VOCAB - 1)))
    return np.array(text)


def brute_force(text, order):
    """p(word | history) by the formula in the module, one number at a time."""
    text = tuple(text.tolist())
    grams = {n: [text[i : i + n] for i in range(len(text) - n + 1)] for n in range(1, order + 1)}
    counts = {order: Counter(grams[order])}
    for n in range(1, order):
        counts[n] = Counter(gram[1:] for gram in set(grams[n + 1]))  # each different symbol before it counts once
    discounts = {}
    for n, table in counts.items():
        n1, n2, n3, n4 = (sum(count == value for count in table.values()) for value in (1, 2, 3, 4))
        if not (n1 and n2 and n3 and n4):
            discounts[n] = FALLBACK_DISCOUNTS
            continue
        y = n1 / (n1 + 2 * n2)
        raw = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
        discounts[n] = tuple(min(max(0.0, d), i) for i, d in enumerate(raw, 1))

    def probability(word, history):
        if history is None:
            return 1 / VOCAB
        n = len(history) + 1
        followers = {gram[-1]: count for gram, count in counts[n].items() if gram[:-1] == history}
        shorter = probability(word, history[1:] if history else None)
        total = sum(followers.values())
        if not total:
            return shorter
        discount = lambda count: discounts[n][min(count, 3) - 1] if count else 0.0
        gamma = sum(map(discount, followers.values())) / total
        count = followers.get(word, 0)
        return (count - discount(count)) / total + gamma * shorter

    return probability


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_probabilities_are_those_of_the_formula(order):
    train, test = random_text(), np.concatenate([random_text(30, seed=7), [4, 4, 0, 1, 2, 4]])
    model, probability = KneserNey.fit(train, order=order, vocab=VOCAB), brute_force(train, order)
    expected = [
        [probability(word, tuple(test[max(0, i - order + 1) : i].tolist())) for word in range(VOCAB)]
        for i in range(len(test))
    ]
    distributions = model.distributions(test)
    assert_allclose(distributions, expected, rtol=1e-5)
    assert_allclose(distributions.sum(1), 1, rtol=1e-5)
    chosen = np.array(expected)[np.arange(len(test)), test]
    assert_allclose(model.log_probabilities(test), np.log(chosen))
    assert_allclose(model.log_probabilities(test, skip=5), np.log(chosen)[5:])


def test_every_symbol_has_a_probability_even_unseen_ones():
    model = KneserNey.fit(random_text(), order=3, vocab=VOCAB)
    assert (model.distributions(np.full(5, 4)) > 0).all()


def test_folds_are_scored_by_models_that_have_not_seen_them():
    text = random_text(200)
    blocks = list(cross_fit(text, order=3, vocab=VOCAB, folds=4))
    assert [len(block) for block in blocks] == [50] * 4
    model = KneserNey.fit(np.concatenate([text[:50], text[100:]]), order=3, vocab=VOCAB)
    assert_allclose(blocks[1], model.distributions(text[:100], skip=50), rtol=1e-6)
    picked = np.concatenate(blocks)[np.arange(200), text]
    own = KneserNey.fit(text, order=3, vocab=VOCAB).log_probabilities(text)
    assert np.log(picked).mean() < own.mean()  # a model of the text itself has seen the answers


def test_counts_of_counts_give_the_discounts_by_hand():
    counts = np.array([1] * 8 + [2] * 4 + [3] * 2 + [4])  # y = 8 / (8 + 2 * 4) = 1/2
    assert_allclose(estimate_discounts(counts), [1 - 0.5, 2 - 3 * 0.5 * 2 / 4, 3 - 4 * 0.5 * 1 / 2])
    assert_allclose(estimate_discounts(np.array([5, 5])), FALLBACK_DISCOUNTS)


@pytest.mark.parametrize(
    ("text", "order", "part"), [([0, 1], 3, "at least 3 symbols"), ([0, 9], 1, "range from 0 to 9")]
)
def test_what_cannot_be_counted_is_refused(text, order, part):
    with pytest.raises(ValueError, match=part):
        KneserNey.fit(np.array(text), order=order, vocab=VOCAB)


def test_gzip_bits_are_those_of_the_gzip_module():
    text = b"the sea, the sea! " * 30 + bytes(range(200))
    size = len(gzip.compress(text, 9))
    assert gzip_bits_per_byte(text) == 8 * size / len(text)
    assert gzip_bits_per_byte(text, context=text) < gzip_bits_per_byte(text)
    with pytest.raises(ValueError, match="empty"):
        gzip_bits_per_byte(b"")
