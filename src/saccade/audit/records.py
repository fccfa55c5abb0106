"""What a run left in writing, brought together: settings, scores, cost, audits and statements; blanks stay blanks."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from saccade import __version__
from saccade.audit.marks import Mark, weights_mark
from saccade.audit.statements import Statements, read_statements
from saccade.audit.suite import Finding
from saccade.models.files import read_json
from saccade.models.load import load
from saccade.tasks.metrics import Score
from saccade.tasks.opening import open_run
from saccade.tasks.task import Task

AUDIT, RESULT, README = "audit.json", "result.json", "README.md"


@dataclass(frozen=True)
class Audited:
    """One finding, and what it was made of."""

    finding: Finding
    mark: Mark
    version: str = __version__


@dataclass(frozen=True)
class Records:
    """All that is known of one model; `home` is the run, `model` the directory of its weights."""

    home: Path
    model: Path
    settings: Mapping[str, Any]  # config.toml
    result: Mapping[str, Any]  # how training ended: steps, scores, counts
    config: Mapping[str, Any]  # the model's own config.json
    statements: Statements
    weights: str
    audits: Mapping[str, Audited] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)  # suites that apply and could not run, and why
    seconds: float | None = None  # of CPU, in training

    @property
    def scores(self) -> list[tuple[str, Score]]:
        """How good it is, by split."""
        told = self.result.get("scores", {})
        return [
            (split, Score(**{k: _number(v) for k, v in one.items()})) for split, found in told.items() for one in found
        ]

    @property
    def data(self) -> tuple[str, ...]:
        return tuple(self.settings.get("run", {}).get("data", ()))


def model_of(where: str | Path) -> tuple[Path, Path]:
    """A run or a model directory, and where its weights are."""
    home = Path(where)
    if not home.is_dir():
        raise ValueError(
            f"{where}: there is no such directory; a run or a directory with a model is needed. "
            "saccade import writes a model of the hub down as a run."
        )
    for model in (home, home / "model"):
        if (model / "config.json").is_file():
            return home, model
    raise ValueError(f"{home}: has no model yet; the command that began this run goes on with it.")


def task_of(where: str | Path) -> Task | None:
    """What a model was made for; None for a body without a head, which others begin from."""
    home, _ = model_of(where)
    if not (home / "config.toml").is_file():
        model = load(home)
        if model.kind is None and not hasattr(model.body, "start"):
            return None
    return open_run(home)[0]


def open_records(where: str | Path) -> Records:
    """Everything that a directory says of its model."""
    home, model = model_of(where)
    raw = _audits(home / AUDIT)
    audits = {name: Audited(Finding.of(one["finding"]), Mark.of(one["mark"]), one["version"]) for name, one in raw[0]}
    result = read_json(home / RESULT) if (home / RESULT).is_file() else {}
    return Records(
        home,
        model,
        _settings(home / "config.toml"),
        result,
        read_json(model / "config.json"),
        read_statements(home),
        weights_mark(model),
        audits,
        raw[1],
        _seconds(home / "speed.jsonl"),
    )


def write_audits(home: Path, found: Mapping[str, Audited], missing: Mapping[str, str]) -> Path:
    """audit.json: what was found now, beside what other suites found before."""
    path = home / AUDIT
    before, lacked = _audits(path)
    suites = {name: one for name, one in before if name not in missing}
    lacked = {name: why for name, why in lacked.items() if name not in found} | dict(missing)
    suites |= {
        name: {"finding": one.finding.as_dict(), "mark": asdict(one.mark), "version": one.version}
        for name, one in found.items()
    }
    text = json.dumps({"format": 1, "suites": suites, "missing": lacked}, ensure_ascii=False, indent=1)
    beside = path.with_suffix(".part")
    beside.write_text(text + "\n", encoding="utf-8")
    beside.rename(path)
    return path


def _audits(path: Path) -> tuple[list[tuple[str, Any]], dict[str, str]]:
    """The suites in audit.json as they stand there, and those that could not run."""
    if not path.is_file():
        return [], {}
    raw = read_json(path)
    if raw.get("format") != 1 or not isinstance(raw.get("suites"), dict):
        raise ValueError(f"{path}: is no audit that this version reads; remove it and run saccade audit again.")
    return list(raw["suites"].items()), dict(raw.get("missing", {}))


def _number(value: Any) -> Any:
    """A value of result.json, where a number that is not finite is a word: float:nan."""
    word = value.removeprefix("float:") if isinstance(value, str) else ""
    return float(word) if word in ("nan", "inf", "-inf") else value


def _settings(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _seconds(path: Path) -> float | None:
    """The CPU seconds of all steps, where they were written down."""
    if not path.is_file():
        return None
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    told = [row["cpu"] for row in rows if "cpu" in row]
    return sum(told) if told else None
