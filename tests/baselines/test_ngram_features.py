"""TF-IDF n-grams agree with scikit-learn's, and survive being stored."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.feature_extraction.text import TfidfVectorizer

from saccade.baselines.ngram_features import (
    SIZES,
    WORD_PATTERN,
    NgramFeatures,
    NgramVectorizer,
    split_characters,
)

TEXTS = [
    "A good  film, a GOOD play!",
    "The film isn't good.",
    "Ça va? ça VA bien — 東京 and 東京!",
    "",
    "good good good films",
    "\tÀ la carte\n",
]
NEW_TEXTS = ["a good thing: ça va, 東京", "unseen zzz", "", "play! play"]


def sklearn_vectorizer(kind, min_df):
    ngrams = {"ngram_range": (min(SIZES[kind]), max(SIZES[kind])), "min_df": min_df, "sublinear_tf": True}
    if kind == "words":
        return TfidfVectorizer(token_pattern=WORD_PATTERN.pattern, **ngrams)
    return TfidfVectorizer(preprocessor=split_characters, analyzer="char", **ngrams)


@pytest.mark.parametrize("kind", ["words", "characters"])
@pytest.mark.parametrize("min_df", [1, 2])
def test_vectors_equal_those_of_scikit_learn(kind, min_df):
    ours, theirs = NgramVectorizer.fit(TEXTS, kind, min_df), sklearn_vectorizer(kind, min_df).fit(TEXTS)
    names = [ours.decode(feature) for feature in range(len(ours))]
    assert sorted(names) == sorted(theirs.get_feature_names_out())
    columns = [theirs.vocabulary_[name] for name in names]
    for texts in (TEXTS, NEW_TEXTS):
        assert_allclose(ours.transform(texts).toarray(), theirs.transform(texts).toarray()[:, columns], atol=1e-6)


def test_a_large_alphabet_keeps_its_most_frequent_characters():
    """More characters than five digits of a 62-bit number can tell apart: the rare ones are in no n-gram."""
    rare = [chr(0x4E00 + i) * 2 for i in range(7000)]
    vectorizer = NgramVectorizer.fit([*rare, *rare, "abc", "abc", "abc"], "characters")
    assert len(vectorizer.symbols) < 7000
    assert "abc" in {vectorizer.decode(i) for i in range(len(vectorizer))}


def test_both_kinds_weigh_the_same_and_rows_have_length_one():
    features = NgramFeatures.fit([(text,) for text in TEXTS], min_df=1)
    rows = features.transform([(text,) for text in TEXTS if text]).toarray()
    words = len(features.vectorizers[0])
    assert rows.shape[1] == features.width
    assert_allclose((rows[:, :words] ** 2).sum(1), 0.5, rtol=1e-5)
    assert_allclose((rows**2).sum(1), 1, rtol=1e-5)


def test_a_pair_has_a_block_for_each_text_their_product_and_their_cosine():
    rows = [("a good film", "a good play"), ("a bad film", "the play"), ("the bad play", "a film")]
    features = NgramFeatures.fit(rows, kinds=["words"], min_df=1)
    (vectorizer,) = features.vectorizers
    first, second = (vectorizer.transform([row[side] for row in rows]).toarray() for side in (0, 1))
    cosine = [[float(a @ b)] for a, b in zip(first, second, strict=True)]
    assert_allclose(features.transform(rows).toarray(), np.hstack([first, second, first * second, cosine]), rtol=1e-5)
    names = [features.decode(feature) for feature in range(features.width)]
    assert len(set(names)) == features.width
    assert names[-1] == "similarity of the words"
    with pytest.raises(IndexError):
        features.decode(features.width)


@pytest.mark.parametrize("rows", [[(text,) for text in TEXTS], [("a b", "b c"), ("b c", "a b")]])
def test_state_restores_the_same_features(rows):
    features = NgramFeatures.fit(rows)
    restored = NgramFeatures.from_state(features.to_state())
    assert_allclose(restored.transform(rows).toarray(), features.transform(rows).toarray())
    assert [restored.decode(i) for i in range(restored.width)] == [features.decode(i) for i in range(features.width)]
