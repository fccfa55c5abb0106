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
from saccade.models.model import Model
from saccade.tasks.answering import answer_items, mean_loss, scores_of
from saccade.tasks.metrics import Score
from saccade.training.checkpoint import Store, need
from saccade.training.disk import Disk, full_told
from saccade.training.diverged import SKIPS, write_down
from saccade.training.ending import finish, unless
from saccade.training.events import Asked, Event, Looked, Progress, Refused, Result, Said, Saved
from saccade.training.fitting import Fitting
from saccade.training.held import some
from saccade.training.job import Ready
from saccade.training.likeness import alike, other_world, same, shelved
from saccade.training.lines import Lines
from saccade.training.loop import Diverged, Learner, Step
from saccade.training.prospects import few_examples
from saccade.training.run_lock import lock_run
from saccade.training.settings import write_settings
from saccade.training.stops import Stops
from saccade.training.verify import Checkpoint, Damaged, read
from saccade.training.world import World, alone, joined


class Run:
    """One run at work."""

    def __init__(self, ready: Ready, out: Path, world: World | None = None, *, disk: Disk | None = None):
        self.ready, self.out = ready, out
        self.world = world or alone(ready.config.device)
        self.learner = Learner(ready.model, ready.task, ready.feed(), ready.config, self.world)
        self.store = Store(out, disk=disk)
        self.lines, self.speed = Lines(out / "metrics.jsonl"), Lines(out / "speed.jsonl")
        self.progress = Progress()
        self.held = some(ready)
        self.kept: int | None = None  # the step of the newest whole checkpoint
        self.began = self.saved = time.monotonic()
        self.worked = time.process_time()
        self.passed = self.unsaved = 0.0  # seconds since then, as all processes last agreed upon
        self.start = 0  # the step after which this call goes on
        self.fitting = Fitting()

    def resume(self) -> Iterator[Event]:
        """Be where the newest whole checkpoint was, or at the beginning."""
        warnings: list[str] = []
        found = self._newest(warnings)
        yield from map(Said, warnings)
        if found is None:
            self._cut(0)
            return
        same(found.facts["fixed"], self.ready, self.out)
        self.learner.restore({group: found.tensors(group) for group in found.groups}, found.step)
        self.progress = progress = Progress(**found.facts["progress"])
        progress.planned = progress.planned or progress.horizon  # which older checkpoints do not say
        if self.ready.config.max_time > progress.fitted:  # whatever shortened it, there is more time now
            progress.horizon = progress.planned
        self.learner.horizon = progress.horizon or self.learner.horizon
        self.kept = self.start = found.step
        # a look that came after the checkpoint is taken again
        self._cut(found.step, without="" if progress.looked == found.step else "dev")
        yield Said(f"going on after step {found.step:,} of {self.learner.horizon:,}")
        yield from map(Said, other_world(found.facts.get("world", {"size": 1}), self._world()))
        self.world.meet()  # all have read it, so it may be replaced
        best = self.world.first(lambda: getattr(self.store.best(warn=lambda text: None), "step", None))
        if progress.looked == progress.best_step == found.step != best:
            yield self.save(best=True)  # it was the best, but its writer died before it was marked

    def _newest(self, warnings: list[str]) -> Checkpoint | None:
        """The newest whole checkpoint that the first process finds; all go on from the same."""
        found = self.store.newest(warn=warnings.append) if self.world.is_first else None
        path = self.world.first(lambda: found and str(found.path))
        if path is None or found is not None:
            return found
        try:
            return read(Path(path))
        except (Damaged, OSError) as error:
            raise Refused(
                f"rank {self.world.rank} cannot read {path}, which the first process has read: {error}. "
                "All machines have to see the same directory; use one that they share."
            ) from error

    def _cut(self, step: int, *, without: str = "") -> None:
        if self.world.is_first:
            self.lines.cut(step, without=without)
            self.speed.cut(step)

    def _world(self) -> dict[str, Any]:
        """How the work is shared out, which does not change what is learnt but for the last bits."""
        return {"size": self.world.size, "shard": self.ready.config.shard and self.world.size > 1}

    def save(self, *, best: bool = False) -> Saved:
        """Everything, at this step."""
        now = time.monotonic()
        self.progress.minutes += self.world.first(lambda: now - self.began) / 60
        self.began = self.saved = now
        self.passed = self.unsaved = 0.0
        facts = {"fixed": self.ready.fixed(), "progress": vars(self.progress).copy(), "world": self._world()}
        self.lines.sync()
        learner = self.learner
        path = learner.spread.save(self.store, learner.done, learner.tensors(), facts, best=best)
        self.kept = self.learner.done
        return Saved(self.learner.done, path)

    def look(self, stops: Stops) -> Looked:
        """The scores on some of the held-out data, written down by the first process; the others hear of them."""
        with self.learner.averaged() as model:
            told = self.world.first(lambda: self._scores(model, stops))
        if told is None:
            raise Asked
        scores = [Score(**score) for score in told["scores"]]
        return Looked(self.learner.done, scores, self.progress.take(self.learner.done, scores, told["loss"]))

    def _scores(self, model: Model, stops: Stops) -> dict[str, Any] | None:
        items, examples = self.held
        task = self.ready.task
        try:
            found = task.gathered(answer_items(task, model, items, told=unless(stops)), items)
            loss = mean_loss(task, model, items, told=unless(stops)) if task.tracks_dev_loss else None
        except Asked:
            return None
        task.tune(found, examples)
        scores = scores_of(task, model, found, examples)
        measured = {score.name: score.value for score in scores} | ({} if loss is None else {"loss": loss})
        self.lines.add(step=self.learner.done, dev=measured)
        return {"scores": [vars(score) for score in scores], "loss": loss}

    def steps(self, stops: Stops) -> Iterator[Event]:
        """Learn until there is a reason to stop: `over`, `limit` or the signal in `stops.asked`."""
        learner = self.learner
        self.world.meet()  # some read and tokenise longer than others; from here on they go in step
        if learner.done:  # there may be a look that a signal kept from taking place
            yield from self._after(stops)
        while not (self.agree(stops) or self.over() or self.limit()):
            yield from self._fit()
            try:
                step = learner.step()
            except Diverged as error:
                yield self._skipped(error)
            else:
                self._note(step)
                yield step
            yield from self._after(stops)
        if learner.done and self.kept != learner.done:
            yield self.save()

    def agree(self, stops: Stops) -> int | None:
        """The signal that any process was sent, which then counts for all; and the clock of the first."""
        now = time.monotonic()
        told = self.world.gather(stops.asked or 0, now - self.began, now - self.saved)
        self.passed, self.unsaved = told[0][1:]
        asked = int(max(one[0] for one in told))
        if asked:  # never taken back: one may have come just now, and will be heard of the next time
            stops.asked = asked
        return asked or None

    def _fit(self) -> Iterator[Event]:
        """Where train.fit is on, a schedule of as many steps as the time holds; one that becomes longer is saved at once."""
        config, learner, progress = self.ready.config, self.learner, self.progress
        if not config.fit or learner.done == self.start:
            return
        before, minutes = progress.horizon, progress.minutes + self.passed / 60
        longest = learner.feed.steps(config.epochs)
        grown = self.fitting.plan(progress, learner.done, minutes, max_time=config.max_time, longest=longest)
        learner.horizon = progress.horizon or learner.horizon
        if grown:
            yield Said(
                f"steps are faster than planned: the schedule has {progress.horizon:,} steps instead of {before:,}, "
                f"fitted to train.max_time = {progress.fitted:g} minutes"
            )
            yield self.save()

    def _note(self, step: Step) -> None:
        if self.world.is_first:
            self.lines.add(step=step.number, loss=step.loss, rate=step.rate, norm=step.norm)
            before, self.worked = self.worked, time.process_time()
            self.speed.add(step=step.number, tokens=step.tokens, seconds=step.seconds, cpu=self.worked - before)

    def _skipped(self, error: Diverged) -> Said:
        """Leave a step out of which nothing can be learnt, where that was asked for and has not happened too often."""
        if self.ready.config.on_nan == "stop":
            raise error
        if self.progress.skipped >= SKIPS:
            error.args = (f"{error} {SKIPS} steps were left out before, and no run leaves out more.",)
            raise error
        self.progress.skipped += 1
        if self.world.is_first:
            write_down(error, self.out, self.ready.model, new=self.progress.skipped == 1)
            self.lines.add(step=error.step, skipped=self.progress.skipped)
        self.learner.skip()
        return Said(
            f"step {error.step:,} left out ({self.progress.skipped} of at most {SKIPS}): the loss was {error.loss} and the "
            f"gradient {error.norm}; its examples are in {self.out / 'diverged.jsonl'}"
        )

    def _after(self, stops: Stops) -> Iterator[Event]:
        """What follows a step: a look and a save, where they are due; whoever is asked to stop looks when going on."""
        best = False
        if self._look_now() and not self.agree(stops):
            try:
                looked = self.look(stops)
            except Asked:
                return
            best = looked.best
            yield looked
        if best or (self.kept != self.learner.done and (self.over() or self._save_now())):
            yield self.save(best=best)

    def _look_now(self) -> bool:
        every, done, feed = self.ready.config.look_every, self.learner.done, self.learner.feed
        if self.progress.looked == done:
            return False
        if done >= self.learner.horizon:
            return True
        return done % every == 0 if every else feed.epoch(done - 1) != feed.epoch(done)

    def _save_now(self) -> bool:
        every, minutes = self.ready.config.save_every, self.ready.config.save_minutes
        due = self.unsaved > 60 * minutes if minutes else False
        return due or (every > 0 and self.learner.done % every == 0)

    def over(self) -> str:
        """Why the run is finished, if it is."""
        patience = self.ready.config.patience
        progress = self.progress
        if self.learner.done >= self.learner.horizon:
            short = 0 < progress.horizon < self.learner.feed.steps(self.ready.config.epochs)
            fitted = f", fitted to train.max_time = {progress.fitted:g} minutes" if short else ""
            slow = f" and shortened from {progress.planned:,} steps, as steps and looks took longer"
            return f"the end of the schedule{fitted}{slow if progress.horizon < progress.planned else ''}"
        return "no better score for long" if patience and progress.since >= patience else ""

    def limit(self) -> str:
        """Why to stop for now, if there is a reason: a later call may go on."""
        config, minutes = self.ready.config, self.progress.minutes + self.passed / 60
        if config.max_steps and self.learner.done >= config.max_steps:
            return f"train.max_steps = {config.max_steps}"
        if config.max_time and minutes >= config.max_time:
            return f"train.max_time = {config.max_time} minutes"
        return ""


def _check_name(out: Path) -> None:
    """Refuse a directory whose name is not Unicode, before anything is learnt: safetensors cannot write there."""
    try:
        str(out).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(out).decode("utf-8", "backslashreplace")
        raise Refused(f"{shown}: the name of this directory is not Unicode (UTF-8); give another with --out.") from None


def _owned(out: Path, world: World) -> AbstractContextManager[str]:
    """The run directory, which the first process owns for all."""
    return lock_run(out) if world.is_first else nullcontext("")


def run(ready: Ready, out: Path, *, disk: Disk | None = None) -> Generator[Event, None, None]:
    """Train, or go on training; then write the best model and the report. Every process of a launcher runs this."""
    _check_name(out)
    with full_told(out), Stops() as stops, joined(ready.config.device) as world, _owned(out, world) as warning:
        if warning:
            yield Said(warning)
        alike(ready, world)
        out.mkdir(parents=True, exist_ok=True)  # of a process on another machine
        if ready.splits.bad and world.is_first:
            write_rejects(ready.splits.bad, out / "bad_records.jsonl")
        yield from map(Said, shelved(ready, out / "tokens", world))
        work = Run(ready, out, world, disk=disk)
        yield from work.resume()
        if not work.start and (warning := few_examples(ready)):
            yield Said(warning)
        # weights and two moments of each, and while one checkpoint is written the one before is there
        room = 2 * 3 * need({"model": work.learner.tensors()["model"]})
        if not (work.over() or work.limit()):
            world.first(partial(work.store.room, room))
        world.first(partial(write_settings, out / "config.toml", ready))
        try:
            yield from work.steps(stops)
            if not work.agree(stops):
                yield from finish(work, stops)
                return
        except Diverged as error:
            if world.is_first:
                write_down(error, out, ready.model, new=not work.progress.skipped)
            raise
        except Asked:
            pass
        yield Result("a signal", work.learner.done, {}, stops.asked)
