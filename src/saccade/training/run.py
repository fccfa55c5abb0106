"""A training run: resumes from its newest checkpoint, trains, evaluates on the dev set, saves checkpoints, writes the report.

    for event in run_training(prepared_run, Path("RUN")):      # steps, evaluations, checkpoints and, at the end, the result
        ...

A run directory holds config.toml, metrics.jsonl (losses and scores, byte for byte the same for equal runs), speed.jsonl
(throughput), checkpoints/, report.html and model/.
"""

import os
import time
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from saccade.data.read import write_rejects
from saccade.metrics import Score
from saccade.models.model import Model
from saccade.system import cpu_count, cpu_name
from saccade.tasks.predict import mean_loss, predict_items, score_answers
from saccade.training.baseline_check import check_example_count
from saccade.training.checkpoint.disk import Disk, disk_full_errors
from saccade.training.checkpoint.read import Checkpoint, CorruptCheckpoint, read_checkpoint
from saccade.training.checkpoint.run_lock import lock_run
from saccade.training.checkpoint.store import CheckpointStore, bytes_needed
from saccade.training.dev_subset import dev_subset
from saccade.training.distributed import World, join_world, single_process_world
from saccade.training.events import (
    CheckpointSaved,
    DevEvaluation,
    Event,
    Message,
    RunProgress,
    RunRefused,
    RunResult,
    StopRequested,
)
from saccade.training.finish import finish, stop_callback
from saccade.training.fit_schedule import ScheduleFitter
from saccade.training.loop import Learner, NonFiniteLoss, TrainStep
from saccade.training.metrics_log import MetricsLog
from saccade.training.nan_skip import MAX_SKIPPED_STEPS, write_bad_batch
from saccade.training.prepare import PreparedRun
from saccade.training.resume import check_ranks_agree, check_same_run, world_change_note, write_shards_once
from saccade.training.run_config import write_settings
from saccade.training.signals import StopSignals


class Trainer:
    """Runs the training loop with evaluations, checkpoints and logs."""

    def __init__(self, prepared_run: PreparedRun, out: Path, world: World | None = None, *, disk: Disk | None = None):
        self.prepared_run, self.out = prepared_run, out
        self.world = world or single_process_world(prepared_run.config.device)
        self.learner = Learner(
            prepared_run.model, prepared_run.task, prepared_run.make_batches(), prepared_run.config, self.world
        )
        self.checkpoints = CheckpointStore(out, disk=disk)
        self.metrics_log, self.speed_log = MetricsLog(out / "metrics.jsonl"), MetricsLog(out / "speed.jsonl")
        self.progress = RunProgress()
        self.dev_subset = dev_subset(prepared_run)
        self.last_saved_step: int | None = None  # of the newest checkpoint
        self.clock_started_at = self.last_saved_at = time.monotonic()
        self.last_cpu_time = time.process_time()
        self.seconds_on_clock = self.seconds_unsaved = 0.0  # since then, by the clock of rank 0
        self.start_step = 0  # the step from which this call resumes
        self.schedule_fitter = ScheduleFitter()

    def resume(self) -> Iterator[Event]:
        """Restore the newest valid checkpoint, if there is one."""
        warnings: list[str] = []
        checkpoint = self._read_newest_checkpoint(warnings)
        yield from map(Message, warnings)
        if checkpoint is None:
            self._truncate_logs(0)
            return
        check_same_run(checkpoint.facts["resume_facts"], self.prepared_run, self.out)
        self.learner.restore({group: checkpoint.read_tensors(group) for group in checkpoint.groups}, checkpoint.step)
        self.progress = progress = RunProgress(**checkpoint.facts["progress"])
        progress.planned_steps = progress.planned_steps or progress.fitted_steps  # missing in older checkpoints
        if self.prepared_run.config.max_minutes > progress.fitted_minutes:  # more time now, so undo any shortening
            progress.fitted_steps = progress.planned_steps
        self.learner.total_steps = progress.fitted_steps or self.learner.total_steps
        self.last_saved_step = self.start_step = checkpoint.step
        # an evaluation after the checkpoint is repeated
        self._truncate_logs(checkpoint.step, without_key="" if progress.last_eval_step == checkpoint.step else "dev")
        yield Message(f"resuming at step {checkpoint.step:,} of {self.learner.total_steps:,}")
        yield from map(Message, world_change_note(checkpoint.facts.get("world", {"size": 1}), self._world_facts()))
        self.world.barrier()  # every process has read it, so it may be replaced
        best_step = self.world.run_on_first(
            lambda: getattr(self.checkpoints.read_best(warn=lambda text: None), "step", None)
        )
        if progress.last_eval_step == progress.best_step == checkpoint.step != best_step:
            yield self.save(best=True)  # it was the best, but the process died before marking it

    def _read_newest_checkpoint(self, warnings: list[str]) -> Checkpoint | None:
        """The newest valid checkpoint as rank 0 sees it, so that all processes resume from the same one."""
        checkpoint = self.checkpoints.read_newest(warn=warnings.append) if self.world.is_first else None
        path = self.world.run_on_first(lambda: checkpoint and str(checkpoint.path))
        if path is None or checkpoint is not None:
            return checkpoint
        try:
            return read_checkpoint(Path(path))
        except (CorruptCheckpoint, OSError) as error:
            raise RunRefused(
                f"rank {self.world.rank} cannot read {path}, which rank 0 has read: {error}. "
                "All machines need the same run directory; use a shared file system."
            ) from error

    def _truncate_logs(self, step: int, *, without_key: str = "") -> None:
        if self.world.is_first:
            self.metrics_log.truncate(step, without_key=without_key)
            self.speed_log.truncate(step)

    def _world_facts(self) -> dict[str, Any]:
        """The number of processes and FSDP, which change the results only by rounding."""
        return {"size": self.world.size, "fsdp": self.prepared_run.config.fsdp and self.world.size > 1}

    def save(self, *, best: bool = False) -> CheckpointSaved:
        """Save a checkpoint of the current step."""
        now = time.monotonic()
        self.progress.minutes += self.world.run_on_first(lambda: now - self.clock_started_at) / 60
        self.clock_started_at = self.last_saved_at = now
        self.seconds_on_clock = self.seconds_unsaved = 0.0
        facts = {
            "resume_facts": self.prepared_run.resume_facts(),
            "progress": vars(self.progress).copy(),
            "world": self._world_facts(),
            "machine": {"cpu": cpu_name(), "cores": cpu_count(), "device": str(self.world.device)},
        }
        self.metrics_log.sync()
        learner = self.learner
        path = learner.strategy.save(
            self.checkpoints, learner.step_count, learner.checkpoint_tensors(), facts, best=best
        )
        self.last_saved_step = self.learner.step_count
        return CheckpointSaved(self.learner.step_count, path)

    def evaluate(self, stop_signals: StopSignals) -> DevEvaluation:
        """Evaluate on the dev subset on rank 0, which logs the scores and sends them to the other processes."""
        with self.learner.with_ema() as model:
            result = self.world.run_on_first(lambda: self._score_dev_subset(model, stop_signals))
        if result is None:
            raise StopRequested
        scores = [Score(**score) for score in result["scores"]]
        return DevEvaluation(
            self.learner.step_count, scores, self.progress.record_eval(self.learner.step_count, scores, result["loss"])
        )

    def _score_dev_subset(self, model: Model, stop_signals: StopSignals) -> dict[str, Any] | None:
        items, examples = self.dev_subset
        task, on_progress = self.prepared_run.task, stop_callback(stop_signals)
        try:
            outputs = predict_items(task, model, items, on_progress=on_progress)
            answers = task.merge_answers(outputs, items)
            loss = mean_loss(task, model, items, on_progress=on_progress) if task.tracks_dev_loss else None
        except StopRequested:
            return None
        task.tune(answers, examples)
        scores = score_answers(task, model, answers, examples)
        dev_metrics = {score.name: score.value for score in scores} | ({} if loss is None else {"loss": loss})
        self.metrics_log.append(step=self.learner.step_count, dev=dev_metrics)
        return {"scores": [vars(score) for score in scores], "loss": loss}

    def train(self, stop_signals: StopSignals) -> Iterator[Event]:
        """Train until there is a reason to stop: `finish_reason`, `pause_reason` or a signal in `stop_signals`."""
        learner = self.learner
        self.world.barrier()  # processes differ in preparation time; from here on they are in step
        if learner.step_count:  # an evaluation may be due that a signal prevented
            yield from self._evaluate_and_save(stop_signals)
        while not (self.sync_stop_signal(stop_signals) or self.finish_reason() or self.pause_reason()):
            yield from self._fit_schedule()
            try:
                step = learner.step()
            except NonFiniteLoss as error:
                yield self._skip_step(error)
            else:
                self._log_step(step)
                yield step
            yield from self._evaluate_and_save(stop_signals)
        if learner.step_count and self.last_saved_step != learner.step_count:
            yield self.save()

    def sync_stop_signal(self, stop_signals: StopSignals) -> int | None:
        """Share a signal that any process received with all of them, and the clock of rank 0; returns the signal."""
        now = time.monotonic()
        by_rank = self.world.all_gather(
            stop_signals.signal_number or 0, now - self.clock_started_at, now - self.last_saved_at
        )
        self.seconds_on_clock, self.seconds_unsaved = by_rank[0][1:]
        signal_number = int(max(row[0] for row in by_rank))
        if signal_number:  # never reset to None, since a signal may just have arrived, to be shared the next time
            stop_signals.signal_number = signal_number
        return signal_number or None

    def _fit_schedule(self) -> Iterator[Event]:
        """With train.fit_schedule, fit the number of steps to the time limit; a longer schedule is saved at once."""
        config, learner, progress = self.prepared_run.config, self.learner, self.progress
        if not config.fit_schedule or learner.step_count == self.start_step:
            return
        old_steps, minutes = progress.fitted_steps, progress.minutes + self.seconds_on_clock / 60
        max_steps = learner.batch_source.count_steps(config.epochs)
        is_longer = self.schedule_fitter.plan(
            progress, learner.step_count, minutes, max_minutes=config.max_minutes, max_steps=max_steps
        )
        learner.total_steps = progress.fitted_steps or learner.total_steps
        if is_longer:
            yield Message(
                f"steps are faster than planned: schedule extended to {progress.fitted_steps:,} steps from {old_steps:,}, "
                f"fitted to train.max_minutes = {progress.fitted_minutes:g} minutes"
            )
            yield self.save()

    def _log_step(self, step: TrainStep) -> None:
        if self.world.is_first:
            self.metrics_log.append(step=step.number, loss=step.loss, lr=step.lr, grad_norm=step.grad_norm)
            before, self.last_cpu_time = self.last_cpu_time, time.process_time()
            self.speed_log.append(
                step=step.number, tokens=step.tokens, seconds=step.seconds, cpu_seconds=self.last_cpu_time - before
            )

    def _skip_step(self, error: NonFiniteLoss) -> Message:
        """Skip a step with a non-finite loss if train.on_nan is `skip`, up to MAX_SKIPPED_STEPS times; otherwise raise."""
        if self.prepared_run.config.on_nan == "stop":
            raise error
        if self.progress.skipped_steps >= MAX_SKIPPED_STEPS:
            error.args = (f"{error} {MAX_SKIPPED_STEPS} steps have been skipped already, the maximum per run.",)
            raise error
        self.progress.skipped_steps += 1
        if self.world.is_first:
            write_bad_batch(error, self.out, self.prepared_run.model, overwrite=self.progress.skipped_steps == 1)
            self.metrics_log.append(step=error.step, skipped_steps=self.progress.skipped_steps)
        self.learner.skip_step()
        return Message(
            f"step {error.step:,} skipped ({self.progress.skipped_steps} of at most {MAX_SKIPPED_STEPS}): loss {error.loss}, "
            f"gradient norm {error.grad_norm}; its examples are in {self.out / 'diverged.jsonl'}"
        )

    def _evaluate_and_save(self, stop_signals: StopSignals) -> Iterator[Event]:
        """Evaluate and save after a step if due; after a stop signal, the evaluation takes place when the run resumes."""
        best = False
        if self._should_evaluate() and not self.sync_stop_signal(stop_signals):
            try:
                evaluation = self.evaluate(stop_signals)
            except StopRequested:
                return
            best = evaluation.best
            yield evaluation
        if best or (self.last_saved_step != self.learner.step_count and (self.finish_reason() or self._should_save())):
            yield self.save(best=best)

    def _should_evaluate(self) -> bool:
        every, step = self.prepared_run.config.eval_every, self.learner.step_count
        epoch_at = self.learner.batch_source.epoch_at
        if self.progress.last_eval_step == step:
            return False
        if step >= self.learner.total_steps:
            return True
        return step % every == 0 if every else epoch_at(step - 1) != epoch_at(step)

    def _should_save(self) -> bool:
        every, minutes = self.prepared_run.config.save_every, self.prepared_run.config.save_minutes
        is_time_due = self.seconds_unsaved > 60 * minutes if minutes else False
        return is_time_due or (every > 0 and self.learner.step_count % every == 0)

    def finish_reason(self) -> str:
        """Why the run is finished: end of schedule or early stopping; empty if it is not."""
        config, progress = self.prepared_run.config, self.progress
        if self.learner.step_count >= self.learner.total_steps:
            reason, full_steps = "the end of the schedule", self.learner.batch_source.count_steps(config.epochs)
            if 0 < progress.fitted_steps < full_steps:
                reason += f", fitted to train.max_minutes = {progress.fitted_minutes:g} minutes"
            if progress.fitted_steps < progress.planned_steps:
                slow = "since steps and evaluations were slower than planned"
                reason += f" and shortened from {progress.planned_steps:,} steps, {slow}"
            return reason
        is_early = 0 < config.patience <= progress.evals_since_best
        return f"early stopping: {config.patience} evaluations without improvement" if is_early else ""

    def pause_reason(self) -> str:
        """Why to stop for now, train.max_steps or train.max_minutes, so that a later call may resume; empty if there is none."""
        config, minutes = self.prepared_run.config, self.progress.minutes + self.seconds_on_clock / 60
        if config.max_steps and self.learner.step_count >= config.max_steps:
            return f"train.max_steps = {config.max_steps}"
        if config.max_minutes and minutes >= config.max_minutes:
            return f"train.max_minutes = {config.max_minutes} minutes"
        return ""


def _check_unicode_path(out: Path) -> None:
    """Raise RunRefused, before training, if the path is not Unicode: safetensors cannot write there."""
    try:
        str(out).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(out).decode("utf-8", "backslashreplace")
        raise RunRefused(f"{shown}: this path is not valid UTF-8; choose another directory with --out.") from None


def _lock_on_first(out: Path, world: World) -> AbstractContextManager[str]:
    """Lock the run directory on rank 0, on behalf of all processes."""
    return lock_run(out) if world.is_first else nullcontext("")


def run_training(prepared_run: PreparedRun, out: Path, *, disk: Disk | None = None) -> Generator[Event, None, None]:
    """Train or resume training, then save the best model and the report. Every process of a distributed run calls it."""
    _check_unicode_path(out)
    with (
        disk_full_errors(out),
        StopSignals() as stop_signals,
        join_world(prepared_run.config.device) as world,
        _lock_on_first(out, world) as warning,
    ):
        if warning:
            yield Message(warning)
        check_ranks_agree(prepared_run, world)
        out.mkdir(parents=True, exist_ok=True)  # for a process on another machine
        if prepared_run.splits.rejects and world.is_first:
            write_rejects(prepared_run.splits.rejects, out / "bad_records.jsonl")
        yield from map(Message, write_shards_once(prepared_run, out / "tokens", world))
        trainer = Trainer(prepared_run, out, world, disk=disk)
        yield from trainer.resume()
        if not trainer.start_step and (warning := check_example_count(prepared_run)):
            yield Message(warning)
        # weights and two moments of each, twice, since the previous checkpoint stays until the next one is complete
        space = 2 * 3 * bytes_needed({"model": trainer.learner.checkpoint_tensors()["model"]})
        if not (trainer.finish_reason() or trainer.pause_reason()):
            world.run_on_first(partial(trainer.checkpoints.check_free_space, space))
        world.run_on_first(partial(write_settings, out / "config.toml", prepared_run))
        try:
            yield from trainer.train(stop_signals)
            if not trainer.sync_stop_signal(stop_signals):
                yield from finish(trainer, stop_signals)
                return
        except NonFiniteLoss as error:
            if world.is_first:
                write_bad_batch(error, out, prepared_run.model, overwrite=not trainer.progress.skipped_steps)
            raise
        except StopRequested:
            pass
        yield RunResult("a signal", trainer.learner.step_count, {}, stop_signals.signal_number)
