"""A run from its first step to its report: it goes on where it stopped, looks at held-out data, saves, and never loses a step.

    for event in run(ready, Path("RUN")):      # steps, looks, saves and, at last, the result
        ...

A run directory holds config.toml, metrics.jsonl (what was learnt: the same bytes for the same run), speed.jsonl (how fast),
checkpoints/, report.html and model/.
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
    """One run at work."""

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
        self.last_saved_step: int | None = None  # the step of the newest whole checkpoint
        self.clock_started_at = self.last_saved_at = time.monotonic()
        self.last_cpu_time = time.process_time()
        self.seconds_on_clock = self.seconds_unsaved = 0.0  # seconds since then, as all processes last agreed upon
        self.start_step = 0  # the step after which this call goes on
        self.schedule_fitter = ScheduleFitter()

    def resume(self) -> Iterator[Event]:
        """Be where the newest whole checkpoint was, or at the beginning."""
        warnings: list[str] = []
        found = self._read_newest_checkpoint(warnings)
        yield from map(Message, warnings)
        if found is None:
            self._truncate_logs(0)
            return
        check_same_run(found.facts["resume_facts"], self.prepared_run, self.out)
        self.learner.restore({group: found.read_tensors(group) for group in found.groups}, found.step)
        self.progress = progress = RunProgress(**found.facts["progress"])
        progress.planned_steps = progress.planned_steps or progress.fitted_steps  # which older checkpoints do not say
        if (
            self.prepared_run.config.max_minutes > progress.fitted_minutes
        ):  # whatever shortened it, there is more time now
            progress.fitted_steps = progress.planned_steps
        self.learner.total_steps = progress.fitted_steps or self.learner.total_steps
        self.last_saved_step = self.start_step = found.step
        # a look that came after the checkpoint is taken again
        self._truncate_logs(found.step, without_key="" if progress.last_eval_step == found.step else "dev")
        yield Message(f"going on after step {found.step:,} of {self.learner.total_steps:,}")
        yield from map(Message, world_change_note(found.facts.get("world", {"size": 1}), self._world_facts()))
        self.world.barrier()  # all have read it, so it may be replaced
        best = self.world.run_on_first(
            lambda: getattr(self.checkpoints.read_best(warn=lambda text: None), "step", None)
        )
        if progress.last_eval_step == progress.best_step == found.step != best:
            yield self.save(best=True)  # it was the best, but its writer died before it was marked

    def _read_newest_checkpoint(self, warnings: list[str]) -> Checkpoint | None:
        """The newest whole checkpoint that the first process finds; all go on from the same."""
        found = self.checkpoints.read_newest(warn=warnings.append) if self.world.is_first else None
        path = self.world.run_on_first(lambda: found and str(found.path))
        if path is None or found is not None:
            return found
        try:
            return read_checkpoint(Path(path))
        except (CorruptCheckpoint, OSError) as error:
            raise RunRefused(
                f"rank {self.world.rank} cannot read {path}, which the first process has read: {error}. "
                "All machines have to see the same directory; use one that they share."
            ) from error

    def _truncate_logs(self, step: int, *, without_key: str = "") -> None:
        if self.world.is_first:
            self.metrics_log.truncate(step, without_key=without_key)
            self.speed_log.truncate(step)

    def _world_facts(self) -> dict[str, Any]:
        """How the work is shared out, which does not change what is learnt but for the last bits."""
        return {"size": self.world.size, "fsdp": self.prepared_run.config.fsdp and self.world.size > 1}

    def save(self, *, best: bool = False) -> CheckpointSaved:
        """Everything, at this step."""
        now = time.monotonic()
        self.progress.minutes += self.world.run_on_first(lambda: now - self.clock_started_at) / 60
        self.clock_started_at = self.last_saved_at = now
        self.seconds_on_clock = self.seconds_unsaved = 0.0
        facts = {
            "resume_facts": self.prepared_run.resume_facts(),
            "progress": vars(self.progress).copy(),
            "world": self._world_facts(),
        }
        self.metrics_log.sync()
        learner = self.learner
        path = learner.strategy.save(
            self.checkpoints, learner.step_count, learner.checkpoint_tensors(), facts, best=best
        )
        self.last_saved_step = self.learner.step_count
        return CheckpointSaved(self.learner.step_count, path)

    def evaluate(self, stop_signals: StopSignals) -> DevEvaluation:
        """The scores on some of the held-out data, written down by the first process; the others hear of them."""
        with self.learner.with_ema() as model:
            told = self.world.run_on_first(lambda: self._score_dev_subset(model, stop_signals))
        if told is None:
            raise StopRequested
        scores = [Score(**score) for score in told["scores"]]
        return DevEvaluation(
            self.learner.step_count, scores, self.progress.record_eval(self.learner.step_count, scores, told["loss"])
        )

    def _score_dev_subset(self, model: Model, stop_signals: StopSignals) -> dict[str, Any] | None:
        items, examples = self.dev_subset
        task = self.prepared_run.task
        try:
            found = task.merge_answers(
                predict_items(task, model, items, on_progress=stop_callback(stop_signals)), items
            )
            loss = (
                mean_loss(task, model, items, on_progress=stop_callback(stop_signals)) if task.tracks_dev_loss else None
            )
        except StopRequested:
            return None
        task.tune(found, examples)
        scores = score_answers(task, model, found, examples)
        measured = {score.name: score.value for score in scores} | ({} if loss is None else {"loss": loss})
        self.metrics_log.append(step=self.learner.step_count, dev=measured)
        return {"scores": [vars(score) for score in scores], "loss": loss}

    def train(self, stop_signals: StopSignals) -> Iterator[Event]:
        """Learn until there is a reason to stop: `finish_reason`, `pause_reason` or the signal in `stop_signals`."""
        learner = self.learner
        self.world.barrier()  # some read and tokenise longer than others; from here on they go in step
        if learner.step_count:  # there may be a look that a signal kept from taking place
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
        """The signal that any process was sent, which then counts for all; and the clock of the first."""
        now = time.monotonic()
        told = self.world.all_gather(
            stop_signals.signal_number or 0, now - self.clock_started_at, now - self.last_saved_at
        )
        self.seconds_on_clock, self.seconds_unsaved = told[0][1:]
        asked = int(max(one[0] for one in told))
        if asked:  # never taken back: one may have come just now, and will be heard of the next time
            stop_signals.signal_number = asked
        return asked or None

    def _fit_schedule(self) -> Iterator[Event]:
        """Where train.fit_schedule is on, a schedule of as many steps as the time holds; one that becomes longer is saved at once."""
        config, learner, progress = self.prepared_run.config, self.learner, self.progress
        if not config.fit_schedule or learner.step_count == self.start_step:
            return
        before, minutes = progress.fitted_steps, progress.minutes + self.seconds_on_clock / 60
        longest = learner.batch_source.count_steps(config.epochs)
        grown = self.schedule_fitter.plan(
            progress, learner.step_count, minutes, max_minutes=config.max_minutes, max_steps=longest
        )
        learner.total_steps = progress.fitted_steps or learner.total_steps
        if grown:
            yield Message(
                f"steps are faster than planned: the schedule has {progress.fitted_steps:,} steps instead of {before:,}, "
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
        """Leave a step out of which nothing can be learnt, where that was asked for and has not happened too often."""
        if self.prepared_run.config.on_nan == "stop":
            raise error
        if self.progress.skipped_steps >= MAX_SKIPPED_STEPS:
            error.args = (f"{error} {MAX_SKIPPED_STEPS} steps were left out before, and no run leaves out more.",)
            raise error
        self.progress.skipped_steps += 1
        if self.world.is_first:
            write_bad_batch(error, self.out, self.prepared_run.model, overwrite=self.progress.skipped_steps == 1)
            self.metrics_log.append(step=error.step, skipped_steps=self.progress.skipped_steps)
        self.learner.skip_step()
        return Message(
            f"step {error.step:,} left out ({self.progress.skipped_steps} of at most {MAX_SKIPPED_STEPS}): the loss was {error.loss} and the "
            f"gradient {error.grad_norm}; its examples are in {self.out / 'diverged.jsonl'}"
        )

    def _evaluate_and_save(self, stop_signals: StopSignals) -> Iterator[Event]:
        """What follows a step: a look and a save, where they are due; whoever is asked to stop looks when going on."""
        best = False
        if self._should_evaluate() and not self.sync_stop_signal(stop_signals):
            try:
                looked = self.evaluate(stop_signals)
            except StopRequested:
                return
            best = looked.best
            yield looked
        if best or (self.last_saved_step != self.learner.step_count and (self.finish_reason() or self._should_save())):
            yield self.save(best=best)

    def _should_evaluate(self) -> bool:
        every, done, feed = self.prepared_run.config.eval_every, self.learner.step_count, self.learner.batch_source
        if self.progress.last_eval_step == done:
            return False
        if done >= self.learner.total_steps:
            return True
        return done % every == 0 if every else feed.epoch_at(done - 1) != feed.epoch_at(done)

    def _should_save(self) -> bool:
        every, minutes = self.prepared_run.config.save_every, self.prepared_run.config.save_minutes
        due = self.seconds_unsaved > 60 * minutes if minutes else False
        return due or (every > 0 and self.learner.step_count % every == 0)

    def finish_reason(self) -> str:
        """Why the run is finished, if it is."""
        patience = self.prepared_run.config.patience
        progress = self.progress
        if self.learner.step_count >= self.learner.total_steps:
            short = 0 < progress.fitted_steps < self.learner.batch_source.count_steps(self.prepared_run.config.epochs)
            fitted = f", fitted to train.max_minutes = {progress.fitted_minutes:g} minutes" if short else ""
            slow = f" and shortened from {progress.planned_steps:,} steps, as steps and looks took longer"
            return f"the end of the schedule{fitted}{slow if progress.fitted_steps < progress.planned_steps else ''}"
        return "no better score for long" if patience and progress.evals_since_best >= patience else ""

    def pause_reason(self) -> str:
        """Why to stop for now, if there is a reason: a later call may go on."""
        config, minutes = self.prepared_run.config, self.progress.minutes + self.seconds_on_clock / 60
        if config.max_steps and self.learner.step_count >= config.max_steps:
            return f"train.max_steps = {config.max_steps}"
        if config.max_minutes and minutes >= config.max_minutes:
            return f"train.max_minutes = {config.max_minutes} minutes"
        return ""


def _check_unicode_path(out: Path) -> None:
    """Refuse a directory whose name is not Unicode, before anything is learnt: safetensors cannot write there."""
    try:
        str(out).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(out).decode("utf-8", "backslashreplace")
        raise RunRefused(
            f"{shown}: the name of this directory is not Unicode (UTF-8); give another with --out."
        ) from None


def _lock_on_first(out: Path, world: World) -> AbstractContextManager[str]:
    """The run directory, which the first process owns for all."""
    return lock_run(out) if world.is_first else nullcontext("")


def run_training(prepared_run: PreparedRun, out: Path, *, disk: Disk | None = None) -> Generator[Event, None, None]:
    """Train, or go on training; then write the best model and the report. Every process of a launcher runs this."""
    _check_unicode_path(out)
    with (
        disk_full_errors(out),
        StopSignals() as stops,
        join_world(prepared_run.config.device) as world,
        _lock_on_first(out, world) as warning,
    ):
        if warning:
            yield Message(warning)
        check_ranks_agree(prepared_run, world)
        out.mkdir(parents=True, exist_ok=True)  # of a process on another machine
        if prepared_run.splits.rejects and world.is_first:
            write_rejects(prepared_run.splits.rejects, out / "bad_records.jsonl")
        yield from map(Message, write_shards_once(prepared_run, out / "tokens", world))
        work = Trainer(prepared_run, out, world, disk=disk)
        yield from work.resume()
        if not work.start_step and (warning := check_example_count(prepared_run)):
            yield Message(warning)
        # weights and two moments of each, and while one checkpoint is written the one before is there
        room = 2 * 3 * bytes_needed({"model": work.learner.checkpoint_tensors()["model"]})
        if not (work.finish_reason() or work.pause_reason()):
            world.run_on_first(partial(work.checkpoints.check_free_space, room))
        world.run_on_first(partial(write_settings, out / "config.toml", prepared_run))
        try:
            yield from work.train(stops)
            if not work.sync_stop_signal(stops):
                yield from finish(work, stops)
                return
        except NonFiniteLoss as error:
            if world.is_first:
                write_bad_batch(error, out, prepared_run.model, overwrite=not work.progress.skipped_steps)
            raise
        except StopRequested:
            pass
        yield RunResult("a signal", work.learner.step_count, {}, stops.signal_number)
