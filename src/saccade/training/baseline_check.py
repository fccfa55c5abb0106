"""Whether training can succeed: too few examples to start from scratch, and scores that a rule without a model reaches too.

What is too few depends on the words as well: with thousands of different words most are seen a few times only.
"""

import re
from collections.abc import Sequence

from saccade.data import Example
from saccade.metrics import Score
from saccade.training.prepare import PreparedRun, is_stored_model

WORD_PATTERN = re.compile(r"\w+")
PUBLISHED_MODEL_ADVICE = "start from a published model: --model DIRECTORY, such as that of all-MiniLM-L6-v2"


def check_example_count(prepared_run: PreparedRun) -> str:
    """What is said before a training from scratch that has too few examples; "" where there are enough."""
    task, examples = prepared_run.task, prepared_run.splits.train.examples
    least = task.min_examples
    if is_stored_model(prepared_run.job.model) or not prepared_run.job.data or len(examples) >= least:
        return ""
    words = {word for text in task.tokenizer_texts(examples) for word in WORD_PATTERN.findall(text.lower())}
    if len(words) <= len(examples):  # a small world, whose every word comes often
        return ""
    return (
        f"{len(examples):,} training examples with {len(words):,} different words are few for a model that starts from "
        f"scratch: {task.name} takes about {least:,} to do much better than a baseline. It is better to {PUBLISHED_MODEL_ADVICE}."
    )


def compare_with_baseline(prepared_run: PreparedRun, split: str, score: Score, examples: Sequence[Example]) -> str:
    """What is said beside a score that is not better than a rule which reads no text; "" where it is better."""
    rule = prepared_run.task.baseline(prepared_run.splits.train.examples)
    if rule is None or not examples:
        return ""
    base = prepared_run.task.score([rule.answer(example) for example in examples], examples)[0]
    if base.name != score.name or score.better != "higher" or score.low > base.value:
        return ""
    other = "give more examples, or take a larger published model"
    cure = f"Train longer, or {other if is_stored_model(prepared_run.job.model) else PUBLISHED_MODEL_ADVICE}."
    return (
        f"{split}: {score.name} {score.value:.3f} ({score.low:.3f}–{score.high:.3f}) is not better than a baseline: "
        f"{rule.description} reaches {base.value:.3f}. {cure}"
    )
