"""Whether training can succeed: too few examples to start from scratch, and scores that a rule without a model reaches too.

What is too few depends on the words as well: with thousands of different words most are seen a few times only.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from saccade.data import Example
from saccade.tasks.label import Label
from saccade.tasks.metrics import Score
from saccade.tasks.pair import Pair
from saccade.tasks.tag import Tag
from saccade.tasks.task import Task
from saccade.training.job import Ready, is_stored

MIN_EXAMPLES = {"label": 500, "tag": 5_000, "pair": 10_000, "span": 20_000}  # to start from scratch, with many words
WORD = re.compile(r"\w+")
PUBLISHED = "start from a published model: --model DIRECTORY, such as that of all-MiniLM-L6-v2"
Rule = tuple[str, Callable[[Example], Any]]  # what it does, and its answer to an example


def few_examples(ready: Ready) -> str:
    """What is said before a training from scratch that has too few examples; "" where there are enough."""
    task, examples = ready.task, ready.splits.train.examples
    least = MIN_EXAMPLES.get(task.name, 0)
    if is_stored(ready.job.model) or not ready.job.data or len(examples) >= least:
        return ""
    words = {word for text in task.texts(examples) for word in WORD.findall(text.lower())}
    if len(words) <= len(examples):  # a small world, whose every word comes often
        return ""
    return (
        f"{len(examples):,} training examples with {len(words):,} different words are few for a model that starts from "
        f"scratch: {task.name} takes about {least:,} to do much better than a baseline. It is better to {PUBLISHED}."
    )


def compare_with_baseline(ready: Ready, split: str, score: Score, examples: Sequence[Example]) -> str:
    """What is said beside a score that is not better than a rule which reads no text; "" where it is better."""
    rule = baseline_rule(ready.task, ready.splits.train.examples)
    if rule is None or not examples:
        return ""
    name, answer = rule
    base = ready.task.score([answer(example) for example in examples], examples)[0]
    if base.name != score.name or score.better != "higher" or score.low > base.value:
        return ""
    other = "give more examples, or take a larger published model"
    cure = f"Train longer, or {other if is_stored(ready.job.model) else PUBLISHED}."
    return (
        f"{split}: {score.name} {score.value:.3f} ({score.low:.3f}–{score.high:.3f}) is not better than a baseline: {name} "
        f"reaches {base.value:.3f}. {cure}"
    )


def baseline_rule(task: Task, train: Sequence[Example]) -> Rule | None:
    """The best that can be answered without a model, by the counts of the training examples; None where there is no such rule."""
    if isinstance(task, Tag):
        return "giving each word its most frequent tag", _word_by_word(train)
    classes = (isinstance(task, Label) and not task.many) or (isinstance(task, Pair) and not task.graded)
    if not classes or not train:
        return None
    common, _ = Counter(str(example["label"]) for example in train).most_common(1)[0]
    scores = {label: float(label == common) for label in task.labels}
    return f"always answering {common!r}", lambda example: {"label": common, "scores": scores}


def _word_by_word(train: Sequence[Example]) -> Callable[[Example], list[str]]:
    pairs = chain.from_iterable(zip(example["words"], example["tags"], strict=True) for example in train)
    counts: dict[str, Counter[str]] = {}
    for word, tag in pairs:
        counts.setdefault(word, Counter())[tag] += 1
    likeliest = {word: found.most_common(1)[0][0] for word, found in counts.items()}

    def answer(example: Example) -> list[str]:
        tags: list[str] = []
        for word in example["words"]:
            tag, before = likeliest.get(word, "O"), tags[-1] if tags else "O"
            begins = tag.startswith("I-") and before[2:] != tag[2:]  # BIO: nothing goes on that has not begun
            tags.append(f"B-{tag[2:]}" if begins else tag)
        return tags

    return answer
