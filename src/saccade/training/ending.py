"""How a run ends: its best model on all held-out data, written down with its report."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.data import Example
from saccade.models.model import Model
from saccade.tasks.answering import answers, scores_of
from saccade.tasks.metrics import Score
from saccade.training.events import Asked, Event, Result, Said
from saccade.training.prospects import compare_with_baseline
from saccade.training.result import write_result
from saccade.training.settings import write_settings
from saccade.training.stops import Stops
from saccade.training.verify import read

if TYPE_CHECKING:
    from saccade.training.run import Run


def finish(work: "Run", stops: Stops) -> Iterator[Event]:
    """The best model, or the last where nobody has looked yet, on all held-out data, written down with its report."""
    learner, world = work.learner, work.world
    warnings: list[str] = []
    best = work.store.best(warn=warnings.append) if world.is_first else None
    path = world.first(lambda: best and str(best.path))
    yield from map(Said, warnings)
    if work.progress.rival:
        said = f"the model of step {work.progress.best_step:,} is kept, by its {next(iter(work.progress.best_scores))}"
        yield Said(f"{said}; by every other score a later one was better: {work.progress.rival}")
    found = best or (read(Path(path)) if path else None)
    if found is not None and found.step != learner.done:
        learner.restore({group: found.tensors(group) for group in found.groups}, learner.done)
    with learner.averaged() as model:
        told = world.first(lambda: _finished(work, model, stops))
    if told is None:
        stops.asked = int(max(one[0] for one in world.gather(stops.asked or 0)))
        raise Asked
    yield Result(
        told["why"],
        learner.done,
        {name: [Score(**score) for score in scores] for name, scores in told["scores"].items()},
        notes=tuple(told["notes"]),
    )


def _finished(work: "Run", model: Model, stops: Stops) -> dict[str, Any] | None:
    """What the first process does at the end while the others wait; None where a signal came."""
    from saccade.training.summary import summarise

    ready = work.ready
    model.eval()
    tables = {"dev": ready.splits.dev, "test": ready.splits.test}
    scores: dict[str, list[Score]] = {}
    answered: dict[str, tuple[list[Any], list[Example]]] = {}
    for name, table in tables.items():
        if table is not None and table.examples:
            try:
                answered[name] = answers(ready.task, model, table.examples, told=unless(stops))
            except Asked:
                return None
            if name == "dev":
                ready.task.tune(*answered[name])
            scores[name] = scores_of(ready.task, model, *answered[name])
    for left in work.out.glob(".model.*"):  # by a run that was killed while it wrote its model
        shutil.rmtree(left)
    write_settings(work.out / "config.toml", ready)  # with what was tuned
    model.save(work.out / "model")
    notes = [compare_with_baseline(ready, name, scores[name][0], answered[name][1]) for name in scores]
    result = Result(work.over() or work.limit(), work.learner.done, scores, notes=tuple(filter(None, notes)))
    write_result(work, model, result)
    summarise(work, model, result, answered)
    told = {name: [vars(score) for score in found] for name, found in scores.items()}
    return {"why": result.why, "scores": told, "notes": list(result.notes)}


def unless(stops: Stops) -> Callable[[int, int], None]:
    """What ends the answering of many examples when a signal has come."""

    def told(done: int, all: int) -> None:
        if stops.asked:
            raise Asked

    return told
