"""Counterfactual evaluation: swap the words for a group in test data, and measure which predictions change (Garg et al. 2019)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from saccade.audit.disaggregate import disaggregate
from saccade.audit.stats import estimate_fraction, estimate_mean
from saccade.audit.suite import AuditSubject, AuditTable, Estimate, Suite, SuiteResult
from saccade.audit.suites.task_counterfactual import format_input, make_task_counterfactual
from saccade.data import Example
from saccade.data.counterfactual import Counterfactual
from saccade.tasks.base import Task
from saccade.tasks.predict import predict
from saccade.text.counterfactual_words import CONTROL_DIMENSION, Dimension, detect_languages, load_dimensions

MAX_TEXTS_PER_DIMENSION = 2_000  # most texts of a dimension that are tested
MIN_CASES = 20  # with fewer cases no metric is reported
MAX_LABELS = 4  # labels whose difference between the sides is reported
MAX_EXAMPLES_SHOWN = 20  # examples in the result
INTERPRETATION = (
    "A model that ignores the group changes no prediction and is correct equally often on both sides, so the baseline of every "
    "difference is 0. The baseline of the fraction of changed predictions is that of a control, in which neutral words are "
    "swapped (Monday for Tuesday), if enough texts contain them: a model that is sensitive to any change is so there, too."
)
LIMITATIONS = (
    "Only listed words are swapped, one dimension at a time. Groups that no listed word names are not covered, and some swapped "
    "texts are unnatural. A changed prediction can be correct (a text about the sisters of a convent), and an unchanged one can "
    "be equally unfair to both sides. Only your test data are covered. Among several metrics, one in twenty is significant by "
    "chance."
)


@dataclass(frozen=True)
class AnsweredPair:
    """A text and its counterfactual, with both predictions; `are_right` is None if there is no gold label to compare with."""

    pair: Counterfactual
    before: Any
    after: Any
    are_right: tuple[bool, bool] | None

    def order_by_side(self, values: tuple[Any, Any]) -> tuple[Any, Any]:
        """Reorder the values of the original and its counterfactual: those of the first side of the dimension come first."""
        return values if self.pair.side == 0 else (values[1], values[0])


class CounterfactualSuite(Suite):
    name = "counterfactual"
    description = (
        "texts rewritten about another group: how often and in which direction predictions change; scores by column"
    )
    requires = ("held_out",)

    def not_applicable(self, task: Task) -> str:
        if task.counterfactual_roles and not task.reads_sentences:
            return "it swaps words, and the input of this model is images"
        return "" if task.counterfactual_roles else f"it has no counterfactuals for the task {task.name}"

    def run(self, subject: AuditSubject) -> SuiteResult:
        task = subject.task
        languages = detect_languages(
            format_input(example, task) for example in subject.held_out[:MAX_TEXTS_PER_DIMENSION]
        )
        estimates, too_few, changed, unchanged = [], [], [], []
        control = _measure_control(subject, languages)
        if control is not None:
            estimates.append(control)
        baseline = control.value if control is not None else 0.0
        for dimension in (one for code in languages for one in load_dimensions(code)):
            answered = _predict_pairs(subject, dimension)
            if len(answered) < MIN_CASES:
                too_few.append(f"{dimension.display_name} ({len(answered)})")
                continue
            estimates += _measure_dimension(task, dimension, answered, baseline)
            changed += _example_rows(task, dimension, [one for one in answered if one.before != one.after])
            unchanged += _example_rows(task, dimension, [one for one in answered if one.before == one.after])
        tables, gap, gap_notes = disaggregate(subject)
        title = "Changed predictions" if changed else "No prediction changed; some of the texts"
        columns = ("dimension", "text", "prediction", "swapped text", "prediction")
        rows = tuple((changed or unchanged)[:MAX_EXAMPLES_SHOWN])
        examples = AuditTable(title, columns, rows) if rows else None
        notes = [f"{len(subject.held_out):,} texts, with the word lists of {', '.join(languages)}."]
        if too_few:
            notes.append(f"Not reported, as fewer than {MIN_CASES} texts have a word to swap: {', '.join(too_few)}.")
        notes += gap_notes
        return SuiteResult(self.name, (*estimates, *gap), INTERPRETATION, LIMITATIONS, tables, examples, tuple(notes))


def _predict_pairs(subject: AuditSubject, dimension: Dimension) -> list[AnsweredPair]:
    """All texts with a word to swap and their counterfactuals, with the predictions for both."""
    task, model = subject.task, subject.need_model()
    counterfactuals = (make_task_counterfactual(task, example, dimension) for example in subject.held_out)
    pairs = [pair for pair in counterfactuals if pair is not None][:MAX_TEXTS_PER_DIMENSION]
    if len(pairs) < MIN_CASES:
        return [AnsweredPair(pair, None, None, None) for pair in pairs]
    examples = [_drop_extra_roles(pair.original, pair) for pair in pairs] + [pair.counterfactual for pair in pairs]
    answers, _ = predict(task, model, examples, on_progress=subject.on_progress)
    unlabeled = task.unlabeled_mask([pair.original for pair in pairs])
    answered = []
    for pair, before, after, no_label in zip(
        pairs, answers[: len(pairs)], answers[len(pairs) :], unlabeled, strict=True
    ):
        mapped = task.map_to_counterfactual(task.to_comparable(before, pair.original), pair)
        right = None
        if task.has_right_answers and not no_label and not _has_no_gold(pair.original):
            right = (task.error_row(before, pair.original) is None, task.error_row(after, pair.counterfactual) is None)
        answered.append(AnsweredPair(pair, mapped, task.to_comparable(after, pair.counterfactual), right))
    return answered


def _drop_extra_roles(example: Example, pair: Counterfactual) -> Example:
    """The example with only the roles that its counterfactual has."""
    return Example({role: example[role] for role in pair.counterfactual.values}, example.file, example.line)


def _has_no_gold(example: Example) -> bool:
    return not any(role in example for role in ("label", "labels", "tags"))


def _measure_control(subject: AuditSubject, codes: Sequence[str]) -> Estimate | None:
    """How often the prediction changes when neutral words are swapped; None if too few texts contain such words."""
    for dimension in (one for code in codes for one in load_dimensions(code, control=True)):
        answered = _predict_pairs(subject, dimension)
        if len(answered) >= MIN_CASES and not subject.task.predicts_number:
            changes = [one.before != one.after for one in answered]
            return estimate_fraction(f"{CONTROL_DIMENSION}: predictions that change", changes)
    return None


def _measure_dimension(
    task: Task, dimension: Dimension, answered: Sequence[AnsweredPair], baseline: float
) -> Iterator[Estimate]:
    """How often predictions change in one dimension, and the differences between its two sides."""
    name, (left, right) = dimension.display_name, dimension.sides
    one_sided = [one for one in answered if one.pair.side is not None]
    difference = f"{left} minus {right}"
    if task.predicts_number:
        yield estimate_mean(
            f"{name}: mean absolute change of the prediction", [abs(a.before - a.after) for a in answered]
        )
        if len(one_sided) >= MIN_CASES:
            values = [a - b for a, b in (one.order_by_side((one.before, one.after)) for one in one_sided)]
            yield estimate_mean(f"{name}: prediction, {difference}", values, baseline=0.0)
        return
    changes = [one.before != one.after for one in answered]
    yield estimate_fraction(f"{name}: predictions that change", changes, baseline=baseline)
    right_pairs = [one.order_by_side(one.are_right) for one in one_sided if one.are_right is not None]
    if len(right_pairs) >= MIN_CASES:
        values = [float(a) - float(b) for a, b in right_pairs]
        yield estimate_mean(f"{name}: correct predictions, {difference}", values, baseline=0.0)
    if task.compares_label_rates and len(one_sided) >= MIN_CASES:
        yield from _measure_label_rates(task, name, difference, one_sided)


def _measure_label_rates(task: Task, name: str, difference: str, answered: Sequence[AnsweredPair]) -> list[Estimate]:
    """How much more often each label is predicted for one side than for the other, the largest differences first."""
    sides = [one.order_by_side((one.before, one.after)) for one in answered]
    predicted = {label for pair in sides for label in pair}
    labels = [label for label in task.labels if label in predicted or len(task.labels) == 2]
    estimates = []
    for label in labels:
        values = [float(a == label) - float(b == label) for a, b in sides]
        estimates.append(estimate_mean(f"{name}: predicts {label!r}, {difference}", values, baseline=0.0))
    if (
        len(estimates) == 2
    ):  # the rates of two labels mirror each other; always the last, so that audits can be compared
        return estimates[1:]
    return sorted(estimates, key=lambda estimate: -abs(estimate.value))[:MAX_LABELS]


def _example_rows(task: Task, dimension: Dimension, answered: Sequence[AnsweredPair]) -> list[tuple[str, ...]]:
    """A few texts with their predictions, of as many different pairs of predictions as possible."""
    seen: Counter[Any] = Counter()
    order = []
    for one in answered:
        seen[one.before, one.after] += 1
        order.append((seen[one.before, one.after], one))
    order.sort(key=lambda item: item[0])
    return [
        (
            dimension.display_name,
            format_input(a.pair.original, task),
            _format_answer(a.before),
            format_input(a.pair.counterfactual, task),
            _format_answer(a.after),
        )
        for _, a in order[: MAX_EXAMPLES_SHOWN // 4]
    ]


def _format_answer(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
