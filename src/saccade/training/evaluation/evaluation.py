"""`Evaluation`: scores with confidence intervals and per class, the confusion matrix, the mistakes, and a paired comparison."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from saccade.data import Example
from saccade.errors import UsageError
from saccade.metrics import ClassScore, Comparison, ConfusionMatrix, Score, average_class_scores, compare_scores
from saccade.metrics.score import SCORE_COLUMNS, record_resamples
from saccade.notebook import html_table
from saccade.tasks.base import Task
from saccade.tasks.interface.predictions import Predictions
from saccade.training.evaluation.format_report import format_baseline, format_comparison, format_report
from saccade.training.evaluation.mistakes import Mistake, Mistakes


@dataclass(frozen=True, repr=False)
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
    name: str = "the first"  # of the run
    other: "Evaluation | None" = field(default=None, repr=False)  # of the run that it is compared with

    def __str__(self) -> str:
        return "\n".join(map(str, self.scores))

    def __repr__(self) -> str:
        more = ["  report() has everything; mistakes, per_class, confusion and predictions are attributes"]
        lines = [*map(str, self.scores), *format_baseline(self), *format_comparison(self)]
        return "\n".join([f"Evaluation({self.examples:,} examples)", *(f"  {line}" for line in lines), *more])

    def _repr_html_(self) -> str:
        return html_table(SCORE_COLUMNS, [score.cells() for score in self.scores])

    def report(self) -> str:
        """The evaluation as text: scores, baseline, a table of the classes, the confusion matrix, mistakes and comparison."""
        return format_report(self)

    def as_dict(self) -> dict[str, Any]:
        """Everything but the predictions as plain values that JSON can hold: scores, classes, confusion matrix, mistakes."""
        counts = {"examples": self.examples, "unlabeled": self.unlabeled, "engine": self.engine}
        values = {**counts, **self.settings, "scores": [vars(score) for score in self.scores]}
        if self.confusion is not None:
            labels = [str(label) for label in self.confusion.labels]
            values["confusion"] = {"labels": labels, "counts": self.confusion.counts.tolist()}
        if self.per_class:
            values["classes"] = [vars(score) for score in self.per_class]
            values["averages"] = [vars(score) for score in average_class_scores(self.per_class)]
        if self.baseline:
            scores = [vars(score) for score in self.baseline]
            values["baseline"] = {"description": self.baseline_description, "scores": scores}
        if self.task.has_mistakes:
            values["mistakes"] = self.mistakes.as_dicts()
        if self.other is not None:
            differences = [one.as_dict() for one in self.comparisons]
            scores = [vars(score) for score in self.other.scores]
            values["comparison"] = {"other": self.other.name, "scores": scores, "differences": differences}
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
        return self.task.confusion_matrix(self.answers, self.evaluated)

    @cached_property
    def per_class(self) -> list[ClassScore]:
        """Precision, recall, F1 and support of each class; empty for a task whose predictions are not classes."""
        return self.task.class_scores(self.answers, self.evaluated)

    @cached_property
    def mistakes(self) -> Mistakes:
        """The wrong predictions, most confident first; predicted numbers by their absolute error, largest first."""
        rows = (
            (self.task.error_row(answer, example), example)
            for answer, example in zip(self.answers, self.evaluated, strict=True)
        )
        wrong = [Mistake(row, example) for row, example in rows if row is not None]
        return Mistakes(sorted(wrong, key=lambda mistake: -mistake.row.sort_key))

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """The comparison with `other`, metric by metric; empty without another evaluation."""
        return [] if self.other is None else self.compare(self.other)

    def compare(self, other: "Evaluation") -> list[Comparison]:
        """Compare with the evaluation of another model on the same examples, by a paired bootstrap of every metric."""
        if self.task.name != other.task.name or len(self.evaluated) != len(other.evaluated):
            raise UsageError(
                f"A paired comparison needs the same task and the same examples; got {self.task.name} on {len(self.evaluated):,} "
                f"and {other.task.name} on {len(other.evaluated):,}."
            )
        if any(a.values != b.values for a, b in zip(self.evaluated, other.evaluated, strict=True)):
            raise UsageError("A paired comparison needs the same examples in the same order; these differ.")
        return compare_scores(self.scores, other.scores, self._resample(), other._resample())

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
