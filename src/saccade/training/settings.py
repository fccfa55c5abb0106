"""The settings of a run as a file: three small tables, each value as it was used, and where the data came from."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

if TYPE_CHECKING:
    from saccade.training.job import Ready


def settings(ready: "Ready") -> dict[str, Any]:
    """The resolved run; TOML has no nothing, so what is not set is left out."""
    tables = {
        "run": {
            "task": ready.task.name,
            "data": list(ready.job.data),
            "model": ready.job.model,
            "family": ready.model.family.name,
            "columns": dict(ready.job.columns),
            "digest": ready.splits.digest,
        }
        | ({} if ready.learnt is None else {"twins": ready.learnt.record}),
        "model": asdict(ready.model.config),
        "task": asdict(ready.task.config)
        | ready.task.tuned
        | ({"labels": list(ready.task.labels)} if ready.task.labels else {}),
        "train": asdict(ready.config),
    }
    return {name: {k: v for k, v in table.items() if v is not None} for name, table in tables.items()}


def write_settings(path: Path, ready: "Ready") -> None:
    """config.toml, in one stroke."""
    text = tomli_w.dumps(settings(ready))
    temporary = path.with_suffix(".part")
    temporary.write_text(text, encoding="utf-8")
    temporary.rename(path)
