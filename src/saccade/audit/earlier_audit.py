"""Comparison of an audit with an earlier one, `saccade audit --compare-to`, and the file of bad words."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from saccade.audit.compare import AuditComparison, ComparisonRow, compare_audits
from saccade.audit.fingerprints import AuditRecord, hash_weights
from saccade.audit.run_records import AUDIT_FILE, AuditFile, find_model_directory, read_audits
from saccade.audit.suite import SuiteResult, estimate_from_score
from saccade.errors import DataError, ModelError
from saccade.tasks.runs.run import Run

TASK_SCORES_LABEL = "scores"  # rows of task scores, if both runs have recorded them


@dataclass(frozen=True)
class EarlierAudit:
    """An earlier audit with the name of its run, and the run with its task scores."""

    name: str
    audits: AuditFile
    run: Run


def open_earlier_audit(source: str) -> EarlierAudit:
    """Read the audit of a run, or an audit file."""
    path = Path(source)
    file = path / AUDIT_FILE if path.is_dir() else path
    if not file.is_file():
        problem = f"{source}: --compare-to needs an audited run or its {AUDIT_FILE}; there is no {file}"
        raise ModelError(f"{problem}. Run saccade audit {source} first." if path.is_dir() else f"{problem}.")
    return EarlierAudit(file.resolve().parent.name, read_audits(file), Run(file.parent))


def compare_with_earlier_audit(earlier: EarlierAudit, results: Mapping[str, AuditRecord], run: str) -> AuditComparison:
    """The results of both audits side by side, and the task scores of both models."""
    home, model = find_model_directory(run)
    comparison = compare_audits(earlier.audits.suites, results, earlier.name, hash_weights(model))
    current = Run(home)
    if current.result == earlier.run.result:
        return comparison
    old, new = (
        {(split, score.name): estimate_from_score(score) for split, scores in run.scores.items() for score in scores}
        for run in (earlier.run, current)
    )
    rows = [ComparisonRow(f"{TASK_SCORES_LABEL} on {key[0]}", old[key], new[key]) for key in new if key in old]
    rows = (*comparison.rows, *rows)
    return AuditComparison(comparison.compared_to, comparison.weights_digest, rows, comparison.notes)


def suite_key(result: SuiteResult) -> str:
    """The key of a result in the audit file; a result with bad words has a key of its own and does not count for the export."""
    return f"{result.suite}, bad words" if result.bad_words else result.suite


def read_bad_words(path: str) -> tuple[str, ...]:
    """Read the bad words of a file, one word or phrase per line."""
    if not path:
        return ()
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        hint = "give a text file with one word or phrase per line"
        raise DataError(f"cannot be read ({error})", file=path, hint=hint) from None
    words = tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not words:
        raise DataError("contains no words", file=path, hint="write one word or phrase per line")
    return words
