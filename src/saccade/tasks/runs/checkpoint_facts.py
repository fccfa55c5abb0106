"""What the newest checkpoint of a run says besides its tensors: the minutes of training, and the machine; nothing is verified."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from saccade.models.io.model_dir import read_json

FACTS_FILE = "facts.json"


def read_checkpoint_facts(run: Path) -> tuple[int | None, Mapping[str, Any]]:
    """The step and the facts of the newest checkpoint that can be read; None and nothing if there is none."""
    for step, checkpoint in _list_checkpoints(run):
        with suppress(ValueError, OSError, RecursionError):
            return step, read_json(checkpoint / FACTS_FILE)
    return None, {}


def training_minutes(facts: Mapping[str, Any]) -> float | None:
    """The minutes of training until a checkpoint.

    >>> training_minutes({"progress": {"minutes": 1.5}}), training_minutes({"progress": 3})
    (1.5, None)
    """
    progress = facts.get("progress")
    minutes = progress.get("minutes") if isinstance(progress, dict) else None
    return float(minutes) if isinstance(minutes, int | float) and 0 <= minutes < 1e9 else None


def training_machine(facts: Mapping[str, Any]) -> str:
    """The processor, its cores and the device of training.

    >>> training_machine({"machine": {"cpu": "A Processor", "cores": 2, "device": "cpu"}}), training_machine({})
    ('A Processor, 2 cores, device cpu', '')
    """
    machine = facts.get("machine")
    if not isinstance(machine, dict):
        return ""
    return f"{machine.get('cpu')}, {machine.get('cores')} cores, device {machine.get('device')}"


def _list_checkpoints(run: Path) -> Iterator[tuple[int, Path]]:
    """The step and the path of each checkpoint, by name, the newest first."""
    with suppress(OSError):
        steps = {path.name.removeprefix("step-"): path for path in (run / "checkpoints").glob("step-*")}
        yield from sorted(((int(step), path) for step, path in steps.items() if step.isdecimal()), reverse=True)
