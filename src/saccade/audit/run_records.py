"""The records of a run for its model card: settings, scores, cost, audits and statements; what is missing stays empty."""

import json
import re
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
from saccade.models.io import hub
from saccade.models.io.model_dir import read_json, read_text
from saccade.tasks.base import Task
from saccade.tasks.runs.checkpoint_facts import read_checkpoint_facts
from saccade.tasks.runs.run import Run

AUDIT_FILE, README_FILE = "audit.json", "README.md"


@dataclass(frozen=True)
class AuditFile:
    """The content of audit.json: results by suite, suites that could not run with the reason, and a comparison."""

    suites: Mapping[str, AuditRecord] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    comparison: AuditComparison | None = None


@dataclass(frozen=True)
class RunRecords:
    """All records of a model; `directory` is the run, `model_directory` contains the weights."""

    directory: Path
    model_directory: Path
    run: Run  # settings and results of training
    config: Mapping[str, Any]  # config.json of the model
    statements: Statements
    weights_digest: str
    audits: Mapping[str, AuditRecord] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)  # suites that apply but could not run, with the reason
    cpu_seconds: float | None = None  # CPU time of the training steps
    comparison: AuditComparison | None = None  # with the audit of an earlier model
    checkpoint_facts: Mapping[str, Any] = field(default_factory=dict)  # of the newest checkpoint
    base_license: str = ""  # license of the pretrained model that training started from; "" if unknown

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.run.settings

    @property
    def result(self) -> Mapping[str, Any]:
        return self.run.result

    @property
    def scores(self) -> list[tuple[str, Score]]:
        """The task scores, each with the name of its split."""
        return [(split, score) for split, scores in self.run.scores.items() for score in scores]

    @property
    def data(self) -> tuple[str, ...]:
        return tuple(self.settings.get("run", {}).get("data", ()))


def find_model_directory(path: str | Path) -> tuple[Path, Path]:
    """The directory of a run or a model, and the directory of its weights."""
    home = Path(path)
    if not home.is_dir():
        raise ModelError(
            f"{path}: no such directory; give a run or a model directory. "
            "For a model of the hub, make a run with saccade import."
        )
    for model in (home, home / "model"):
        if (model / "config.json").is_file():
            return home, model
    raise ModelError(f"{home}: has no model yet, because training has not finished; run the same command to resume.")


def find_task(path: str | Path) -> Task | None:
    """The task of a model; None for a base model without a head."""
    return Run(find_model_directory(path)[0]).find_task()


def open_records(path: str | Path) -> RunRecords:
    """Read all records in the directory of a run or a model."""
    home, model = find_model_directory(path)
    stored, run = read_audits(home / AUDIT_FILE), Run(home)
    return RunRecords(
        home,
        model,
        run,
        read_json(model / "config.json"),
        read_statements(home),
        hash_weights(model),
        stored.suites,
        stored.missing,
        _read_cpu_seconds(home / "speed.jsonl"),
        stored.comparison,
        read_checkpoint_facts(home)[1],
        find_license(run.settings.get("run", {}).get("model", "")),
    )


def find_license(model: str) -> str:
    """The license that the README.md of a model states in its front matter; "" if there is none on this machine."""
    if not model:
        return ""
    directories = [Path(model) / "model", Path(model)]
    if not Path(model).exists() and hub.is_repo_id(model):
        directories = [path.parent for path in [hub.find_cached(model, README_FILE)] if path is not None]
    for directory in directories:
        with suppress(OSError, ValueError):
            text = read_text(directory / README_FILE)
            front_matter = text.split("---\n", 2)[1] if text.startswith("---\n") else ""
            if stated := re.search(r"^license: *[\"']?([\w.+-]+)", front_matter, re.MULTILINE):
                return stated[1]
    return ""


def write_audits(directory: Path, new: AuditFile) -> Path:
    """Write new results to audit.json; the earlier results of other suites are kept."""
    path = directory / AUDIT_FILE
    before = read_audits(path)
    suites = {name: audit for name, audit in before.suites.items() if name not in new.missing} | dict(new.suites)
    missing = {name: reason for name, reason in before.missing.items() if name not in new.suites} | dict(new.missing)
    content: dict[str, Any] = {
        "format": 1,
        "suites": {
            name: {"result": audit.result.as_dict(), "fingerprint": asdict(audit.fingerprint), "version": audit.version}
            for name, audit in suites.items()
        },
        "not_run": missing,
    }
    comparison = new.comparison
    if comparison is None and before.comparison is not None and not before.comparison.suites & new.suites.keys():
        comparison = before.comparison  # none of its suites was run again, so it is still valid
    if comparison is not None:
        content["comparison"] = comparison.as_dict()
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    temporary.rename(path)
    return path


def read_audits(path: Path) -> AuditFile:
    """Read audit.json; empty if there is no such file."""
    if not path.is_file():
        return AuditFile()
    raw = read_json(path)
    if raw.get("format") != 1 or not isinstance(raw.get("suites"), dict):
        raise ModelError(f"{path}: not an audit that this version can read; remove it and run saccade audit again.")
    suites = {
        name: AuditRecord(
            SuiteResult.from_dict(audit["result"]), Fingerprint.from_dict(audit["fingerprint"]), audit["version"]
        )
        for name, audit in raw["suites"].items()
    }
    comparison = None if raw.get("comparison") is None else AuditComparison.from_dict(raw["comparison"])
    return AuditFile(suites, dict(raw.get("not_run", {})), comparison)


def _read_cpu_seconds(path: Path) -> float | None:
    """The CPU seconds of all training steps; None if they were not recorded."""
    if not path.is_file():
        return None
    seconds: list[float] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, RecursionError):  # a damaged line, or a last line that is still being written
            row = json.loads(line)
            cpu = row.get("cpu_seconds") if isinstance(row, dict) else None
            seconds += [cpu] if isinstance(cpu, int | float) else []
    return sum(seconds) if seconds else None
