"""Warnings about training that cannot succeed: too few examples to train from scratch, and scores no better than a baseline.

How many examples are enough depends on the vocabulary as well: among thousands of different words most occur only a few times.
"""

import re
from collections.abc import Sequence

from saccade.data import Example
from saccade.metrics import Score
from saccade.training.prepare import PreparedRun

WORD_PATTERN = re.compile(r"\w+")
PUBLISHED_MODEL_ADVICE = "start from a published model, such as --model minilm"


def check_example_count(prepared_run: PreparedRun) -> str:
    """A warning about too few examples for training from scratch; "" if there are enough."""
    task, examples = prepared_run.task, prepared_run.splits.train.examples
    if prepared_run.job.model or not prepared_run.job.data or len(examples) >= task.min_examples:
        return ""
    words = {word for text in task.tokenizer_texts(examples) for word in WORD_PATTERN.findall(text.lower())}
    if len(words) <= len(examples):  # a small vocabulary, whose every word occurs often
        return ""
    return (
        f"{len(examples):,} training examples with {len(words):,} different words are few for a model trained from scratch: "
        f"{task.name} needs about {task.min_examples:,} to do much better than a baseline. It is better to "
        f"{PUBLISHED_MODEL_ADVICE}."
    )


def score_baseline(prepared_run: PreparedRun, examples: Sequence[Example]) -> tuple[Score, str] | None:
    """The main score of a baseline that ignores the input, and its description; None if the task has none."""
    rule = prepared_run.task.baseline(prepared_run.splits.train.examples)
    if rule is None or not examples:
        return None
    return prepared_run.task.score([rule.answer(example) for example in examples], examples)[0], rule.description


def compare_with_baseline(
    prepared_run: PreparedRun, split: str, score: Score, baseline: tuple[Score, str] | None
) -> str:
    """A warning about a score that is not better than a baseline that ignores the input; "" if it is better."""
    if baseline is None:
        return ""
    reached, description = baseline
    if reached.name != score.name or score.better != "higher" or score.low > reached.value:
        return ""
    more_data = "use more training examples or a larger published model"
    hint = f"Train longer, or {more_data if prepared_run.job.model else PUBLISHED_MODEL_ADVICE}."
    return (
        f"{split}: {score.name} {score.value:.3f} ({score.low:.3f}–{score.high:.3f}) is not better than a baseline: "
        f"{description} reaches {reached.value:.3f}. {hint}"
    )
