"""What a run left in writing, brought together: settings, scores, cost, audits and statements; blanks stay blanks."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from saccade.audit.compare import AuditComparison
from saccade.audit.fingerprints import AuditRecord, Fingerprint, hash_weights
from saccade.audit.statements import Statements, read_statements
from saccade.audit.suite import SuiteResult
from saccade.errors import ModelError
from saccade.metrics import Score
from saccade.models.io.model_dir import read_json
from saccade.tasks.base import Task
from saccade.tasks.runs.run import Run

AUDIT_FILE, README_FILE = "audit.json", "README.md"


@dataclass(frozen=True)
class AuditFile:
    """An audit.json: findings by suite, suites that could not run and why, and a comparison with an earlier model."""

    suites: Mapping[str, AuditRecord] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    comparison: AuditComparison | None = None


@dataclass(frozen=True)
class RunRecords:
    """All that is known of one model; `directory` is the run, `model_directory` the one of its weights."""

    directory: Path
    model_directory: Path
    run: Run  # its settings, and how training ended
    config: Mapping[str, Any]  # the model's own config.json
    statements: Statements
    weights_digest: str
    audits: Mapping[str, AuditRecord] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)  # suites that apply and could not run, and why
    cpu_seconds: float | None = None  # of CPU, in training
    comparison: AuditComparison | None = None  # its figures beside those of an earlier model

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.run.settings

    @property
    def result(self) -> Mapping[str, Any]:
        return self.run.result

    @property
    def scores(self) -> list[tuple[str, Score]]:
        """How good it is, by split."""
        return [(split, score) for split, found in self.run.scores.items() for score in found]

    @property
    def data(self) -> tuple[str, ...]:
        return tuple(self.settings.get("run", {}).get("data", ()))


def find_model_directory(path: str | Path) -> tuple[Path, Path]:
    """A run or a model directory, and where its weights are."""
    home = Path(path)
    if not home.is_dir():
        raise ModelError(
            f"{path}: there is no such directory; a run or a directory with a model is needed. "
            "saccade import writes a model of the hub down as a run."
        )
    for model in (home, home / "model"):
        if (model / "config.json").is_file():
            return home, model
    raise ModelError(f"{home}: has no model yet; the command that began this run goes on with it.")


def find_task(path: str | Path) -> Task | None:
    """What a model was made for; None for a body without a head, which others begin from."""
    return Run(find_model_directory(path)[0]).find_task()


def open_records(path: str | Path) -> RunRecords:
    """Everything that a directory says of its model."""
    home, model = find_model_directory(path)
    stored = read_audits(home / AUDIT_FILE)
    return RunRecords(
        home,
        model,
        Run(home),
        read_json(model / "config.json"),
        read_statements(home),
        hash_weights(model),
        stored.suites,
        stored.missing,
        _read_cpu_seconds(home / "speed.jsonl"),
        stored.comparison,
    )


def write_audits(directory: Path, new: AuditFile) -> Path:
    """audit.json: what was found now, beside what other suites found before."""
    path = directory / AUDIT_FILE
    before = read_audits(path)
    suites = {name: one for name, one in before.suites.items() if name not in new.missing} | dict(new.suites)
    missing = {name: why for name, why in before.missing.items() if name not in new.suites} | dict(new.missing)
    told: dict[str, Any] = {
        "format": 1,
        "suites": {
            name: {"result": one.result.as_dict(), "fingerprint": asdict(one.fingerprint), "version": one.version}
            for name, one in suites.items()
        },
        "not_run": missing,
    }
    change = new.comparison
    if change is None and before.comparison is not None and not before.comparison.suites & new.suites.keys():
        change = before.comparison  # of figures that still stand
    if change is not None:
        told["comparison"] = change.as_dict()
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(told, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    beside.rename(path)
    return path


def read_audits(path: Path) -> AuditFile:
    """What an audit.json holds; nothing where there is none."""
    if not path.is_file():
        return AuditFile()
    raw = read_json(path)
    if raw.get("format") != 1 or not isinstance(raw.get("suites"), dict):
        raise ModelError(f"{path}: is no audit that this version reads; remove it and run saccade audit again.")
    suites = {
        name: AuditRecord(
            SuiteResult.from_dict(one["result"]), Fingerprint.from_dict(one["fingerprint"]), one["version"]
        )
        for name, one in raw["suites"].items()
    }
    change = raw.get("comparison")
    return AuditFile(
        suites, dict(raw.get("not_run", {})), None if change is None else AuditComparison.from_dict(change)
    )


def _read_cpu_seconds(path: Path) -> float | None:
    """The CPU seconds of all steps, where they were written down."""
    if not path.is_file():
        return None
    told: list[float] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, RecursionError):  # the last line of a run that is being written, or a damaged one
            row = json.loads(line)
            cpu = row.get("cpu_seconds") if isinstance(row, dict) else None
            told += [cpu] if isinstance(cpu, int | float) else []
    return sum(told) if told else None
