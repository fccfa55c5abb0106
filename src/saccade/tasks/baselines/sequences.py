"""Baselines for tags, translations, summaries, captions and answers."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from saccade.baselines.ibm1 import WordDictionary
from saccade.baselines.lead_sentence import lead_sentence
from saccade.baselines.sentence_match import SentenceMatcher
from saccade.baselines.tagger import PerceptronTagger, TagLookup, repair_bio
from saccade.data import Example
from saccade.tasks.baselines.sample import sample_by_size
from saccade.tasks.interface.learning import Baseline, BaselineMethod

MAX_TRAIN_WORDS = 300_000  # that the linear tagger is trained on; of more, a sample is used


def tag_baselines() -> tuple[BaselineMethod, ...]:
    """The most frequent tag of each word, and a linear tagger."""

    def fit_lookup(train: Sequence[Example], dev: Sequence[Example]) -> Baseline:
        lookup = TagLookup.fit(*_words_and_tags(train))
        return Baseline.from_rule(
            "giving each word its most frequent tag", lambda e: repair_bio(lookup.predict(e["words"]))
        )

    def fit_linear(train: Sequence[Example], dev: Sequence[Example]) -> Baseline:
        sample = sample_by_size(train, MAX_TRAIN_WORDS, lambda example: len(example["words"]))
        tagger = PerceptronTagger.fit(*_words_and_tags(sample))
        part = "" if len(sample) == len(train) else f" of {len(sample):,} of {len(train):,} texts"
        description = f"a linear tagger on word shapes{part} (averaged structured perceptron)"
        return Baseline.from_rule(description, lambda example: repair_bio(tagger.predict(example["words"])))

    return (
        BaselineMethod("most frequent tag of each word", fit_lookup, needs_training=False),
        BaselineMethod("linear tagger", fit_linear),
    )


def _words_and_tags(examples: Sequence[Example]) -> tuple[list[Sequence[str]], list[Sequence[str]]]:
    return [example["words"] for example in examples], [example["tags"] for example in examples]


def translation_baselines() -> tuple[BaselineMethod, ...]:
    """Copying the source, and a word-for-word dictionary."""

    def fit_dictionary(train: Sequence[Example], dev: Sequence[Example]) -> Baseline:
        dictionary = WordDictionary.fit((example["source"], example["target"]) for example in train)
        return Baseline.from_rule(
            "translating word for word (IBM model 1)", lambda example: dictionary.translate(example["source"])
        )

    return (
        text_rule("copying", "copying the source", lambda example: example["source"]),
        BaselineMethod("word-for-word dictionary", fit_dictionary),
    )


def summary_baselines() -> tuple[BaselineMethod, ...]:
    """Lead-1: the first sentence."""
    return (text_rule("first sentence", "taking the first sentence", lambda example: lead_sentence(example["source"])),)


def text_rule(name: str, description: str, answer: Callable[[Example], str]) -> BaselineMethod:
    """A rule that learns nothing."""
    return BaselineMethod(name, lambda train, dev: Baseline.from_rule(description, answer), needs_training=False)


def caption_baselines(get_captions: Callable[[Example], Iterable[str]]) -> tuple[BaselineMethod, ...]:
    """The most frequent caption."""

    def fit(train: Sequence[Example], dev: Sequence[Example]) -> Baseline:
        common, _ = Counter(caption for example in train for caption in get_captions(example)).most_common(1)[0]
        return Baseline.from_rule(f"always predicting {common!r}", lambda example: common)

    return (BaselineMethod("most frequent caption", fit, needs_training=False),)


def span_baselines() -> tuple[BaselineMethod, ...]:
    """The rarest words of the sentence that shares the most words with the question."""

    def fit(train: Sequence[Example], dev: Sequence[Example]) -> Baseline:
        matcher = SentenceMatcher.fit(example["context"] for example in train)

        def answer(example: Example) -> dict:
            found = matcher.predict(example["question"], example["context"])
            return {"null": float("-inf"), "best": [{**vars(found), "score": 0.0}]}  # there always is an answer

        return Baseline.from_rule("answering from the sentence that shares the most words with the question", answer)

    return (BaselineMethod("best-matching sentence", fit),)
