"""Baselines for labels and numbers of texts: the most frequent label or the mean, and linear models on TF-IDF n-grams."""

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean

from saccade.baselines.linear_text import MANY_LABELS, LinearTextModel, fit_linear_classifier, fit_ridge
from saccade.data import Example
from saccade.tasks.baselines.sample import sample_by_size
from saccade.tasks.interface.learning import Baseline, BaselineMethod

# characters of texts that linear models are fitted to, for each label; of more, a sample is used
MAX_CHARACTERS_ONE_MODEL = 120_000_000
MAX_CHARACTERS_SEARCH = 12_000_000  # where a grid of models is searched

GetTexts = Callable[[Example], tuple[str, ...]]  # the text of an example, or both texts of a pair


def label_baselines(get_texts: GetTexts, labels: Sequence[str]) -> tuple[BaselineMethod, ...]:
    """The most frequent label, and the better of two linear classifiers, on words and on characters."""

    def fit_linear(train: Sequence[Example], dev: Sequence[Example]) -> Baseline:
        limit = MAX_CHARACTERS_ONE_MODEL if len(labels) > MANY_LABELS else MAX_CHARACTERS_SEARCH
        sample = _sample(train, get_texts, limit // max(1, len(labels)))
        gold, dev_gold = ([str(example["label"]) for example in part] for part in (sample, dev))
        model = fit_linear_classifier(list(map(get_texts, sample)), gold, list(map(get_texts, dev)), dev_gold)

        def predict(examples: Sequence[Example]) -> list[dict]:
            return [to_label_answer(str(label), labels) for label in model.predict(list(map(get_texts, examples)))]

        return Baseline(_describe(model, sample, train), predict)

    return majority_class(labels), BaselineMethod("linear classifier on TF-IDF", fit_linear)


def majority_class(labels: Sequence[str]) -> BaselineMethod:
    """Always predict the most frequent label of the training examples."""

    def fit(train: Sequence[Example], dev: Sequence[Example]) -> Baseline:
        common, _ = Counter(str(example["label"]) for example in train).most_common(1)[0]
        return Baseline.from_rule(f"always predicting {common!r}", lambda example: to_label_answer(common, labels))

    return BaselineMethod("most frequent label", fit, needs_training=False)


def to_label_answer(label: str, labels: Sequence[str]) -> dict:
    """An answer of a classification task that is certain of one label.

    >>> to_label_answer("b", ["a", "b"])
    {'label': 'b', 'scores': {'a': 0.0, 'b': 1.0}}
    """
    return {"label": label, "scores": {name: float(name == label) for name in labels}}


def number_baselines(get_texts: GetTexts, get_number: Callable[[Example], float]) -> tuple[BaselineMethod, ...]:
    """The mean of the training examples, and the better of two ridge regressions, on words and on characters."""

    def fit_mean(train: Sequence[Example], dev: Sequence[Example]) -> Baseline:
        mean = fmean(map(get_number, train))
        return Baseline.from_rule(f"always predicting the mean ({mean:.3g})", lambda example: {"score": mean})

    def fit_linear(train: Sequence[Example], dev: Sequence[Example]) -> Baseline:
        sample = _sample(train, get_texts, MAX_CHARACTERS_SEARCH // 2)
        gold, dev_gold = (list(map(get_number, part)) for part in (sample, dev))
        model = fit_ridge(list(map(get_texts, sample)), gold, list(map(get_texts, dev)), dev_gold)

        def predict(examples: Sequence[Example]) -> list[dict]:
            return [{"score": float(value)} for value in model.predict(list(map(get_texts, examples)))]

        return Baseline(_describe(model, sample, train), predict)

    return BaselineMethod("mean", fit_mean, needs_training=False), BaselineMethod(
        "ridge regression on TF-IDF", fit_linear
    )


def _describe(model: LinearTextModel, sample: Sequence[Example], train: Sequence[Example]) -> str:
    part = "" if len(sample) == len(train) else f" of {len(sample):,} of {len(train):,} examples"
    return f"{model.name}{part}"


def _sample(train: Sequence[Example], get_texts: GetTexts, limit: int) -> Sequence[Example]:
    return sample_by_size(train, limit, lambda example: sum(map(len, get_texts(example))))
