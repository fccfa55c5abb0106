"""An evaluation as text: scores, baseline, a table of the classes, the confusion matrix, mistakes, a comparison."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from saccade.metrics import ClassScore, ConfusionMatrix, average_class_scores
from saccade.metrics.class_scores import CLASS_SCORE_COLUMNS
from saccade.render.svg import display_width, format_label

if TYPE_CHECKING:
    from saccade.training.evaluation.evaluation import Evaluation
    from saccade.training.evaluation.mistakes import Mistake

MAX_CLASSES_SHOWN = 30
MAX_CONFUSION_COLUMNS = 100  # width of a confusion matrix; a wider one is shown as a list of its largest cells
MAX_CONFUSIONS_SHOWN = 10
MAX_MISTAKES_SHOWN = 5
MAX_LABEL_COLUMNS = 24
MAX_CELL_COLUMNS = 60


def format_report(evaluation: "Evaluation") -> str:
    """The scores, and everything else that an evaluation has, in paragraphs."""
    paragraphs = [
        [*map(str, evaluation.scores), *format_baseline(evaluation)],
        _format_classes(evaluation.per_class),
        _format_confusion(evaluation.confusion),
        _format_mistakes(evaluation),
        format_comparison(evaluation),
    ]
    return "\n\n".join("\n".join(lines) for lines in paragraphs if lines)


def format_baseline(evaluation: "Evaluation") -> list[str]:
    """The scores of the baseline in a line; none if it is unknown."""
    if not evaluation.baseline:
        return []
    scores = ", ".join(str(score).partition("),")[0] + ")" for score in evaluation.baseline)
    return [f"baseline, {evaluation.baseline_description}: {scores}"]


def _format_classes(scores: Sequence[ClassScore]) -> list[str]:
    """A table with a row for each class; of very many classes, those with the lowest F1."""
    if not scores:
        return []
    shown, lines = list(scores), []
    if len(shown) > MAX_CLASSES_SHOWN:
        shown = sorted(scores, key=lambda one: one.f1)[:MAX_CLASSES_SHOWN]
        lines = [f"the {MAX_CLASSES_SHOWN} of {len(scores):,} classes with the lowest F1; --json has all"]
    rows = [one.cells() for one in [*shown, *average_class_scores(scores)]]
    table = _align_rows([CLASS_SCORE_COLUMNS, *rows])
    return [*lines, *table[: len(shown) + 1], "", *table[len(shown) + 1 :]]


def _format_confusion(confusion: ConfusionMatrix | None) -> list[str]:
    """The confusion matrix or, if it is too wide, its largest cells beside the diagonal."""
    if confusion is None:
        return []
    labels = [str(label) for label in confusion.labels]
    rows = [("", *labels)]
    rows += [(label, *(f"{n:,}" for n in row)) for label, row in zip(labels, confusion.counts.tolist(), strict=True)]
    lines = _align_rows(rows)
    if display_width(lines[0]) <= MAX_CONFUSION_COLUMNS:
        return ["confusion matrix: rows are gold labels, columns are predictions", *lines]
    wrong = confusion.counts - np.diag(np.diag(confusion.counts))
    largest = [divmod(int(cell), len(labels)) for cell in np.argsort(-wrong, axis=None, kind="stable")]
    cells = [(f"{wrong[i, j]:,}", labels[i], labels[j]) for i, j in largest[:MAX_CONFUSIONS_SHOWN] if wrong[i, j]]
    listed = [f"{count:>7}  {_shorten(gold)} → {_shorten(answer)}" for count, gold, answer in cells]
    return ["largest confusions, gold label → prediction; --json has the whole matrix", *listed] if cells else []


def _format_mistakes(evaluation: "Evaluation") -> list[str]:
    mistakes = evaluation.mistakes
    if not evaluation.task.has_mistakes or not mistakes:
        return []
    more = "" if len(mistakes) <= MAX_MISTAKES_SHOWN else "; --mistakes FILE writes all"
    if evaluation.task.predicts_number:
        title = f"largest absolute errors of {evaluation.examples:,} examples{more}"
    else:
        order = ", most confident first" if mistakes[0].confidence else ""
        title = f"{len(mistakes):,} of {evaluation.examples:,} examples are mistakes{order}{more}"
    return [title, *(_format_mistake(mistake) for mistake in mistakes[:MAX_MISTAKES_SHOWN])]


def _format_mistake(mistake: "Mistake") -> str:
    record = mistake.as_dict()
    inputs = [
        _shorten(str(value), MAX_CELL_COLUMNS)
        for name, value in record.items()
        if name not in ("file", "line", "id", "gold", "answer", "probability", "absolute_error")
    ]
    place = f"line {mistake.example.line:,}" if mistake.id is None else f"id {mistake.id}"
    certainty = f" {mistake.confidence:.0%}" if mistake.confidence else ""
    if mistake.absolute_error is not None:
        certainty = f", error {mistake.cells['absolute_error']}"
    gold, answer = (_shorten(mistake.cells[name], MAX_CELL_COLUMNS) for name in ("gold", "answer"))
    return f"  {place}: gold {gold}, predicted {answer}{certainty}: {' | '.join(inputs)}"


def format_comparison(evaluation: "Evaluation") -> list[str]:
    """A line for each metric that says which of two runs is better, by how much, and how certain that is."""
    if evaluation.other is None:
        return []
    names = evaluation.name, evaluation.other.name
    title = f"{names[0]} against {names[1]}, paired bootstrap on the same {evaluation.examples:,} examples"
    return [title, *(f"  {one.describe(*names)}" for one in evaluation.comparisons)]


def _shorten(text: str, columns: int = MAX_LABEL_COLUMNS) -> str:
    return format_label(text, columns)


def _align_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as lines: the first column is aligned to the left, the others to the right.

    >>> _align_rows([("", "n"), ("spam", "12")])
    ['       n', 'spam  12']
    """
    cells = [[_shorten(cell) for cell in row] for row in rows]
    widths = [max(map(display_width, column)) for column in zip(*cells, strict=True)]
    lines = []
    for first, *others in cells:
        padded = [" " * (width - display_width(cell)) + cell for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first + " " * (widths[0] - display_width(first)), *padded]))
    return lines
