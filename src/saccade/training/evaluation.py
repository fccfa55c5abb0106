"""`Evaluation`: scores with confidence intervals and per class, the confusion matrix, the mistakes, and a paired comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from saccade.data import Example
from saccade.errors import UsageError
from saccade.metrics import ConfusionMatrix, Score, confusion_matrix
from saccade.metrics.score import SCORE_COLUMNS, record_resamples
from saccade.notebook import html_table
from saccade.tasks.base import ErrorRow, Task
from saccade.tasks.interface.predictions import Predictions

MAX_MISTAKES_SHOWN = 20


@dataclass(frozen=True)
class ClassScore:
    """Precision, recall and F1 of one class.

    >>> print(ClassScore("spam", 0.5, 1.0, 10))
    spam: precision 0.500, recall 1.000, F1 0.667, 10 examples
    """

    label: str
    precision: float
    recall: float
    count: int  # examples with this gold label

    @property
    def f1(self) -> float:
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0

    def cells(self) -> tuple[str, ...]:
        """Label, precision, recall, F1 and count, as a table shows them."""
        return self.label, f"{self.precision:.3f}", f"{self.recall:.3f}", f"{self.f1:.3f}", f"{self.count:,}"

    def __str__(self) -> str:
        label, precision, recall, f1, count = self.cells()
        return f"{label}: precision {precision}, recall {recall}, F1 {f1}, {count} examples"


@dataclass(frozen=True)
class Comparison:
    """The difference between two systems on the same examples, with the confidence interval of a paired bootstrap.

    >>> print(Comparison("accuracy", 0.04, 0.01, 0.07, "higher"))
    accuracy +0.040 (+0.010 to +0.070): the first is better
    >>> print(Comparison("perplexity", 0.5, -0.2, 1.2, "lower"))
    perplexity +0.500 (-0.200 to +1.200): no significant difference
    """

    name: str
    difference: float  # the first minus the second
    low: float  # 95 % confidence interval of the difference
    high: float
    better: str = "higher"

    @property
    def is_significant(self) -> bool:
        """Whether the confidence interval excludes zero."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        verdict = "no significant difference"
        if self.is_significant:
            verdict = f"the {'first' if (self.difference > 0) == (self.better == 'higher') else 'second'} is better"
        return f"{self.name} {self.difference:+.3f} ({self.low:+.3f} to {self.high:+.3f}): {verdict}"


@dataclass(frozen=True)
class Evaluation:
    """Scores on a set of examples, the task's main metric first, and the predictions that they are computed from."""

    scores: list[Score]
    examples: int
    unlabeled: int  # examples that were left out because they have no labels
    engine: str  # off, or the precision of the optimized model
    settings: dict[str, int]  # of a language model: window and context, in tokens
    task: Task = field(repr=False)
    answers: Sequence[Any] = field(repr=False)
    evaluated: Sequence[Example] = field(repr=False)  # the examples; of a language model, windows of the text
    # scores of a rule that ignores the input; empty if the training data are unknown
    baseline: list[Score] = field(default_factory=list)
    baseline_description: str = ""

    def __str__(self) -> str:
        return "\n".join(map(str, self.scores))

    def _repr_html_(self) -> str:
        return html_table(SCORE_COLUMNS, [score.cells() for score in self.scores])

    def as_dict(self) -> dict[str, Any]:
        """The scores, the per-class scores and the confusion matrix as plain values that JSON can hold."""
        counts = {"examples": self.examples, "unlabeled": self.unlabeled, "engine": self.engine}
        values = {**counts, **self.settings, "scores": [vars(score) for score in self.scores]}
        if self.confusion is not None:
            values["confusion"] = {
                "labels": [str(label) for label in self.confusion.labels],
                "counts": self.confusion.counts.tolist(),
            }
            values["classes"] = [vars(score) | {"f1": score.f1} for score in self.per_class]
        if self.baseline:
            values["baseline"] = {
                "description": self.baseline_description,
                "scores": [vars(score) for score in self.baseline],
            }
        return values

    @cached_property
    def predictions(self) -> Predictions:
        """The predictions, in the order of the examples."""
        pairs = zip(self.answers, self.evaluated, strict=True)
        return Predictions(
            (self.task.to_prediction(answer, example) for answer, example in pairs), labels=self.task.labels
        )

    @cached_property
    def confusion(self) -> ConfusionMatrix | None:
        """Counts of each gold label and predicted label; None for a task whose predictions are not classes."""
        pairs = [self.task.confusion_pair(a, e) for a, e in zip(self.answers, self.evaluated, strict=True)]
        classes = [pair for pair in pairs if pair is not None]
        return (
            confusion_matrix([gold for gold, _ in classes], [predicted for _, predicted in classes])
            if classes
            else None
        )

    @property
    def per_class(self) -> list[ClassScore]:
        """Precision, recall and F1 of each class; empty for a task whose predictions are not classes."""
        if self.confusion is None:
            return []
        counts = self.confusion.counts
        columns = zip(self.confusion.labels, np.diag(counts), counts.sum(1), counts.sum(0), strict=True)
        return [
            ClassScore(str(label), float(correct / max(1, predicted)), float(correct / max(1, gold)), int(gold))
            for label, correct, gold, predicted in columns
        ]

    @cached_property
    def mistakes(self) -> "Mistakes":
        """The wrong predictions, most confident first."""
        rows = (
            (self.task.error_row(answer, example), example)
            for answer, example in zip(self.answers, self.evaluated, strict=True)
        )
        wrong = [Mistake(row, example) for row, example in rows if row is not None]
        return Mistakes(sorted(wrong, key=lambda mistake: -mistake.confidence))

    def compare(self, other: "Evaluation") -> list[Comparison]:
        """Compare with the evaluation of another model on the same examples, by a paired bootstrap of every metric."""
        if self.task.name != other.task.name or len(self.evaluated) != len(other.evaluated):
            raise UsageError(
                f"A paired comparison needs the same task and the same examples; got {self.task.name} on {len(self.evaluated):,} "
                f"and {other.task.name} on {len(other.evaluated):,}."
            )
        if any(a.values != b.values for a, b in zip(self.evaluated, other.evaluated, strict=True)):
            raise UsageError("A paired comparison needs the same examples in the same order; these differ.")
        mine, theirs = self._resample(), other._resample()
        values = {score.name: score.value for score in other.scores}
        comparisons = []
        for score in self.scores:
            if score.name in values and score.name in mine and score.name in theirs:
                low, high = np.quantile(mine[score.name] - theirs[score.name], [0.025, 0.975])
                difference = score.value - values[score.name]
                comparisons.append(Comparison(score.name, difference, float(low), float(high), score.better))
        return comparisons

    def _resample(self) -> dict[str, np.ndarray]:
        """The bootstrap values of every metric."""
        with record_resamples() as values:
            self.task.score(self.answers, self.evaluated)
        return values

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row for each example: its values, the fields of the prediction, and whether it is wrong."""
        try:
            import pandas
        except ImportError:
            raise UsageError("to_pandas needs pandas: pip install pandas.") from None
        rows = []
        for answer, example, prediction in zip(self.answers, self.evaluated, self.predictions, strict=True):
            predicted = {f"predicted_{name}": value for name, value in prediction.as_dict().items()}
            wrong = (
                {"is_mistake": self.task.error_row(answer, example) is not None} if self.task.has_right_answers else {}
            )
            rows.append({**example.values, **predicted, **wrong})
        return pandas.DataFrame(rows)


@dataclass(frozen=True)
class Mistake:
    """A wrong prediction: its cells in a table of mistakes, and the example with its file and line."""

    row: ErrorRow = field(repr=False)
    example: Example = field(repr=False)

    @property
    def cells(self) -> Mapping[str, str]:
        """The input, the gold answer and the prediction as text, by column."""
        return self.row.cells

    @property
    def confidence(self) -> float:
        """Probability that the model gave to its wrong answer; 0 if unknown."""
        return self.row.confidence

    def as_dict(self) -> dict[str, Any]:
        return {"file": self.example.file, "line": self.example.line, **self.cells}

    def __repr__(self) -> str:
        return f"Mistake({', '.join(f'{name}={value!r:.60}' for name, value in self.cells.items())})"


class Mistakes(list[Mistake]):
    """Wrong predictions, most confident first, which a notebook shows as a table."""

    def __getitem__(self, index: Any) -> Any:
        selected = super().__getitem__(index)
        return Mistakes(selected) if isinstance(index, slice) else selected

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row for each mistake."""
        try:
            import pandas
        except ImportError:
            raise UsageError("to_pandas needs pandas: pip install pandas.") from None
        return pandas.DataFrame([mistake.as_dict() for mistake in self])

    def _repr_html_(self) -> str:
        shown = self[:MAX_MISTAKES_SHOWN]
        columns = list(dict.fromkeys(name for mistake in shown for name in mistake.cells))
        rows = [[mistake.cells.get(name, "") for name in columns] for mistake in shown]
        return html_table(columns, rows, caption=f"{len(self):,} mistakes, most confident first")
