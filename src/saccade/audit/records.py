"""What a run left in writing, brought together: settings, scores, cost, audits and statements; blanks stay blanks."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from saccade.audit.change import Change
from saccade.audit.marks import Audited, Mark, weights_mark
from saccade.audit.statements import Statements, read_statements
from saccade.audit.suite import Finding
from saccade.errors import ModelError
from saccade.models.files import read_json
from saccade.models.load import load
from saccade.tasks.metrics import Score
from saccade.tasks.opening import open_run
from saccade.tasks.run_settings import read_run_settings
from saccade.tasks.task import Task

AUDIT, RESULT, README = "audit.json", "result.json", "README.md"


@dataclass(frozen=True)
class Stored:
    """An audit.json: findings by suite, suites that could not run and why, and a comparison with an earlier model."""

    suites: Mapping[str, Audited] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    change: Change | None = None


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
    change: Change | None = None  # its figures beside those of an earlier model

    @property
    def scores(self) -> list[tuple[str, Score]]:
        """How good it is, by split."""
        return scores_in(self.result)

    @property
    def data(self) -> tuple[str, ...]:
        return tuple(self.settings.get("run", {}).get("data", ()))


def scores_in(result: Mapping[str, Any]) -> list[tuple[str, Score]]:
    """The scores of a result.json, each with its split."""
    told = result.get("scores", {})
    return [(split, Score(**{k: _number(v) for k, v in one.items()})) for split, found in told.items() for one in found]


def model_of(where: str | Path) -> tuple[Path, Path]:
    """A run or a model directory, and where its weights are."""
    home = Path(where)
    if not home.is_dir():
        raise ModelError(
            f"{where}: there is no such directory; a run or a directory with a model is needed. "
            "saccade import writes a model of the hub down as a run."
        )
    for model in (home, home / "model"):
        if (model / "config.json").is_file():
            return home, model
    raise ModelError(f"{home}: has no model yet; the command that began this run goes on with it.")


def task_of(where: str | Path) -> Task | None:
    """What a model was made for; None for a body without a head, which others begin from."""
    home, _ = model_of(where)
    if not (home / "config.toml").is_file():
        model = load(home)
        if model.kind is None and not model.capabilities.autoregressive:
            return None
    return open_run(home)[0]


def open_records(where: str | Path) -> Records:
    """Everything that a directory says of its model."""
    home, model = model_of(where)
    stored = read_audits(home / AUDIT)
    result = read_json(home / RESULT) if (home / RESULT).is_file() else {}
    return Records(
        home,
        model,
        read_run_settings(home),
        result,
        read_json(model / "config.json"),
        read_statements(home),
        weights_mark(model),
        stored.suites,
        stored.missing,
        _seconds(home / "speed.jsonl"),
        stored.change,
    )


def write_audits(home: Path, found: Stored) -> Path:
    """audit.json: what was found now, beside what other suites found before."""
    path = home / AUDIT
    before = read_audits(path)
    suites = {name: one for name, one in before.suites.items() if name not in found.missing} | dict(found.suites)
    missing = {name: why for name, why in before.missing.items() if name not in found.suites} | dict(found.missing)
    told: dict[str, Any] = {
        "format": 1,
        "suites": {
            name: {"finding": one.finding.as_dict(), "mark": asdict(one.mark), "version": one.version}
            for name, one in suites.items()
        },
        "missing": missing,
    }
    change = found.change
    if change is None and before.change is not None and not before.change.suites & found.suites.keys():
        change = before.change  # of figures that still stand
    if change is not None:
        told["change"] = change.as_dict()
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(told, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    beside.rename(path)
    return path


def read_audits(path: Path) -> Stored:
    """What an audit.json holds; nothing where there is none."""
    if not path.is_file():
        return Stored()
    raw = read_json(path)
    if raw.get("format") != 1 or not isinstance(raw.get("suites"), dict):
        raise ModelError(f"{path}: is no audit that this version reads; remove it and run saccade audit again.")
    suites = {
        name: Audited(Finding.of(one["finding"]), Mark.of(one["mark"]), one["version"])
        for name, one in raw["suites"].items()
    }
    change = raw.get("change")
    return Stored(suites, dict(raw.get("missing", {})), None if change is None else Change.read(change))


def _number(value: Any) -> Any:
    """A value of result.json, where a number that is not finite is a word: float:nan."""
    word = value.removeprefix("float:") if isinstance(value, str) else ""
    return float(word) if word in ("nan", "inf", "-inf") else value


def _seconds(path: Path) -> float | None:
    """The CPU seconds of all steps, where they were written down."""
    if not path.is_file():
        return None
    told: list[float] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, RecursionError):  # the last line of a run that is being written, or a damaged one
            row = json.loads(line)
            cpu = row.get("cpu") if isinstance(row, dict) else None
            told += [cpu] if isinstance(cpu, int | float) else []
    return sum(told) if told else None
