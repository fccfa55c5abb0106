"""The interface of audit suites: a suite measures one model and returns its estimates, their interpretation and limitations.

A new suite is one file with a class, and one line in `audit/registry.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from saccade.data import Example, Splits
from saccade.metrics import Score
from saccade.models.model import Model
from saccade.tasks.base import Task


@dataclass(frozen=True)
class Estimate:
    """A metric with its 95 % confidence interval, and the baseline to compare it with.

    >>> print(Estimate("flips", 0.25, 0.125, 0.375, 64, 0.0))
    flips 0.250 (0.125 to 0.375), 64 cases, baseline 0: significant
    """

    name: str
    value: float
    low: float
    high: float
    count: int
    baseline: float | None = None

    @property
    def is_significant(self) -> bool:
        """Whether the baseline lies outside the confidence interval."""
        return self.baseline is not None and not self.low <= self.baseline <= self.high

    def __str__(self) -> str:
        comparison = ""
        if self.baseline is not None:
            comparison = (
                f", baseline {self.baseline:.3g}: {'significant' if self.is_significant else 'not significant'}"
            )
        return f"{self.name} {self.value:.3f} ({self.low:.3f} to {self.high:.3f}), {self.count:,} cases{comparison}"


def estimate_from_score(score: Score, baseline: float | None = None) -> Estimate:
    """The estimate with the value and interval of a score."""
    return Estimate(score.name, score.value, score.low, score.high, score.count, baseline)


@dataclass(frozen=True)
class AuditTable:
    """A table of an audit, with all cells as text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class SuiteResult:
    """The result of one suite: estimates, how to interpret them, their limitations, tables, examples and notes."""

    suite: str
    estimates: tuple[Estimate, ...]
    interpretation: str
    limitations: str
    tables: tuple[AuditTable, ...] = ()
    examples: AuditTable | None = None
    notes: tuple[str, ...] = ()
    bad_words: tuple[str, ...] = ()  # words that were excluded from generation
    classifier_name: str = ""  # the regard classifier; "" for the built-in one

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> "SuiteResult":
        """Restore a result from the output of `as_dict`."""
        examples = raw.get("examples")
        return cls(
            raw["suite"],
            tuple(Estimate(**estimate) for estimate in raw["estimates"]),
            raw["interpretation"],
            raw["limitations"],
            tuple(_table_from_dict(table) for table in raw.get("tables", ())),
            None if examples is None else _table_from_dict(examples),
            tuple(raw.get("notes", ())),
            tuple(raw.get("bad_words", ())),
            raw.get("classifier_name", ""),
        )


def _table_from_dict(raw: Mapping[str, Any]) -> AuditTable:
    return AuditTable(raw["title"], tuple(raw["columns"]), tuple(tuple(map(str, row)) for row in raw["rows"]))


@dataclass(frozen=True)
class AuditSubject:
    """The input of a suite: a model with its task, held-out data, training data and options."""

    task: Task
    model: Model | None = None
    held_out: Sequence[Example] = ()
    splits: Splits | None = None
    group_by: str = ""  # column for disaggregated scores; its values are in the role `group` of the examples
    test_sentences: tuple[Path, ...] = ()  # files of the user's own test sentences
    bad_words: tuple[str, ...] = ()  # words that are excluded from generation
    regard_classifier: tuple[Task, Model] | None = None  # None: the built-in classifier
    classifier_name: str = ""  # name and weights digest of `regard_classifier`, for the record
    on_progress: Callable[[int, int | None], None] = field(default=lambda done, of: None)

    def need_model(self) -> Model:
        if self.model is None:
            raise ValueError("This suite needs a model, and the audit has none; name a run instead of a task.")
        return self.model


class Suite:
    """Base class of audit suites; `audit/registry.py` lists them."""

    name: ClassVar[str]
    description: ClassVar[str]  # one line for `--suite list`
    requires: ClassVar[
        tuple[str, ...]
    ] = ()  # fields of the subject that it needs besides the model: "held_out", "splits"
    generates_text: ClassVar[bool] = False  # it evaluates generated text, so bad words can be excluded from generation

    def not_applicable(self, task: Task) -> str:
        """The reason why the suite does not apply to models for a task; "" if it applies."""
        raise NotImplementedError

    def run(self, subject: AuditSubject) -> SuiteResult:
        """Measure the model of a subject."""
        raise NotImplementedError

    def builtin_data_digest(self) -> str:
        """The hash of the suite's built-in test sentences, so that a change of them makes audits stale; "" if it has none."""
        return ""
