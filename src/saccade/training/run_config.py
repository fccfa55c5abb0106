"""config.toml: the resolved settings of a run in the tables [model], [task] and [train], and its data in [run]."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from saccade.plugins import find_used_plugins

if TYPE_CHECKING:
    from saccade.training.prepare import PreparedRun


def collect_settings(prepared_run: "PreparedRun") -> dict[str, Any]:
    """The tables of config.toml; values of None are dropped, since TOML has no null."""
    model = prepared_run.model
    plugins = find_used_plugins(config=model.config, family=model.family.name, task=prepared_run.task.name)
    tables = {
        "run": {
            "task": prepared_run.task.name,
            "data": list(prepared_run.job.data),
            "model": prepared_run.job.model,
            "family": prepared_run.model.family.name,
            "columns": dict(prepared_run.job.columns),
            "digest": prepared_run.splits.digest,
        }
        | (
            {}
            if prepared_run.augmented_examples is None
            else {"augmentation": prepared_run.augmented_examples.resume_facts}
        )
        | ({"plugins": plugins} if plugins else {}),
        "model": asdict(prepared_run.model.config),
        "task": asdict(prepared_run.task.config)
        | prepared_run.task.tuned_settings
        | ({"labels": list(prepared_run.task.labels)} if prepared_run.task.labels else {}),
        "train": asdict(prepared_run.config),
    }
    return {name: {k: v for k, v in table.items() if v is not None} for name, table in tables.items()}


def write_settings(path: Path, prepared_run: "PreparedRun") -> None:
    """Write config.toml atomically."""
    text = tomli_w.dumps(collect_settings(prepared_run))
    temporary = path.with_suffix(".part")
    temporary.write_text(text, encoding="utf-8")
    temporary.rename(path)
