"""Every baseline of every task answers in the form that the task scores, and does better than chance where there is a rule."""

import math

import numpy as np
import pytest

from saccade.baselines.kneser_ney import KneserNey
from saccade.data import Example
from saccade.tasks.base import Task
from saccade.tasks.baselines.sample import sample_by_size, sample_examples
from saccade.tasks.label import Label
from saccade.tasks.language import Language
from saccade.tasks.pair import Pair
from saccade.tasks.registry import TASKS
from saccade.tasks.span import Span
from saccade.tasks.summarize import Summarize
from saccade.tasks.tag import Tag
from saccade.tasks.translate import Translate
from saccade.training.baseline_check import task_scores


def fit_all(task: Task, train, dev):
    return {method.name: method.fit(train, dev) for method in task.baselines()}


def score_all(task: Task, train, dev):
    return {name: task_scores(task, baseline, dev)[0].value for name, baseline in fit_all(task, train, dev).items()}


@pytest.mark.parametrize("task_type", TASKS, ids=lambda one: one.name)
def test_names_are_distinct_and_the_fastest_come_first(task_type):
    """Rules come before what is fitted: where the time is short, they are what is measured."""
    methods = task_type().baselines()
    assert len({method.name for method in methods}) == len(methods)
    assert [method.needs_training for method in methods] == sorted(method.needs_training for method in methods)


def test_labels_of_texts_and_of_pairs():
    colors = [(f"thing {i % 7} is {('red', 'blue')[i % 2]}", ("warm", "cold")[i % 2]) for i in range(90)]
    label = Label(labels=("cold", "warm"))
    examples = [Example({"text": text, "label": name}) for text, name in colors]
    found = score_all(label, examples[:60], examples[60:])
    assert found == {"most frequent label": 0.5, "linear classifier on TF-IDF": 1.0}
    same = [(f"word{i % 9} here", f"word{(i % 9 + (i % 2)) % 9} here", ("same", "other")[i % 2]) for i in range(180)]
    pairs = [Example(dict(zip(("first", "second", "label"), row, strict=True))) for row in same]
    found = score_all(Pair(Pair.Config(target_type="label"), ("other", "same")), pairs[:120], pairs[120:])
    assert found["linear classifier on TF-IDF"] > found["most frequent label"]  # by the n-grams that both texts share


def test_numbers_of_pairs():
    rows = [("a b c", "a b c" if i % 3 else "d e f", str(5 if i % 3 else 1)) for i in range(60)]
    pairs = [Example(dict(zip(("first", "second", "label"), row, strict=True))) for row in rows]
    found = score_all(Pair(Pair.Config(target_type="number")), pairs[:40], pairs[40:])
    assert found["ridge regression on TF-IDF"] > 0.99  # Pearson's correlation
    assert not found["mean"] > 0


def test_labels_of_images():
    draw = np.random.default_rng(0)
    images = [draw.integers(0, 80, (40, 48), dtype=np.uint8) + (i % 2) * np.uint8(120) for i in range(60)]
    examples = [Example({"image": image, "label": ("dark", "light")[i % 2]}) for i, image in enumerate(images)]
    task = Label(labels=("dark", "light"))
    task.fit(examples)  # finds that they are images
    found = score_all(task, examples[:40], examples[40:])
    assert found == {
        "most frequent label": 0.5,
        "nearest neighbor of pixels": 1.0,
        "logistic regression on pixels": 1.0,
    }


def test_tags_begin_with_b():
    train = [Example({"words": ["in", "New", "York"], "tags": ["O", "B-LOC", "I-LOC"]})] * 3
    for baseline in fit_all(Tag(labels=("O", "B-LOC", "I-LOC")), train, train).values():
        assert baseline.predict([Example({"words": ["York"]})]) == [["B-LOC"]]


def test_translations_and_summaries():
    train = [Example({"source": "one two", "target": "eins zwei"}), Example({"source": "two", "target": "zwei"})] * 5
    found = fit_all(Translate(), train, train)
    assert found["copying"].predict(train[:1]) == ["one two"]
    assert found["word-for-word dictionary"].predict(train[:1]) == ["eins zwei"]
    (lead,) = fit_all(Summarize(), train, train).values()
    assert lead.predict([Example({"source": "It rained. We stayed.", "target": ["Rain."]})]) == ["It rained."]


def test_an_answer_is_scored_as_the_task_scores_its_own():
    context = "The Elbe flows to Hamburg. Marie was born in Warsaw."
    example = Example(
        {"context": context, "question": "Where was Marie born?", "answers": [(context.index("War"), "Warsaw")]}
    )
    (matcher,) = fit_all(Span(), [example], []).values()
    assert [score.value for score in task_scores(Span(), matcher, [example])] == [1.0, 1.0]


def test_the_bits_of_lines_are_those_of_the_text():
    lines = [f"line {i % 7} of the book, and of the sea\n" for i in range(60)]
    examples = [Example({"text": line}) for line in lines]
    found = fit_all(Language(), examples[:50], examples[50:])
    text = "".join(lines)
    symbols, cut = np.frombuffer(text.encode(), np.uint8), len("".join(lines[:50]))
    model = KneserNey.fit(symbols[:cut], order=5, vocab=256)
    bits = -model.log_probabilities(symbols[cut:]).mean() / math.log(2)
    scores = task_scores(Language(), found["Kneser-Ney 5-grams of bytes"], examples[50:])
    assert [score.name for score in scores] == ["bits_per_byte"]
    assert scores[0].value == pytest.approx(bits)
    assert task_scores(Language(), found["gzip -9"], examples[50:])[0].value > 0


def test_a_sample_keeps_both_of_two_alternating_labels():
    examples = [Example({"text": "x" * 10, "label": str(i % 2)}) for i in range(1000)]
    sample = sample_by_size(examples, 1000, lambda example: len(example["text"]))
    assert len(sample) == 100
    assert 30 < sum(example["label"] == "1" for example in sample) < 70
    assert sample_by_size(examples, 1000, lambda example: len(example["text"])) == sample
    assert sample_by_size(examples, 10_000, lambda example: len(example["text"])) is examples
    assert len(sample_examples(examples, 0)) == 1
