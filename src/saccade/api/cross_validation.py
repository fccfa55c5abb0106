"""k-fold cross-validation: a run for each fold, tested on the fold and trained on the others, and a summary of their scores."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from saccade.errors import UsageError
from saccade.metrics import Score
from saccade.notebook import html_table
from saccade.training.events import RunResult
from saccade.training.prepare import Job

SUMMARY_FILE = "cross_validation.json"


@dataclass(frozen=True)
class Fold:
    """The training job of one fold, and the directory of its run."""

    number: int  # from 1
    job: Job
    directory: Path


def make_folds(job: Job, out: Path, count: int) -> list[Fold]:
    """A job for each fold, in the directories fold-1, fold-2 and so on."""
    if count < 2:
        raise UsageError(f"{count} folds: cross-validation needs at least 2, such as 5.")
    if "fold" in job.train_fields:
        raise UsageError("Cross-validation trains every fold; leave out train.fold.")
    numbers = range(1, count + 1)
    jobs = (replace(job, train_fields={**job.train_fields, "fold": f"{number}/{count}"}) for number in numbers)
    return [Fold(number, one, out / f"fold-{number}") for number, one in zip(numbers, jobs, strict=True)]


@dataclass(frozen=True)
class CrossValidation:
    """The test scores of each fold, with their mean and standard deviation over the folds.

    >>> folds = [[Score("accuracy", value, 0, 1, 50)] for value in (0.9, 0.8, 1.0)]
    >>> print(CrossValidation([Path(f"cv/fold-{i}") for i in (1, 2, 3)], folds))
    score     mean   std    fold 1  fold 2  fold 3
    accuracy  0.900  0.100  0.900   0.800   1.000
    """

    directories: list[Path]  # of the runs
    scores: list[list[Score]]  # of each fold on its test set, the metric of the task first

    @classmethod
    def from_results(cls, folds: Sequence[Fold], results: Sequence[RunResult]) -> "CrossValidation":
        return cls([fold.directory for fold in folds], [result.scores["test"] for result in results])

    @property
    def names(self) -> list[str]:
        """The names of the scores that every fold has."""
        return [
            score.name for score in self.scores[0] if all(any(s.name == score.name for s in f) for f in self.scores)
        ]

    def values(self, name: str) -> list[float]:
        """The value of a score in each fold."""
        return [next(score.value for score in fold if score.name == name) for fold in self.scores]

    def mean(self, name: str) -> float:
        """The mean of a score over the folds."""
        return statistics.fmean(self.values(name))

    def std(self, name: str) -> float:
        """The standard deviation of a score over the folds, with k - 1 in the denominator."""
        return statistics.stdev(self.values(name))

    def to_rows(self) -> list[list[str]]:
        """The rows of a table, the header first: name, mean, standard deviation and the value of each fold."""
        header = ["score", "mean", "std", *(f"fold {i + 1}" for i in range(len(self.scores)))]
        numbers = {name: [self.mean(name), self.std(name), *self.values(name)] for name in self.names}
        digits = {name: 3 if max(map(abs, values)) < 10 else 2 for name, values in numbers.items()}
        return [header, *([name, *(f"{x:.{digits[name]}f}" for x in values)] for name, values in numbers.items())]

    def __str__(self) -> str:
        rows = self.to_rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )

    def _repr_html_(self) -> str:
        header, *rows = self.to_rows()
        return html_table(header, rows, caption=f"{len(self.scores)} folds in {self.directories[0].parent}")

    def as_dict(self) -> dict[str, Any]:
        """Mean and standard deviation of each score, and all scores of each fold, as plain values that JSON can hold."""
        folds = zip(self.directories, self.scores, strict=True)
        return {
            "mean": {name: self.mean(name) for name in self.names},
            "std": {name: self.std(name) for name in self.names},
            "folds": [
                {"out": str(directory), "scores": [vars(score) for score in scores]} for directory, scores in folds
            ],
        }

    def write(self, out: Path) -> Path:
        """Write cross_validation.json into a directory."""
        path = out / SUMMARY_FILE
        path.write_text(json.dumps(self.as_dict(), ensure_ascii=False) + "\n", encoding="utf-8")
        return path
