"""What an audit is: a suite looks at one model and gives a finding, which says what it measured and what it does not show.

A new suite is a file with a class, and a line in `audit/registry.py`.
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
    """One number with its 95 % interval, and the number that it is read against.

    >>> print(Estimate("flips", 0.25, 0.125, 0.375, 64, 0.0))
    flips 0.250 (0.125 to 0.375), 64 cases, against 0: apart
    """

    name: str
    value: float
    low: float
    high: float
    count: int
    baseline: float | None = None

    @property
    def is_significant(self) -> bool:
        """Whether chance alone would hardly put the number so far from what it is read against."""
        return self.baseline is not None and not self.low <= self.baseline <= self.high

    def __str__(self) -> str:
        against = ""
        if self.baseline is not None:
            against = f", against {self.baseline:.3g}: {'apart' if self.is_significant else 'not told apart'}"
        return f"{self.name} {self.value:.3f} ({self.low:.3f} to {self.high:.3f}), {self.count:,} cases{against}"


def estimate_from_score(score: Score, baseline: float | None = None) -> Estimate:
    """A score as a figure."""
    return Estimate(score.name, score.value, score.low, score.high, score.count, baseline)


@dataclass(frozen=True)
class AuditTable:
    """A table: its title, the names of its columns, and its rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class SuiteResult:
    """What a suite found: figures, what they are read against, tables, examples, notes, and what all this does not show."""

    suite: str
    estimates: tuple[Estimate, ...]
    interpretation: str
    limitations: str
    tables: tuple[AuditTable, ...] = ()
    examples: AuditTable | None = None
    notes: tuple[str, ...] = ()
    bad_words: tuple[str, ...] = ()  # what the model was forbidden to write
    classifier_name: str = ""  # who judged what it wrote, if not our own judge

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> "SuiteResult":
        """What `as_dict` made, read again."""
        examples = raw.get("examples")
        return cls(
            raw["suite"],
            tuple(Estimate(**one) for one in raw["estimates"]),
            raw["interpretation"],
            raw["limitations"],
            tuple(_table_from_dict(one) for one in raw.get("tables", ())),
            None if examples is None else _table_from_dict(examples),
            tuple(raw.get("notes", ())),
            tuple(raw.get("bad_words", ())),
            raw.get("classifier_name", ""),
        )


def _table_from_dict(raw: Mapping[str, Any]) -> AuditTable:
    return AuditTable(raw["title"], tuple(raw["columns"]), tuple(tuple(map(str, row)) for row in raw["rows"]))


@dataclass(frozen=True)
class AuditSubject:
    """What is audited: a model with its task, data that it did not learn from, and those that it did."""

    task: Task
    model: Model | None = None
    held_out: Sequence[Example] = ()
    splits: Splits | None = None
    group_by: str = ""  # the column by which scores are told apart; its values are the role of that name
    test_sentences: tuple[Path, ...] = ()  # test sentences of the user's own
    bad_words: tuple[str, ...] = ()  # words that the model may not write
    regard_classifier: tuple[Task, Model] | None = None  # who judges what it writes, if not our own judge
    classifier_name: str = ""  # that judge's name and the mark of its weights, for the record
    on_progress: Callable[[int, int | None], None] = field(default=lambda done, of: None)

    def need_model(self) -> Model:
        if self.model is None:
            raise ValueError("This suite asks a model, and there is none; name a run.")
        return self.model


class Suite:
    """One line of SUITES."""

    name: ClassVar[str]
    description: ClassVar[str]  # one line for a person
    requires: ClassVar[tuple[str, ...]] = ()  # what it needs of a subject beside the model: "held_out", "splits"
    generates_text: ClassVar[bool] = False  # it judges texts that the model writes, so words can be forbidden there

    def not_applicable(self, task: Task) -> str:
        """Why it says nothing of models for a task; "" where it applies."""
        raise NotImplementedError

    def run(self, subject: AuditSubject) -> SuiteResult:
        raise NotImplementedError

    def builtin_data_digest(self) -> str:
        """A mark of the test sentences that it brings along, so that others make an audit stale; "" where it brings none."""
        return ""
