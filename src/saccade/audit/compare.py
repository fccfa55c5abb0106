"""Comparison of two audits, such as before and after a bias mitigation: each metric, its difference and its significance.

The confidence interval of a difference is derived from the two intervals (Zou and Donner 2008, doi 10.1002/sim.3095), as if the
cases were independent. If both audits use the same texts, the true interval is narrower: a difference reported as significant
is significant, and some of the others may be too.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from saccade.audit.fingerprints import MAX_DIGEST_CHARACTERS_SHOWN, AuditRecord
from saccade.audit.suite import AuditTable, Estimate

COMPARISON_WARNING = (
    "This does not solve the problem. Mitigations swap or exclude listed words, and audits measure the effect with listed words, "
    "so these metrics improve more easily than what people get to read. Groups that the list does not name, and statements about "
    "them in other words, are as before. A difference that is not significant does not show that nothing changed. Read the "
    "examples, and state in the harm statement what remains."
)


@dataclass(frozen=True)
class ComparisonRow:
    """One metric of a suite, before and after.

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
        """The 95 % confidence interval of the difference."""
        before, after = self.before, self.after
        below = math.hypot(after.value - after.low, before.high - before.value)
        above = math.hypot(after.high - after.value, before.value - before.low)
        return self.difference - below, self.difference + above

    @property
    def is_significant(self) -> bool:
        """Whether the confidence interval of the difference excludes zero."""
        low, high = self.confidence_interval
        return low > 0 or high < 0  # False for NaN


@dataclass(frozen=True)
class AuditComparison:
    """The metrics that a later audit shares with an earlier one."""

    compared_to: str  # name of the earlier model
    weights_digest: str  # of the later model
    rows: tuple[ComparisonRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def suites(self) -> frozenset[str]:
        return frozenset(row.suite for row in self.rows)

    @property
    def table(self) -> AuditTable:
        """The comparison as a table of text."""
        rows = tuple(
            (
                row.suite,
                row.before.name,
                _format_estimate(row.before),
                _format_estimate(row.after),
                _format_difference(row),
            )
            for row in self.rows
        )
        columns = ("suite", "metric", f"before ({self.compared_to})", "after", "difference")
        return AuditTable("Before and after", columns, rows)

    def as_dict(self) -> dict[str, Any]:
        rows = [
            asdict(row)
            | {
                "difference": row.difference,
                "confidence_interval": list(row.confidence_interval),
                "is_significant": row.is_significant,
            }
            for row in self.rows
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
        """Restore a comparison from the output of `as_dict`."""
        rows = (ComparisonRow(row["suite"], Estimate(**row["before"]), Estimate(**row["after"])) for row in raw["rows"])
        return cls(raw["compared_to"], raw["weights_digest"], tuple(rows), tuple(raw["notes"]))


def _format_estimate(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"


def _format_difference(row: ComparisonRow) -> str:
    low, high = row.confidence_interval
    verdict = "significant" if row.is_significant else "not significant"
    return f"{row.difference:+.3f} ({low:+.3f} to {high:+.3f}), {verdict}"


def compare_audits(
    before: Mapping[str, AuditRecord], after: Mapping[str, AuditRecord], compared_to: str, weights_digest: str
) -> AuditComparison:
    """Compare, suite by suite, the metrics that both audits have; `compared_to` names the earlier model."""
    rows: list[ComparisonRow] = []
    notes: list[str] = []
    for name, new in after.items():
        old = before.get(new.result.suite)  # an audit with bad words is compared with the one without
        if old is None:
            notes.append(f"{name}: {compared_to} was not audited with this suite, so there is nothing to compare.")
            continue
        old_estimates, new_estimates = ({one.name: one for one in audit.result.estimates} for audit in (old, new))
        rows += [
            ComparisonRow(name, old_estimates[metric], estimate)
            for metric, estimate in new_estimates.items()
            if metric in old_estimates
        ]
        notes += _comparison_notes(name, old, new, old_estimates.keys() ^ new_estimates.keys())
    return AuditComparison(compared_to, weights_digest, tuple(rows), tuple(notes))


def _comparison_notes(name: str, old: AuditRecord, new: AuditRecord, unmatched: Collection[str]) -> list[str]:
    """Differences in data, classifier and metrics that limit the comparison of two audits."""
    notes = []
    if (
        old.fingerprint.data_digest != new.fingerprint.data_digest
        or old.fingerprint.builtin_data_digest != new.fingerprint.builtin_data_digest
    ):
        digests = (audit.fingerprint.data_digest or audit.fingerprint.builtin_data_digest for audit in (old, new))
        before, after = (digest[:MAX_DIGEST_CHARACTERS_SHOWN] or "none" for digest in digests)
        notes.append(f"{name}: the two audits used different texts ({before} before, {after} after).")
    if old.result.classifier_name != new.result.classifier_name:
        before, after = (audit.result.classifier_name or "built-in" for audit in (old, new))
        notes.append(
            f"{name}: the two audits used different classifiers ({before} before, {after} after), "
            "so their scores are not comparable."
        )
    if unmatched:
        notes.append(f"{name}: only one of the two audits has {', '.join(sorted(unmatched))}.")
    return notes
