"""ROUGE and Porter's stems against the reference packages, and by hand."""

import re
from collections import Counter
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer
from rouge_score.rouge_scorer import RougeScorer

from saccade.data.samples.docs import load_paragraphs
from saccade.metrics.porter import stem
from saccade.metrics.rouge import ROUGE_TYPES, any_words, rouge, rouge_l, rouge_n, rouge_tokenizer, stems, words

WORDS = re.split(" ", "the cat cats sat on a mat matted \n . 7-2 Bodø running flies")
texts = st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)


def reference(kind: str, stemmed: bool):
    return RougeScorer([f"rouge{kind}"], use_stemmer=stemmed)


@pytest.mark.parametrize("stemmed", [False, True])
@pytest.mark.parametrize("kind", ROUGE_TYPES)
def test_the_reference_package_counts_the_same(kind, stemmed):
    theirs = reference(kind, stemmed)
    split = stems if stemmed else words

    @settings(deadline=None, max_examples=150)
    @given(right=texts, said=texts)
    def agree(right, said):
        wanted = theirs.score(right, said)[f"rouge{kind}"]
        assert ROUGE_TYPES[kind](right, said, split) == pytest.approx(tuple(wanted))

    agree()


@pytest.mark.parametrize("kind", ROUGE_TYPES)
def test_the_mean_over_real_sentences_is_the_reference_s(kind):
    theirs = reference(kind, True)
    prose = [re.sub(r"(?<=[.;:]) ", "\n", text) for text in load_paragraphs()["language"][:40]]
    pairs = list(pairwise(prose))
    wanted = [theirs.score(right, said)[f"rouge{kind}"].fmeasure for right, said in pairs]
    found = rouge([right for right, _ in pairs], [said for _, said in pairs], kind, tokenizer=stems)
    assert found.value == pytest.approx(sum(wanted) / len(wanted))
    assert found.low < found.value < found.high
    assert (found.name, found.count, found.signature) == (f"rouge_{kind.lower()}", 39, "words:stems")


def test_of_several_right_texts_the_nearest_counts():
    gold = ["the cat sat", "dogs ran away"]
    wanted = reference("1", False).score_multi(gold, "the dogs ran")["rouge1"].fmeasure
    assert rouge([gold], ["the dogs ran"]).value == pytest.approx(wanted) == pytest.approx(2 / 3)


def test_stems_are_the_reference_s_for_all_words_of_the_documentation():
    porter = PorterStemmer()
    found = {word for group in load_paragraphs().values() for text in group for word in words(text)}
    assert len(found) > 5_000
    assert [word for word in sorted(found) if stem(word) != porter.stem(word)] == []


def test_stems_of_words_that_are_none():
    porter = PorterStemmer()
    ends = re.findall(
        r"\w+", "s ies ied eed ed ing y ational izer bli alli logi fulli ement ion ll e iveness icate al ent"
    )

    @settings(deadline=None, max_examples=300)
    @given(begin=st.text("aeioybclstwxz", max_size=6), end=st.sampled_from(["", *ends]))
    def agree(begin, end):
        assert stem(begin + end) == porter.stem(begin + end)

    agree()


def test_by_hand():
    right, said = "police killed the gunman", "police kill the gunman"
    assert rouge_n(1, right, said, words) == (0.75, 0.75, 0.75)
    assert rouge_n(2, right, said, words).f1 == pytest.approx(1 / 3)  # the gunman
    assert rouge_l(right, "the gunman kill police", words).f1 == pytest.approx(2 / 4)
    assert ROUGE_TYPES["1"](right, said, stems).f1 == 1.0


@settings(deadline=None, max_examples=60)
@given(a=st.text("abc", max_size=7), b=st.text("abc", max_size=7))
def test_the_longest_common_row_by_trying_all(a, b):
    def rows(text):
        return {"".join(row) for size in range(len(text) + 1) for row in combinations(text, size)}

    longest = max(len(row) for row in rows(a) & rows(b))
    found = rouge_l(" ".join(a), " ".join(b), words)
    assert found.recall * max(1, len(a)) == pytest.approx(longest)
    assert rouge_n(1, " ".join(a), " ".join(b), words).recall * max(1, len(a)) == pytest.approx(
        (Counter(a) & Counter(b)).total()
    )


def test_texts_that_are_not_in_latin_letters_have_words_too():
    gold = ["Ужин готов и ждёт", "雨が降る"]
    assert rouge_tokenizer(gold) is any_words
    assert rouge(gold, gold, "2", tokenizer=any_words).value == 1.0
    assert rouge(gold, gold, "2").value == 0.0  # the reference sees nothing there
    assert rouge_tokenizer(["It rained.", "naïve"]) is words


def test_what_cannot_be_scored_is_named():
    with pytest.raises(ValueError, match="no ROUGE-3; known are 1, 2, L, Lsum"):
        rouge(["a"], ["a"], "3")
    with pytest.raises(ValueError, match="2 gold answers but 1 predictions"):
        rouge(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="example 1 has no reference"):
        rouge(["a", []], ["a", "b"])
    with pytest.raises(ValueError, match="no examples"):
        rouge([], [])
