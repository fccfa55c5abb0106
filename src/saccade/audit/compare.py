"""Two audits in one table: each figure before and after something was done about it, and whether the two can be told apart.

The interval of a difference is made of the two intervals (Zou and Donner 2008, doi 10.1002/sim.3095), as if the cases had
nothing to do with each other. Where both audits ask the same texts, true intervals are narrower, so a difference that is told
apart is one, and some that are not may be.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from saccade.audit.fingerprints import MAX_DIGEST_CHARACTERS_SHOWN, AuditRecord
from saccade.audit.suite import AuditTable, Estimate

COMPARISON_WARNING = (
    "This does not solve it. Words of a list are exchanged or forbidden, and words of a list measure what comes of it, so these "
    "figures move more easily than what people get to read. Whom the list does not name, and what is said of them in other "
    "words, is as it was. A figure that is not told apart from the one before has not been shown to be the same. Read the "
    "examples, and say in the harm statement what remains."
)


@dataclass(frozen=True)
class ComparisonRow:
    """One figure of a suite, before and after.

    >>> row = ComparisonRow("counterfactual", Estimate("flips", 0.5, 0.4, 0.6, 90), Estimate("flips", 0.1, 0.04, 0.2, 90))
    >>> [round(bound, 3) for bound in (row.difference, *row.confidence_interval)], row.is_significant
    ([-0.4, -0.517, -0.259], True)
    """

    suite: str
    before: Estimate
    after: Estimate

    @property
    def difference(self) -> float:
        return self.after.value - self.before.value

    @property
    def confidence_interval(self) -> tuple[float, float]:
        """The 95 % interval of the difference."""
        one, other = self.before, self.after
        below = math.hypot(other.value - other.low, one.high - one.value)
        above = math.hypot(other.high - other.value, one.value - one.low)
        return self.difference - below, self.difference + above

    @property
    def is_significant(self) -> bool:
        low, high = self.confidence_interval
        return low > 0 or high < 0  # what is no number differs from nothing


@dataclass(frozen=True)
class AuditComparison:
    """What a later audit has of an earlier one's figures."""

    compared_to: str  # the model before
    weights_digest: str  # of the model after
    rows: tuple[ComparisonRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def suites(self) -> frozenset[str]:
        return frozenset(row.suite for row in self.rows)

    @property
    def table(self) -> AuditTable:
        """The table for a person."""
        rows = tuple(
            (
                one.suite,
                one.before.name,
                _format_estimate(one.before),
                _format_estimate(one.after),
                _format_difference(one),
            )
            for one in self.rows
        )
        heads = ("suite", "figure", f"before ({self.compared_to})", "after", "after less before")
        return AuditTable("Before and after", heads, rows)

    def as_dict(self) -> dict[str, Any]:
        rows = [
            asdict(one)
            | {
                "difference": one.difference,
                "confidence_interval": list(one.confidence_interval),
                "is_significant": one.is_significant,
            }
            for one in self.rows
        ]
        return {
            "compared_to": self.compared_to,
            "weights_digest": self.weights_digest,
            "rows": rows,
            "notes": list(self.notes),
            "warning": COMPARISON_WARNING,
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> "AuditComparison":
        """What `as_dict` made, read again."""
        rows = (ComparisonRow(one["suite"], Estimate(**one["before"]), Estimate(**one["after"])) for one in raw["rows"])
        return cls(raw["compared_to"], raw["weights_digest"], tuple(rows), tuple(raw["notes"]))


def _format_estimate(one: Estimate) -> str:
    return f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f})"


def _format_difference(row: ComparisonRow) -> str:
    low, high = row.confidence_interval
    return f"{row.difference:+.3f} ({low:+.3f} to {high:+.3f}), {'apart' if row.is_significant else 'not told apart'}"


def compare_audits(
    before: Mapping[str, AuditRecord], after: Mapping[str, AuditRecord], compared_to: str, weights_digest: str
) -> AuditComparison:
    """Suite by suite, the figures that both audits have; `of` says whose the earlier ones are."""
    rows: list[ComparisonRow] = []
    notes: list[str] = []
    for name, now in after.items():
        was = before.get(now.result.suite)  # what was written under a rule is read against what was written without
        if was is None:
            notes.append(f"{name}: {compared_to} was not audited with this suite, so there is nothing to compare.")
            continue
        old, new = ({one.name: one for one in audited.result.estimates} for audited in (was, now))
        rows += [ComparisonRow(name, old[figure], one) for figure, one in new.items() if figure in old]
        notes += _comparison_notes(name, was, now, [*(old.keys() - new.keys()), *(new.keys() - old.keys())])
    return AuditComparison(compared_to, weights_digest, tuple(rows), tuple(notes))


def _comparison_notes(name: str, was: AuditRecord, now: AuditRecord, lone: Sequence[str]) -> list[str]:
    """What keeps two audits from being compared as they stand."""
    found = []
    if (
        was.fingerprint.data_digest != now.fingerprint.data_digest
        or was.fingerprint.builtin_data_digest != now.fingerprint.builtin_data_digest
    ):
        marks = (audited.fingerprint.data_digest or audited.fingerprint.builtin_data_digest for audited in (was, now))
        before, after = (mark[:MAX_DIGEST_CHARACTERS_SHOWN] or "none" for mark in marks)
        found.append(f"{name}: the texts that were asked are not the same ({before} before, {after} after).")
    if was.result.classifier_name != now.result.classifier_name:
        before, after = (audited.result.classifier_name or "our own" for audited in (was, now))
        found.append(
            f"{name}: the judge is not the same ({before} before, {after} after), so neither is what is judged."
        )
    if lone:
        found.append(f"{name}: only one of the two audits has {', '.join(sorted(lone))}.")
    return found
