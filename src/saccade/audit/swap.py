"""The suite `swap`: texts about the other group, and whether a model answers them otherwise (Garg et al. 2019)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from saccade.audit.by import disaggregated
from saccade.audit.exchange import shown, twin
from saccade.audit.stats import mean, share
from saccade.audit.suite import Figure, Finding, Grid, Subject, Suite
from saccade.data import Example
from saccade.data.twins import Twin
from saccade.tasks.answering import answers
from saccade.tasks.task import Task
from saccade.text.swap import CONTROL, Dimension, dimensions, spoken

MOST = 2_000  # texts of a dimension that are asked about
FEW = 20  # cases below which nothing is said
LABELS = 4  # whose direction is given
SHOWN = 20  # examples that are kept
BASELINE = (
    "A model that does not look at the group changes no answer, and its right answers are equally many on both sides: every "
    "difference is read against 0. How often an answer changes is read against the control, plain words exchanged for plain "
    "words (Monday for Tuesday), where the texts have enough of them; a model that trembles at any change does so there too."
)
LIMITS = (
    "Only words of a list are exchanged, one dimension at a time; a group that no listed word names is not seen, and some "
    "exchanges make texts that nobody would write. A changed answer can be right (a text on the sisters of a convent), and an "
    "answer that stays can be equally unfair to both. What is not in your own test data is not asked. With several figures at "
    "once, one in twenty lies apart by chance."
)


@dataclass(frozen=True)
class Asked:
    """One pair of texts, and what the model said of each."""

    pair: Twin
    before: Any
    after: Any
    right: tuple[bool, bool] | None

    def by_side(self, values: tuple[Any, Any]) -> tuple[Any, Any]:
        """Values of the text before and after, as first side and other side."""
        return values if self.pair.side == 0 else (values[1], values[0])


class Swap(Suite):
    name = "swap"
    said = "your own texts about the other group: how often the answer changes, and which way; scores by a column of the data"
    reads = ("held",)

    def unfit(self, task: Task) -> str:
        if task.counterfactual_roles and not task.reads_sentences:
            return "it exchanges words, and these models look at pictures"
        return (
            "" if task.counterfactual_roles else f"it compares answers to readers' questions, and {task.name} is none"
        )

    def run(self, subject: Subject) -> Finding:
        task = subject.task
        found = spoken(shown(example, task) for example in subject.held[:MOST])
        figures, few, rows, same = [], [], [], []
        control = _control(subject, found)
        if control is not None:
            figures.append(control)
        base = control.value if control is not None else 0.0
        for dimension in (one for code in found for one in dimensions(code)):
            asked = _asked(subject, dimension)
            if len(asked) < FEW:
                few.append(f"{dimension.called} ({len(asked)})")
                continue
            figures += _figures(task, dimension, asked, base)
            rows += _rows(task, dimension, [one for one in asked if one.before != one.after])
            same += _rows(task, dimension, [one for one in asked if one.before == one.after])
        grids, more, remarks = disaggregated(subject)
        title = "Answers that changed" if rows else "No answer changed; some texts that were asked"
        heads = ("dimension", "text", "answer", "exchanged", "answer")
        examples = Grid(title, heads, tuple((rows or same)[:SHOWN]))
        notes = [f"{len(subject.held):,} texts were looked at, with words of {', '.join(found)}."]
        if few:
            notes.append(f"Fewer than {FEW} texts have a word to exchange, so nothing is said of {', '.join(few)}.")
        shown_ones = examples if examples.rows else None
        return Finding(self.name, (*figures, *more), BASELINE, LIMITS, grids, shown_ones, (*notes, *remarks))


def _asked(subject: Subject, dimension: Dimension) -> list[Asked]:
    """Every text with a word to exchange, before and after, and what the model says of it."""
    task, model = subject.task, subject.need_model()
    found = (twin(task, example, dimension) for example in subject.held)
    pairs = [pair for pair in found if pair is not None][:MOST]
    if len(pairs) < FEW:
        return [Asked(pair, None, None, None) for pair in pairs]
    both = [_bare(pair.before, pair) for pair in pairs] + [pair.after for pair in pairs]
    given, _ = answers(task, model, both, told=lambda done, of: subject.told(done, of))
    half = len(pairs)
    hidden = task.hidden([pair.before for pair in pairs])
    out = []
    for pair, one, other, kept in zip(pairs, given[:half], given[half:], hidden, strict=True):
        first = task.carried(task.comparable(one, pair.before), pair)
        right = None
        if task.has_right_answers and not kept and not _lacks(pair.before):
            right = (task.wrong(one, pair.before) is None, task.wrong(other, pair.after) is None)
        out.append(Asked(pair, first, task.comparable(other, pair.after), right))
    return out


def _bare(example: Example, pair: Twin) -> Example:
    """The example as its counterpart is given, with the same values and no more."""
    return Example({role: example[role] for role in pair.after.values}, example.file, example.line)


def _lacks(example: Example) -> bool:
    return not any(role in example for role in ("label", "labels", "tags"))


def _control(subject: Subject, codes: Sequence[str]) -> Figure | None:
    """How often an answer changes with a word that stands for no group."""
    for dimension in (one for code in codes for one in dimensions(code, control=True)):
        asked = _asked(subject, dimension)
        if len(asked) >= FEW and not subject.task.predicts_number:
            return share(f"{CONTROL}: answers that change", [one.before != one.after for one in asked])
    return None


def _figures(task: Task, dimension: Dimension, asked: Sequence[Asked], base: float) -> Iterator[Figure]:
    """How often, and which way."""
    name, (left, right) = dimension.called, dimension.sides
    sided = [one for one in asked if one.pair.side is not None]
    between = f"{left} minus {right}"
    if task.predicts_number:
        yield mean(f"{name}: size of the change of the number", [abs(a.before - a.after) for a in asked])
        if len(sided) >= FEW:
            values = [a - b for a, b in (one.by_side((one.before, one.after)) for one in sided)]
            yield mean(f"{name}: the number, {between}", values, baseline=0.0)
        return
    yield share(f"{name}: answers that change", [one.before != one.after for one in asked], baseline=base)
    told = [one for one in sided if one.right is not None]
    if len(told) >= FEW:
        values = [float(a) - float(b) for a, b in (one.by_side(one.right) for one in told if one.right is not None)]
        yield mean(f"{name}: right answers, {between}", values, baseline=0.0)
    if task.counts_labels and len(sided) >= FEW:
        yield from _directions(task, f"{name}:", between, sided)


def _directions(task: Task, front: str, between: str, asked: Sequence[Asked]) -> list[Figure]:
    """How much more often each label is given to one side than to the other, the largest differences first."""
    sides = [one.by_side((one.before, one.after)) for one in asked]
    given = {label for pair in sides for label in pair}
    labels = [label for label in task.labels if label in given or len(task.labels) == 2]
    made = [
        mean(f"{front} {label!r}, {between}", [float(a == label) - float(b == label) for a, b in sides], baseline=0.0)
        for label in labels
    ]
    if len(made) == 2:  # of two labels one says all: the last, so that two audits can be compared
        return made[1:]
    return sorted(made, key=lambda one: -abs(one.value))[:LABELS]


def _rows(task: Task, dimension: Dimension, asked: Sequence[Asked]) -> list[tuple[str, ...]]:
    """The first few of some texts, of each pair of answers the first ones first."""
    seen: Counter[Any] = Counter()
    order = []
    for one in asked:
        seen[one.before, one.after] += 1
        order.append((seen[one.before, one.after], one))
    order.sort(key=lambda item: item[0])
    return [
        (dimension.called, shown(a.pair.before, task), _told(a.before), shown(a.pair.after, task), _told(a.after))
        for _, a in order[: SHOWN // 4]
    ]


def _told(value: Any) -> str:
    return (
        ", ".join(map(str, value))
        if isinstance(value, tuple)
        else f"{value:.3g}"
        if isinstance(value, float)
        else str(value)
    )
