"""result.json, the machine-readable outcome of a run: stop reason, steps and scores. Equal runs write equal files."""

from typing import TYPE_CHECKING, Any

from saccade import __version__
from saccade.models.model import Model
from saccade.training.checkpoint.serialize import to_json
from saccade.training.events import RunResult

if TYPE_CHECKING:
    from saccade.training.run import Trainer


def write_result(trainer: "Trainer", model: Model, result: RunResult) -> None:
    """Write result.json atomically."""
    facts: dict[str, Any] = {
        "version": __version__,
        "stop_reason": result.stop_reason,
        "steps": result.steps,
        "family": model.family.name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "processes": trainer.world.size,
        "evaluations": result.evaluations,
        "examples": {name: len(table.examples) for name, table in trainer.prepared_run.splits.as_dict().items()},
        "baselines": {split: baseline.as_dict() for split, baseline in result.baselines.items()},
        "scores": {name: [vars(score) for score in scores] for name, scores in result.scores.items()},
    }
    if result.calibration is not None:
        facts["calibration"] = result.calibration.as_dict()
    facts |= {"notes": list(result.notes)} if result.notes else {}
    path = trainer.out / "result.json"
    temporary = path.with_suffix(".part")
    temporary.write_text(to_json(facts) + "\n", encoding="utf-8")
    temporary.rename(path)
