"""What an audit is read against and done under: an earlier audit, and words that may not be written."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.audit.change import Change, Row, compare
from saccade.audit.marks import Audited, weights_mark
from saccade.audit.records import AUDIT, RESULT, Stored, model_of, read_audits, scores_in
from saccade.audit.suite import Finding, figure
from saccade.errors import DataError, ModelError
from saccade.models.files import read_json

SCORES = "scores"  # of the task itself, where both runs have written them down


@dataclass(frozen=True)
class Before:
    """An earlier audit, whose it is, and how good that model was at its task."""

    name: str
    stored: Stored
    result: Mapping[str, Any]


def opened(where: str) -> Before:
    """The audit of a run, or one in a file."""
    path = Path(where)
    file = path / AUDIT if path.is_dir() else path
    if not file.is_file():
        missing = f"{where}: --before needs a run that was audited, or its {AUDIT}, and there is no {file}"
        raise ModelError(f"{missing}; run saccade audit {where} first." if path.is_dir() else f"{missing}.")
    return Before(file.resolve().parent.name, read_audits(file), _result(file.parent))


def _result(home: Path) -> Mapping[str, Any]:
    return read_json(home / RESULT) if (home / RESULT).is_file() else {}


def changed(before: Before, found: Mapping[str, Audited], run: str) -> Change:
    """All that was found now beside what was found before, and the scores that it cost or brought."""
    home, model = model_of(run)
    made = compare(before.stored.suites, found, before.name, weights_mark(model))
    now = _result(home)
    old, new = ({(split, one.name): figure(one) for split, one in scores_in(raw)} for raw in (before.result, now))
    if now == before.result:
        return made
    rows = [Row(f"{SCORES} on {key[0]}", old[key], one) for key, one in new.items() if key in old]
    return Change(made.of, made.weights, (*made.rows, *rows), made.notes)


def under(finding: Finding) -> str:
    """The name by which a finding is kept: one under a rule stands beside the one without, and does not open the gate."""
    return f"{finding.suite}, words forbidden" if finding.rule else finding.suite


def forbidden_in(path: str) -> tuple[str, ...]:
    """The words of a file, a line each."""
    if not path:
        return ()
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read ({error})", file=path, cure="give a text file with a word a line") from None
    words = tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not words:
        raise DataError("no words in it", file=path, cure="write a word, or several words, a line")
    return words
