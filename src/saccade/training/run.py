"""A run from its first step to its report: it goes on where it stopped, looks at held-out data, saves, and never loses a step.

    for event in run(ready, Path("RUN")):      # steps, looks, saves and, at last, the result
        ...

A run directory holds config.toml, metrics.jsonl (what was learnt: the same bytes for the same run), speed.jsonl (how fast),
checkpoints/, report.html and model/.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from saccade.data import Example
from saccade.tasks.answering import answer_items, answers
from saccade.tasks.metrics import Score
from saccade.tasks.task import Item
from saccade.training.checkpoint import Store, need
from saccade.training.disk import Disk
from saccade.training.events import Asked, Event, Looked, Progress, Refused, Result, Said, Saved
from saccade.training.job import Ready
from saccade.training.lines import Lines
from saccade.training.loop import Diverged, Learner
from saccade.training.packing import from_json, to_json
from saccade.training.settings import write_settings
from saccade.training.stops import Stops


class Run:
    """One run at work."""

    def __init__(self, ready: Ready, out: Path, *, disk: Disk | None = None):
        self.ready, self.out = ready, out
        self.learner = Learner(ready.model, ready.task, ready.feed(), ready.config)
        self.store = Store(out, disk=disk)
        self.lines, self.speed = Lines(out / "metrics.jsonl"), Lines(out / "speed.jsonl")
        self.progress = Progress()
        self.held = _some(ready)
        self.kept: int | None = None  # the step of the newest whole checkpoint
        self.began = self.saved = time.monotonic()

    def resume(self) -> Iterator[Event]:
        """Be where the newest whole checkpoint was, or at the beginning."""
        warnings: list[str] = []
        found = self.store.newest(warn=warnings.append)
        yield from map(Said, warnings)
        if found is None:
            self.lines.cut(0)
            self.speed.cut(0)
            return
        _same(found.facts["fixed"], self.ready.fixed(), self.out)
        self.learner.restore({group: found.tensors(group) for group in found.groups}, found.step)
        self.progress = progress = Progress(**found.facts["progress"])
        self.kept = found.step
        # a look that came after the checkpoint is taken again
        self.lines.cut(found.step, without="" if progress.looked == found.step else "dev")
        self.speed.cut(found.step)
        yield Said(f"going on after step {found.step:,} of {self.learner.horizon:,}")
        best = self.store.best(warn=lambda text: None)
        if progress.looked == found.step and not progress.since and (best is None or best.step != found.step):
            yield self.save(best=True)  # it was the best, but its writer died before it was marked

    def save(self, *, best: bool = False) -> Saved:
        """Everything, at this step."""
        now = time.monotonic()
        self.progress.minutes += (now - self.began) / 60
        self.began = self.saved = now
        facts = {"fixed": self.ready.fixed(), "progress": vars(self.progress).copy()}
        self.lines.sync()
        path = self.store.save(self.learner.done, self.learner.tensors(), facts, best=best)
        self.kept = self.learner.done
        return Saved(self.learner.done, path)

    def look(self, stops: Stops) -> Looked:
        """The scores on some of the held-out data, written down."""
        items, examples = self.held
        task = self.ready.task
        with self.learner.averaged() as model:
            found = task.gathered(answer_items(task, model, items, told=_unless(stops)), items)
        scores = task.score(found, examples)
        self.lines.add(step=self.learner.done, dev={score.name: score.value for score in scores})
        better = self.progress.better(scores[0])
        self.progress.since = 0 if better else self.progress.since + 1
        self.progress.looked = self.learner.done
        if better:
            self.progress.best = scores[0].value
        return Looked(self.learner.done, scores, better)

    def steps(self, stops: Stops) -> Iterator[Event]:
        """Learn until there is a reason to stop: `over`, `limit` or the signal in `stops.asked`."""
        learner = self.learner
        if learner.done:  # there may be a look that a signal kept from taking place
            yield from self._after(stops)
        while not (self.over() or self.limit() or stops.asked):
            step = learner.step()
            self.lines.add(step=step.number, loss=step.loss, rate=step.rate, norm=step.norm)
            self.speed.add(step=step.number, tokens=step.tokens, seconds=step.seconds)
            yield step
            yield from self._after(stops)
        if learner.done and self.kept != learner.done:
            yield self.save()

    def _after(self, stops: Stops) -> Iterator[Event]:
        """What follows a step: a look and a save, where they are due; whoever is asked to stop looks when going on."""
        best = False
        if self._look_now() and not stops.asked:
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
        due = time.monotonic() - self.saved > 60 * minutes if minutes else False
        return due or (every > 0 and self.learner.done % every == 0)

    def over(self) -> str:
        """Why the run is finished, if it is."""
        patience = self.ready.config.patience
        if self.learner.done >= self.learner.horizon:
            return "the end of the schedule"
        return "no better score for long" if patience and self.progress.since >= patience else ""

    def limit(self) -> str:
        """Why to stop for now, if there is a reason: a later call may go on."""
        config, minutes = self.ready.config, self.progress.minutes + (time.monotonic() - self.began) / 60
        if config.max_steps and self.learner.done >= config.max_steps:
            return f"train.max_steps = {config.max_steps}"
        if config.max_time and minutes >= config.max_time:
            return f"train.max_time = {config.max_time} minutes"
        return ""


def run(ready: Ready, out: Path, *, disk: Disk | None = None) -> Iterator[Event]:
    """Train, or go on training; then write the best model and the report."""
    out.mkdir(parents=True, exist_ok=True)
    with Stops() as stops:
        work = Run(ready, out, disk=disk)
        yield from work.resume()
        # weights and two moments of each, and while one checkpoint is written the one before is there
        work.store.room(2 * 3 * need({"model": work.learner.tensors()["model"]}))
        write_settings(out / "config.toml", ready)
        try:
            yield from work.steps(stops)
            if not stops.asked:
                yield from finish(work, stops)
                return
        except Diverged as error:
            _write_down(error, work)
            raise
        except Asked:
            pass
        yield Result("a signal", work.learner.done, {}, stops.asked)


def finish(work: Run, stops: Stops) -> Iterator[Event]:
    """The best model, or the last where nobody has looked yet, on all held-out data, written down with its report."""
    from saccade.training.summary import summarise

    ready, learner = work.ready, work.learner
    warnings: list[str] = []
    found = work.store.best(warn=warnings.append)
    yield from map(Said, warnings)
    if found is not None and found.step != learner.done:
        learner.restore({group: found.tensors(group) for group in found.groups}, learner.done)
    with learner.averaged() as model:
        model.eval()
        tables = {"dev": ready.splits.dev, "test": ready.splits.test}
        scores: dict[str, list[Score]] = {}
        answered: dict[str, tuple[list[Any], list[Example]]] = {}
        for name, table in tables.items():
            if table is not None and table.examples:
                answered[name] = answers(ready.task, model, table.examples, told=_unless(stops))
                scores[name] = ready.task.score(*answered[name])
        for left in work.out.glob(".model.*"):  # by a run that was killed while it wrote its model
            shutil.rmtree(left)
        model.save(work.out / "model")
        result = Result(work.over() or work.limit(), learner.done, scores)
        summarise(work, model, result, answered)
    yield result


def _unless(stops: Stops) -> Callable[[int, int], None]:
    """What ends the answering of many examples when a signal has come."""

    def told(done: int, all: int) -> None:
        if stops.asked:
            raise Asked

    return told


def _some(ready: Ready) -> tuple[list[Item], list[Example]]:
    """Held-out items for the looks on the way, evenly from all of them, and their examples."""
    examples, most = ready.splits.dev.examples, ready.config.look_at
    if ready.task.running:
        items = ready.task.items(examples, ready.model)
        items = [items[i] for i in _even(len(items), most)]
        return items, [item.example for item in items]
    examples = [examples[i] for i in _even(len(examples), most)]
    return ready.task.items(examples, ready.model), examples


def _even(count: int, most: int) -> list[int]:
    return list(range(count)) if count <= most else np.linspace(0, count - 1, most).astype(int).tolist()


def _same(before: dict[str, Any], now: dict[str, Any], out: Path) -> None:
    now = from_json(to_json(now))  # as the other was: a tuple has become a list
    changed = [
        f"{name} was {before.get(name, 'not there')!r} and is {now.get(name, 'not there')!r}"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    ]
    if changed:
        shown = "; ".join(changed[:5]) + (f"; and {len(changed) - 5} more" if len(changed) > 5 else "")
        raise Refused(
            f"{out} cannot go on, since what it learns from has changed: {shown}. "
            "Go back to what it was, or name a new directory with --out."
        )


def _write_down(error: Diverged, work: Run) -> None:
    """The examples of the step that diverged, for a person to look at: where they stand, and what they say."""
    bad = Lines(work.out / "diverged.jsonl")
    bad.cut(0)
    tokenizer = work.ready.model.tokenizer
    for item in (item for batch in error.batches for item in batch.rows):
        values = {
            key: value for key, value in item.example.values.items() if isinstance(value, str | int | float | list)
        }
        if not values and item.source.ndim == 1 and tokenizer is not None:  # a window of running text
            values = {"text": tokenizer.decode(item.source.tolist(), special=True)}
        told = {f"example_{key}": value for key, value in values.items()}
        bad.add(step=error.step, file=item.example.file, line=item.example.line, **told)
