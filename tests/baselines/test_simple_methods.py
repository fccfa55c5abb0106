"""The smallest methods: a dictionary by IBM model 1, the lead sentence, the matching sentence, and pixels."""

import numpy as np
import pytest

from saccade.baselines.ibm1 import WordDictionary
from saccade.baselines.lead_sentence import lead_sentence, split_sentences
from saccade.baselines.pixels import NearestNeighbor, fit_linear_pixels
from saccade.baselines.sentence_match import SentenceMatcher


def test_two_sentences_by_hand():
    """Pairs (a b, x y) and (a, x), with NULL as a source word of both; all probabilities begin equal.

    First pair: x and y each fall to NULL, a and b by a third. Second: x falls to NULL and a by a half. So of a: x 1/3 + 1/2 =
    5/6, y 1/3, and p(x | a) = (5/6) / (7/6) = 5/7; the same for NULL. Of b: x 1/3, y 1/3, and p(x | b) = 1/2.
    """
    pairs = [("a b", "x y"), ("a", "x")]
    table = WordDictionary.fit(pairs, iterations=1).probabilities
    assert table["a"] == {"x": pytest.approx(5 / 7), "y": pytest.approx(2 / 7)}
    assert table[""] == table["a"]
    assert table["b"] == {"x": pytest.approx(1 / 2), "y": pytest.approx(1 / 2)}
    # the second step: in the first pair x is split as 5/7 : 5/7 : 1/2 over NULL, a and b, and y as 2/7 : 2/7 : 1/2
    table = WordDictionary.fit(pairs, iterations=2).probabilities
    x, y = (5 / 7) / (10 / 7 + 1 / 2), (2 / 7) / (4 / 7 + 1 / 2)
    assert table["a"]["x"] == pytest.approx((x + 1 / 2) / (x + 1 / 2 + y))
    x, y = (1 / 2) / (10 / 7 + 1 / 2), (1 / 2) / (4 / 7 + 1 / 2)
    assert table["b"]["y"] == pytest.approx(y / (x + y))


def test_every_source_word_has_a_distribution():
    pairs = [
        ("the house is old", "das Haus ist alt"),
        ("the book", "das Buch"),
        ("an old book", "ein altes Buch"),
        ("", ""),
    ]
    for row in WordDictionary.fit(pairs).probabilities.values():
        assert sum(row.values()) == pytest.approx(1)


def test_unknown_words_are_copied_and_spaces_kept():
    dictionary = WordDictionary.fit([("one", "eins"), ("two", "zwei")], iterations=3)
    assert dictionary.translate("one,  Berlin two\n") == "eins,  Berlin zwei\n"
    assert WordDictionary.fit([]).translate("as it is") == "as it is"


def test_sentences_cover_the_text():
    text = "First one. Second?\nThird without an end"
    assert [text[a:b] for a, b in split_sentences(text)] == ["First one.", "Second?", "Third without an end"]
    assert lead_sentence(text) == "First one."
    assert lead_sentence("一つ。二つ。") == "一つ。"
    assert lead_sentence("") == ""


def test_the_answer_is_a_span_of_its_context():
    contexts = [
        "The Elbe flows to Hamburg. Marie Curie was born in Warsaw in 1867. She moved to Paris.",
        "The bridge opened in 1932. It was built of steel.",
    ]
    matcher = SentenceMatcher.fit(contexts)
    for question, context, part in [
        ("Where was Marie Curie born?", contexts[0], "Warsaw"),
        ("When was the bridge opened?", contexts[1], "1932"),
        ("zzz?", contexts[1], ""),
    ]:
        answer = matcher.predict(question, context)
        assert answer.text == context[answer.start : answer.end]
        assert part in answer.text
    assert matcher.predict("What?", "").text == ""


def test_the_nearest_neighbor_by_all_distances():
    draw = np.random.default_rng(0)
    train, test = (draw.integers(0, 256, (count, 12)).astype(np.uint8) for count in (30, 700))
    distances = ((test[:, None].astype(int) - train[None].astype(int)) ** 2).sum(-1)
    gold = [f"label {i}" for i in range(30)]
    assert NearestNeighbor.fit(train, gold).predict(test) == [gold[i] for i in distances.argmin(1)]


def test_a_linear_model_of_pixels_finds_the_bright_half():
    draw = np.random.default_rng(0)
    images = draw.integers(0, 100, (200, 2, 8)).astype(np.uint8)
    bright = draw.integers(2, size=200)
    images[np.arange(200), bright] += 60
    flat, gold = images.reshape(200, 16), ["top" if half == 0 else "bottom" for half in bright]
    model = fit_linear_pixels(flat[:100], gold[:100], flat[100:150], gold[100:150])
    assert np.mean(model.predict(flat[150:]) == np.array(gold[150:])) > 0.9
