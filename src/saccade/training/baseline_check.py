"""Simple baselines beside the scores of a run, and warnings about training that cannot succeed or a score that is no better.

How many examples are enough depends on the vocabulary as well: among thousands of different words most occur only a few times.
Which baselines are measured follows from the data and the steps, not from the clock, so that equal runs write equal files; only a
method that would begin after MAX_SECONDS is skipped.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from saccade.data import Example
from saccade.metrics import Score
from saccade.models.capabilities import Modality
from saccade.tasks.base import Baseline, BaselineMethod, Task
from saccade.training.events import BaselineResult
from saccade.training.prepare import PreparedRun

WORD_PATTERN = re.compile(r"\w+")
PUBLISHED_MODEL_ADVICE = "start from a published model, such as --model minilm"
MIN_EXAMPLES = 200  # training examples from which on baselines that need fitting are measured
MIN_STEPS = 50  # training steps from which on they are measured
MAX_SECONDS = 30.0  # after which no further baseline is fitted

SplitExamples = Mapping[str, Sequence[Example]]


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


def measure_baselines(
    task: Task,
    train: Sequence[Example],
    splits: SplitExamples,
    *,
    steps: int,
    on_method: Callable[[], None] = lambda: None,
) -> tuple[dict[str, BaselineResult], list[str]]:
    """The best baseline on dev, or on the only split, scored on every split; and the methods that were skipped, with the reason.

    `on_method` is called before each method is fitted, and may raise an error to stop.
    """
    splits = {name: examples for name, examples in splits.items() if len(examples)}
    is_long = steps >= MIN_STEPS and (task.is_text_stream or len(train) >= MIN_EXAMPLES)
    if not splits or not len(train):
        return {}, []
    chosen_on = "dev" if "dev" in splits else next(iter(splits))
    best: tuple[Baseline, BaselineResult] | None = None
    started, skipped = time.monotonic(), []
    for method in task.baselines():
        if method.needs_training and not is_long:
            continue
        if method.needs_training and time.monotonic() - started > MAX_SECONDS:
            skipped.append(f"{method.name} (more than {MAX_SECONDS:g} s)")
            continue
        on_method()
        try:
            baseline = method.fit(train, splits.get("dev", ()))
            result = score_baseline(task, method, baseline, splits[chosen_on])
        except (ValueError, ArithmeticError, MemoryError) as error:  # a finished training does not fail by its baseline
            skipped.append(f"{method.name} ({type(error).__name__}: {error})")
            continue
        if best is None or _is_better(result.scores[0], best[1].scores[0]):
            best = baseline, result
    if best is None:
        return {}, skipped
    baseline, result = best
    others = {name: examples for name, examples in splits.items() if name != chosen_on}
    scores = {name: task_scores(task, baseline, examples) for name, examples in others.items()}
    results = {chosen_on: result} | {name: replace(result, scores=values) for name, values in scores.items()}
    return {name: results[name] for name in splits}, skipped


def fit_best_baseline(task: Task, train: Sequence[Example], dev: Sequence[Example], name: str = "") -> Baseline | None:
    """The baseline of a run, fitted again: the method of that name or, without a name, the first that needs no training."""
    methods = [method for method in task.baselines() if (method.name == name if name else not method.needs_training)]
    return methods[0].fit(train, dev) if methods and len(train) else None


def score_baseline(
    task: Task, method: BaselineMethod, baseline: Baseline, examples: Sequence[Example]
) -> BaselineResult:
    """The scores of a fitted baseline on examples."""
    return BaselineResult(method.name, baseline.description, task_scores(task, baseline, examples))


def task_scores(task: Task, baseline: Baseline, examples: Sequence[Example]) -> list[Score]:
    """The scores by which a model is compared with a baseline; the first, unless the task names another one."""
    scores = task.score(baseline.predict(examples), examples)
    return [score for score in scores if task.baseline_metric in ("", score.name)]


def make_training_hint(prepared_run: PreparedRun) -> str:
    """What may make the model of a run better than a baseline."""
    needs = prepared_run.task.needs
    if not prepared_run.job.model and needs.head is not None and needs.input is Modality.TEXT:
        return PUBLISHED_MODEL_ADVICE
    return f"use more training examples or a larger {'published ' if prepared_run.job.model else ''}model"


def compare_with_baseline(split: str, scores: Sequence[Score], baseline: BaselineResult | None, advice: str) -> str:
    """A warning about a score that is not better than that of the best baseline; "" if it is better."""
    if baseline is None:
        return ""
    best = baseline.scores[0]
    score = next((score for score in scores if score.name == best.name), None)
    if score is None or _is_better(replace(score, value=score.low if score.better == "higher" else score.high), best):
        return ""
    verdict = "not clearly better than" if _is_better(score, best) else "not better than"
    return (
        f"{split}: {score.name} {score.value:.3f} ({score.low:.3f}–{score.high:.3f}) is {verdict} a baseline: "
        f"{baseline.description} reaches {best.value:.3f}. Train longer, or {advice}."
    )


def _is_better(score: Score, other: Score) -> bool:
    """Whether a score is better than another of the same metric; one that is not a number is not."""
    return score.value > other.value if score.better == "higher" else score.value < other.value
