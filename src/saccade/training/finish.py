"""The end of a training run: evaluates the best model on all held-out data, saves it, and writes result.json and the report."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.data import Example
from saccade.metrics import Score
from saccade.models.model import Model
from saccade.tasks.classification.calibration import Calibration, scaled_logits
from saccade.tasks.predict import predict, score_answers
from saccade.tasks.runs.run import describe_selection
from saccade.training.baseline_check import compare_with_baseline, make_training_hint, measure_baselines
from saccade.training.checkpoint.read import read_checkpoint
from saccade.training.events import BaselineResult, Event, Message, RunResult, StopRequested
from saccade.training.result import write_result
from saccade.training.run_config import write_settings
from saccade.training.signals import StopSignals

if TYPE_CHECKING:
    from saccade.training.run import Trainer


def finish(trainer: "Trainer", stop_signals: StopSignals) -> Iterator[Event]:
    """Evaluate the best model, or the last one if there was no evaluation yet, on all held-out data; save it with its report."""
    learner, world = trainer.learner, trainer.world
    warnings: list[str] = []
    best = trainer.checkpoints.read_best(warn=warnings.append) if world.is_first else None
    path = world.run_on_first(lambda: best and str(best.path))
    yield from map(Message, warnings)
    if trainer.progress.rival_note:
        metric = next(iter(trainer.progress.best_scores))
        yield Message(
            f"the best model by {metric} is that of step {trainer.progress.best_step:,}; by every other score a later one was "
            f"better: {trainer.progress.rival_note}"
        )
    checkpoint = best or (read_checkpoint(Path(path)) if path else None)
    if checkpoint is not None and checkpoint.step != learner.step_count:
        learner.restore({group: checkpoint.read_tensors(group) for group in checkpoint.groups}, learner.step_count)
    with learner.with_ema() as model:
        outcome = world.run_on_first(lambda: _evaluate_and_write(trainer, model, stop_signals))
    if outcome is None:
        stop_signals.signal_number = int(max(row[0] for row in world.all_gather(stop_signals.signal_number or 0)))
        raise StopRequested
    yield RunResult(
        outcome["stop_reason"],
        learner.step_count,
        {name: [Score(**score) for score in scores] for name, scores in outcome["scores"].items()},
        notes=tuple(outcome["notes"]),
        baselines={name: BaselineResult.from_dict(values) for name, values in outcome["baselines"].items()},
    )


def _evaluate_and_write(trainer: "Trainer", model: Model, stop_signals: StopSignals) -> dict[str, Any] | None:
    """Evaluate and write all files, in the first process while the others wait; None if a signal arrived."""
    from saccade.training.write_report import write_run_report

    prepared_run, task = trainer.prepared_run, trainer.prepared_run.task
    model.eval()
    on_progress = stop_callback(stop_signals)
    tables = {
        name: table for name, table in prepared_run.splits.as_dict().items() if name != "train" and table.examples
    }
    scores: dict[str, list[Score]] = {}
    answered: dict[str, tuple[list[Any], list[Example]]] = {}
    calibration: Calibration | None = None
    with ExitStack() as scaling:
        try:
            for name, table in tables.items():
                answered[name] = predict(task, model, table.examples, on_progress=on_progress)
                if name == "dev":
                    calibration = task.calibrate(*answered[name])
                    if calibration is not None:
                        scaling.enter_context(scaled_logits(model, calibration.temperature))
                        answered[name] = predict(task, model, table.examples, on_progress=on_progress)
                    task.tune(*answered[name])
                scores[name] = score_answers(task, model, *answered[name])
        except StopRequested:
            return None
        for leftover in trainer.out.glob(".model.*"):  # of a run that was killed while it saved its model
            shutil.rmtree(leftover)
        write_settings(trainer.out / "config.toml", prepared_run)  # now with the tuned settings
        model.thresholds = dict(task.label_thresholds)
        model.save(trainer.out / "model")
        try:
            baselines, warnings = _compare_with_baselines(trainer, scores, stop_signals)
        except StopRequested:
            return None
        evaluations = sum("dev" in row for row in trainer.metrics_log.read())
        notes = [
            *warnings,
            describe_selection(scores, evaluations),
            "" if calibration is None else str(calibration),
            task.describe_tuning(),
        ]
        result = RunResult(
            trainer.finish_reason() or trainer.pause_reason(),
            trainer.learner.step_count,
            scores,
            notes=tuple(filter(None, notes)),
            warnings=tuple(warnings),
            baselines=baselines,
            evaluations=evaluations,
            calibration=calibration,
        )
        write_result(trainer, model, result)
        write_run_report(trainer, model, result, answered)
    plain_scores = {name: [vars(score) for score in split_scores] for name, split_scores in scores.items()}
    return {
        "stop_reason": result.stop_reason,
        "scores": plain_scores,
        "notes": list(result.notes),
        "baselines": {name: baseline.as_dict() for name, baseline in baselines.items()},
    }


def _compare_with_baselines(
    trainer: "Trainer", scores: dict[str, list[Score]], stop_signals: StopSignals
) -> tuple[dict[str, BaselineResult], list[str]]:
    """The best baseline of each split with scores, and warnings where the model is no better."""
    prepared_run, stop = trainer.prepared_run, stop_callback(stop_signals)
    splits = {name: table.examples for name, table in prepared_run.splits.as_dict().items() if name in scores}
    baselines, skipped = measure_baselines(
        prepared_run.task,
        prepared_run.splits.train.examples,
        splits,
        steps=trainer.learner.step_count,
        on_method=lambda: stop(0, 0),
    )
    advice = make_training_hint(prepared_run)
    notes = [compare_with_baseline(name, scores[name], baselines.get(name), advice) for name in scores]
    if skipped:
        notes.append(f"baselines that were not measured: {', '.join(skipped)}")
    return baselines, [note for note in notes if note]


def stop_callback(stop_signals: StopSignals) -> Callable[[int, int], None]:
    """An `on_progress` callback that raises StopRequested once a signal has arrived."""

    def raise_if_stopped(done: int, total: int) -> None:
        if stop_signals.signal_number:
            raise StopRequested

    return raise_if_stopped
