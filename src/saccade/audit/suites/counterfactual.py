"""The suite `swap`: texts about the other group, and whether a model answers them otherwise (Garg et al. 2019)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from saccade.audit.disaggregate import disaggregate
from saccade.audit.stats import estimate_fraction, estimate_mean
from saccade.audit.suite import AuditSubject, AuditTable, Estimate, Suite, SuiteResult
from saccade.audit.suites.exchange import format_input, make_task_counterfactual
from saccade.data import Example
from saccade.data.counterfactual import Counterfactual
from saccade.tasks.base import Task
from saccade.tasks.predict import predict
from saccade.text.counterfactual_words import CONTROL_DIMENSION, Dimension, detect_languages, load_dimensions

MAX_TEXTS_PER_DIMENSION = 2_000  # texts of a dimension that are asked about
MIN_CASES = 20  # cases below which nothing is said
MAX_LABELS = 4  # whose direction is given
MAX_EXAMPLES_SHOWN = 20  # examples that are kept
INTERPRETATION = (
    "A model that does not look at the group changes no answer, and its right answers are equally many on both sides: every "
    "difference is read against 0. How often an answer changes is read against the control, plain words exchanged for plain "
    "words (Monday for Tuesday), where the texts have enough of them; a model that trembles at any change does so there too."
)
LIMITATIONS = (
    "Only words of a list are exchanged, one dimension at a time; a group that no listed word names is not seen, and some "
    "exchanges make texts that nobody would write. A changed answer can be right (a text on the sisters of a convent), and an "
    "answer that stays can be equally unfair to both. What is not in your own test data is not asked. With several figures at "
    "once, one in twenty lies apart by chance."
)


@dataclass(frozen=True)
class AnsweredPair:
    """One pair of texts, and what the model said of each."""

    pair: Counterfactual
    before: Any
    after: Any
    are_right: tuple[bool, bool] | None

    def order_by_side(self, values: tuple[Any, Any]) -> tuple[Any, Any]:
        """Values of the text before and after, as first side and other side."""
        return values if self.pair.side == 0 else (values[1], values[0])


class CounterfactualSuite(Suite):
    name = "counterfactual"
    description = "your texts rewritten about the other group: how often and in which direction predictions change; scores by column"
    requires = ("held_out",)

    def not_applicable(self, task: Task) -> str:
        if task.counterfactual_roles and not task.reads_sentences:
            return "it exchanges words, and these models look at pictures"
        return (
            "" if task.counterfactual_roles else f"it compares answers to readers' questions, and {task.name} is none"
        )

    def run(self, subject: AuditSubject) -> SuiteResult:
        task = subject.task
        found = detect_languages(format_input(example, task) for example in subject.held_out[:MAX_TEXTS_PER_DIMENSION])
        figures, few, rows, same = [], [], [], []
        control = _measure_control(subject, found)
        if control is not None:
            figures.append(control)
        base = control.value if control is not None else 0.0
        for dimension in (one for code in found for one in load_dimensions(code)):
            asked = _answer_pairs(subject, dimension)
            if len(asked) < MIN_CASES:
                few.append(f"{dimension.display_name} ({len(asked)})")
                continue
            figures += _measure_dimension(task, dimension, asked, base)
            rows += _example_rows(task, dimension, [one for one in asked if one.before != one.after])
            same += _example_rows(task, dimension, [one for one in asked if one.before == one.after])
        grids, more, remarks = disaggregate(subject)
        title = "Answers that changed" if rows else "No answer changed; some texts that were asked"
        heads = ("dimension", "text", "answer", "exchanged", "answer")
        examples = AuditTable(title, heads, tuple((rows or same)[:MAX_EXAMPLES_SHOWN]))
        notes = [f"{len(subject.held_out):,} texts were looked at, with words of {', '.join(found)}."]
        if few:
            notes.append(
                f"Fewer than {MIN_CASES} texts have a word to exchange, so nothing is said of {', '.join(few)}."
            )
        shown_ones = examples if examples.rows else None
        return SuiteResult(
            self.name, (*figures, *more), INTERPRETATION, LIMITATIONS, grids, shown_ones, (*notes, *remarks)
        )


def _answer_pairs(subject: AuditSubject, dimension: Dimension) -> list[AnsweredPair]:
    """Every text with a word to exchange, before and after, and what the model says of it."""
    task, model = subject.task, subject.need_model()
    found = (make_task_counterfactual(task, example, dimension) for example in subject.held_out)
    pairs = [pair for pair in found if pair is not None][:MAX_TEXTS_PER_DIMENSION]
    if len(pairs) < MIN_CASES:
        return [AnsweredPair(pair, None, None, None) for pair in pairs]
    both = [_drop_extra_roles(pair.original, pair) for pair in pairs] + [pair.counterfactual for pair in pairs]
    given, _ = predict(task, model, both, on_progress=lambda done, of: subject.on_progress(done, of))
    half = len(pairs)
    hidden = task.unlabeled_mask([pair.original for pair in pairs])
    out = []
    for pair, one, other, kept in zip(pairs, given[:half], given[half:], hidden, strict=True):
        first = task.map_to_counterfactual(task.to_comparable(one, pair.original), pair)
        right = None
        if task.has_right_answers and not kept and not _has_no_gold(pair.original):
            right = (task.error_row(one, pair.original) is None, task.error_row(other, pair.counterfactual) is None)
        out.append(AnsweredPair(pair, first, task.to_comparable(other, pair.counterfactual), right))
    return out


def _drop_extra_roles(example: Example, pair: Counterfactual) -> Example:
    """The example as its counterpart is given, with the same values and no more."""
    return Example({role: example[role] for role in pair.counterfactual.values}, example.file, example.line)


def _has_no_gold(example: Example) -> bool:
    return not any(role in example for role in ("label", "labels", "tags"))


def _measure_control(subject: AuditSubject, codes: Sequence[str]) -> Estimate | None:
    """How often an answer changes with a word that stands for no group."""
    for dimension in (one for code in codes for one in load_dimensions(code, control=True)):
        asked = _answer_pairs(subject, dimension)
        if len(asked) >= MIN_CASES and not subject.task.predicts_number:
            return estimate_fraction(
                f"{CONTROL_DIMENSION}: answers that change", [one.before != one.after for one in asked]
            )
    return None


def _measure_dimension(
    task: Task, dimension: Dimension, answered: Sequence[AnsweredPair], base: float
) -> Iterator[Estimate]:
    """How often, and which way."""
    name, (left, right) = dimension.display_name, dimension.sides
    sided = [one for one in answered if one.pair.side is not None]
    between = f"{left} minus {right}"
    if task.predicts_number:
        yield estimate_mean(f"{name}: size of the change of the number", [abs(a.before - a.after) for a in answered])
        if len(sided) >= MIN_CASES:
            values = [a - b for a, b in (one.order_by_side((one.before, one.after)) for one in sided)]
            yield estimate_mean(f"{name}: the number, {between}", values, baseline=0.0)
        return
    yield estimate_fraction(
        f"{name}: answers that change", [one.before != one.after for one in answered], baseline=base
    )
    told = [one for one in sided if one.are_right is not None]
    if len(told) >= MIN_CASES:
        values = [
            float(a) - float(b)
            for a, b in (one.order_by_side(one.are_right) for one in told if one.are_right is not None)
        ]
        yield estimate_mean(f"{name}: right answers, {between}", values, baseline=0.0)
    if task.compares_label_rates and len(sided) >= MIN_CASES:
        yield from _measure_directions(task, f"{name}:", between, sided)


def _measure_directions(task: Task, front: str, between: str, answered: Sequence[AnsweredPair]) -> list[Estimate]:
    """How much more often each label is given to one side than to the other, the largest differences first."""
    sides = [one.order_by_side((one.before, one.after)) for one in answered]
    given = {label for pair in sides for label in pair}
    labels = [label for label in task.labels if label in given or len(task.labels) == 2]
    made = [
        estimate_mean(
            f"{front} {label!r}, {between}", [float(a == label) - float(b == label) for a, b in sides], baseline=0.0
        )
        for label in labels
    ]
    if len(made) == 2:  # of two labels one says all: the last, so that two audits can be compared
        return made[1:]
    return sorted(made, key=lambda one: -abs(one.value))[:MAX_LABELS]


def _example_rows(task: Task, dimension: Dimension, answered: Sequence[AnsweredPair]) -> list[tuple[str, ...]]:
    """The first few of some texts, of each pair of answers the first ones first."""
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
    return (
        ", ".join(map(str, value))
        if isinstance(value, tuple)
        else f"{value:.3g}"
        if isinstance(value, float)
        else str(value)
    )
