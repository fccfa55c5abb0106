"""Two audits in one table: each figure before and after something was done about it, and whether the two can be told apart.

The interval of a difference is made of the two intervals (Zou and Donner 2008, doi 10.1002/sim.3095), as if the cases had
nothing to do with each other. Where both audits ask the same texts, true intervals are narrower, so a difference that is told
apart is one, and some that are not may be.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from saccade.audit.marks import SHORT, Audited
from saccade.audit.suite import Figure, Grid

WARNING = (
    "This does not solve it. Words of a list are exchanged or forbidden, and words of a list measure what comes of it, so these "
    "figures move more easily than what people get to read. Whom the list does not name, and what is said of them in other "
    "words, is as it was. A figure that is not told apart from the one before has not been shown to be the same. Read the "
    "examples, and say in the harm statement what remains."
)


@dataclass(frozen=True)
class Row:
    """One figure of a suite, before and after.

    >>> row = Row("swap", Figure("flips", 0.5, 0.4, 0.6, 90), Figure("flips", 0.1, 0.04, 0.2, 90))
    >>> [round(bound, 3) for bound in (row.difference, *row.bounds)], row.differs
    ([-0.4, -0.517, -0.259], True)
    """

    suite: str
    before: Figure
    after: Figure

    @property
    def difference(self) -> float:
        return self.after.value - self.before.value

    @property
    def bounds(self) -> tuple[float, float]:
        """The 95 % interval of the difference."""
        one, other = self.before, self.after
        below = math.hypot(other.value - other.low, one.high - one.value)
        above = math.hypot(other.high - other.value, one.value - one.low)
        return self.difference - below, self.difference + above

    @property
    def differs(self) -> bool:
        low, high = self.bounds
        return low > 0 or high < 0  # what is no number differs from nothing


@dataclass(frozen=True)
class Change:
    """What a later audit has of an earlier one's figures."""

    of: str  # the model before
    weights: str  # of the model after
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def suites(self) -> frozenset[str]:
        return frozenset(row.suite for row in self.rows)

    @property
    def grid(self) -> Grid:
        """The table for a person."""
        rows = tuple(
            (one.suite, one.before.name, _told(one.before), _told(one.after), _apart(one)) for one in self.rows
        )
        heads = ("suite", "figure", f"before ({self.of})", "after", "after less before")
        return Grid("Before and after", heads, rows)

    def as_dict(self) -> dict[str, Any]:
        rows = [
            asdict(one) | {"difference": one.difference, "bounds": list(one.bounds), "differs": one.differs}
            for one in self.rows
        ]
        return {"of": self.of, "weights": self.weights, "rows": rows, "notes": list(self.notes), "warning": WARNING}

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> "Change":
        """What `as_dict` made, read again."""
        rows = (Row(one["suite"], Figure(**one["before"]), Figure(**one["after"])) for one in raw["rows"])
        return cls(raw["of"], raw["weights"], tuple(rows), tuple(raw["notes"]))


def _told(one: Figure) -> str:
    return f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f})"


def _apart(row: Row) -> str:
    low, high = row.bounds
    return f"{row.difference:+.3f} ({low:+.3f} to {high:+.3f}), {'apart' if row.differs else 'not told apart'}"


def compare(before: Mapping[str, Audited], after: Mapping[str, Audited], of: str, weights: str) -> Change:
    """Suite by suite, the figures that both audits have; `of` says whose the earlier ones are."""
    rows: list[Row] = []
    notes: list[str] = []
    for name, now in after.items():
        was = before.get(now.finding.suite)  # what was written under a rule is read against what was written without
        if was is None:
            notes.append(f"{name}: {of} was not audited with this suite, so there is nothing to compare.")
            continue
        old, new = ({one.name: one for one in audited.finding.figures} for audited in (was, now))
        rows += [Row(name, old[figure], one) for figure, one in new.items() if figure in old]
        notes += _notes(name, was, now, [*(old.keys() - new.keys()), *(new.keys() - old.keys())])
    return Change(of, weights, tuple(rows), tuple(notes))


def _notes(name: str, was: Audited, now: Audited, lone: Sequence[str]) -> list[str]:
    """What keeps two audits from being compared as they stand."""
    found = []
    if was.mark.data != now.mark.data or was.mark.source != now.mark.source:
        marks = (audited.mark.data or audited.mark.source for audited in (was, now))
        before, after = (mark[:SHORT] or "none" for mark in marks)
        found.append(f"{name}: the texts that were asked are not the same ({before} before, {after} after).")
    if was.finding.judge != now.finding.judge:
        before, after = (audited.finding.judge or "our own" for audited in (was, now))
        found.append(
            f"{name}: the judge is not the same ({before} before, {after} after), so neither is what is judged."
        )
    if lone:
        found.append(f"{name}: only one of the two audits has {', '.join(sorted(lone))}.")
    return found
