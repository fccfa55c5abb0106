"""result.json: how a run ended, for programs: why, after how many steps, with which scores. It is the same for the same run."""

from typing import TYPE_CHECKING

from saccade import __version__
from saccade.models.model import Model
from saccade.training.events import Result
from saccade.training.packing import to_json

if TYPE_CHECKING:
    from saccade.training.run import Run


def write_result(work: "Run", model: Model, result: Result) -> None:
    """Write it in one stroke."""
    facts = {
        "version": __version__,
        "why": result.why,
        "steps": result.steps,
        "family": model.family.name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "processes": work.world.size,
        "examples": {name: len(table.examples) for name, table in work.ready.splits.tables().items()},
        "scores": {name: [vars(score) for score in scores] for name, scores in result.scores.items()},
    } | ({"notes": list(result.notes)} if result.notes else {})
    path = work.out / "result.json"
    beside = path.with_suffix(".part")
    beside.write_text(to_json(facts) + "\n", encoding="utf-8")
    beside.rename(path)
