"""What an audit is read against and done under: an earlier audit, and words that may not be written."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from saccade.audit.compare import AuditComparison, ComparisonRow, compare_audits
from saccade.audit.fingerprints import AuditRecord, hash_weights
from saccade.audit.run_records import AUDIT_FILE, AuditFile, find_model_directory, read_audits
from saccade.audit.suite import SuiteResult, estimate_from_score
from saccade.errors import DataError, ModelError
from saccade.tasks.runs.run import Run

TASK_SCORES_LABEL = "scores"  # of the task itself, where both runs have written them down


@dataclass(frozen=True)
class EarlierAudit:
    """An earlier audit, whose it is, and how good that model was at its task."""

    name: str
    audits: AuditFile
    run: Run


def open_earlier_audit(source: str) -> EarlierAudit:
    """The audit of a run, or one in a file."""
    path = Path(source)
    file = path / AUDIT_FILE if path.is_dir() else path
    if not file.is_file():
        missing = f"{source}: --compare-to needs a run that was audited, or its {AUDIT_FILE}, and there is no {file}"
        raise ModelError(f"{missing}; run saccade audit {source} first." if path.is_dir() else f"{missing}.")
    return EarlierAudit(file.resolve().parent.name, read_audits(file), Run(file.parent))


def compare_with_earlier_audit(earlier: EarlierAudit, results: Mapping[str, AuditRecord], run: str) -> AuditComparison:
    """All that was found now beside what was found before, and the scores that it cost or brought."""
    home, model = find_model_directory(run)
    made = compare_audits(earlier.audits.suites, results, earlier.name, hash_weights(model))
    now = Run(home)
    if now.result == earlier.run.result:
        return made
    old, new = (
        {(split, one.name): estimate_from_score(one) for split, some in run.scores.items() for one in some}
        for run in (earlier.run, now)
    )
    rows = [ComparisonRow(f"{TASK_SCORES_LABEL} on {key[0]}", old[key], one) for key, one in new.items() if key in old]
    return AuditComparison(made.compared_to, made.weights_digest, (*made.rows, *rows), made.notes)


def suite_key(result: SuiteResult) -> str:
    """The name by which a finding is kept: one under a rule stands beside the one without, and does not open the gate."""
    return f"{result.suite}, bad words" if result.bad_words else result.suite


def read_bad_words(path: str) -> tuple[str, ...]:
    """The words of a file, a line each."""
    if not path:
        return ()
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read ({error})", file=path, hint="give a text file with a word a line") from None
    words = tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not words:
        raise DataError("no words in it", file=path, hint="write a word, or several words, a line")
    return words
