"""How a run ends: its best model on all held-out data, written down with its report."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.data import Example
from saccade.metrics import Score
from saccade.models.model import Model
from saccade.tasks.predict import predict, score_answers
from saccade.training.baseline_check import compare_with_baseline
from saccade.training.checkpoint.read import read_checkpoint
from saccade.training.events import Event, Message, RunResult, StopRequested
from saccade.training.result import write_result
from saccade.training.run_config import write_settings
from saccade.training.signals import StopSignals

if TYPE_CHECKING:
    from saccade.training.run import Trainer


def finish(trainer: "Trainer", stop_signals: StopSignals) -> Iterator[Event]:
    """The best model, or the last where nobody has looked yet, on all held-out data, written down with its report."""
    learner, world = trainer.learner, trainer.world
    warnings: list[str] = []
    best = trainer.checkpoints.read_best(warn=warnings.append) if world.is_first else None
    path = world.run_on_first(lambda: best and str(best.path))
    yield from map(Message, warnings)
    if trainer.progress.rival_note:
        said = f"the model of step {trainer.progress.best_step:,} is kept, by its {next(iter(trainer.progress.best_scores))}"
        yield Message(f"{said}; by every other score a later one was better: {trainer.progress.rival_note}")
    found = best or (read_checkpoint(Path(path)) if path else None)
    if found is not None and found.step != learner.step_count:
        learner.restore({group: found.read_tensors(group) for group in found.groups}, learner.step_count)
    with learner.with_ema() as model:
        told = world.run_on_first(lambda: _evaluate_and_write(trainer, model, stop_signals))
    if told is None:
        stop_signals.signal_number = int(max(one[0] for one in world.all_gather(stop_signals.signal_number or 0)))
        raise StopRequested
    yield RunResult(
        told["stop_reason"],
        learner.step_count,
        {name: [Score(**score) for score in scores] for name, scores in told["scores"].items()},
        notes=tuple(told["notes"]),
    )


def _evaluate_and_write(trainer: "Trainer", model: Model, stop_signals: StopSignals) -> dict[str, Any] | None:
    """What the first process does at the end while the others wait; None where a signal came."""
    from saccade.training.write_report import write_run_report

    ready = trainer.prepared_run
    model.eval()
    tables = {"dev": ready.splits.dev, "test": ready.splits.test}
    scores: dict[str, list[Score]] = {}
    answered: dict[str, tuple[list[Any], list[Example]]] = {}
    for name, table in tables.items():
        if table is not None and table.examples:
            try:
                answered[name] = predict(ready.task, model, table.examples, on_progress=stop_callback(stop_signals))
            except StopRequested:
                return None
            if name == "dev":
                ready.task.tune(*answered[name])
            scores[name] = score_answers(ready.task, model, *answered[name])
    for left in trainer.out.glob(".model.*"):  # by a run that was killed while it wrote its model
        shutil.rmtree(left)
    write_settings(trainer.out / "config.toml", ready)  # with what was tuned
    model.save(trainer.out / "model")
    notes = [compare_with_baseline(ready, name, scores[name][0], answered[name][1]) for name in scores]
    result = RunResult(
        trainer.finish_reason() or trainer.pause_reason(),
        trainer.learner.step_count,
        scores,
        notes=tuple(filter(None, notes)),
    )
    write_result(trainer, model, result)
    write_run_report(trainer, model, result, answered)
    told = {name: [vars(score) for score in found] for name, found in scores.items()}
    return {"stop_reason": result.stop_reason, "scores": told, "notes": list(result.notes)}


def stop_callback(stop_signals: StopSignals) -> Callable[[int, int], None]:
    """What ends the answering of many examples when a signal has come."""

    def told(done: int, all: int) -> None:
        if stop_signals.signal_number:
            raise StopRequested

    return told
