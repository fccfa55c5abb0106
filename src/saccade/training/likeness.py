"""What has to be alike: a run and its checkpoint, and the processes that work on one run."""

import hashlib
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from saccade.tasks.run_settings import read_run_settings
from saccade.training.events import Refused
from saccade.training.job import Ready
from saccade.training.packing import from_json, to_json
from saccade.training.world import World


def same(before: dict[str, Any], ready: Ready, out: Path) -> None:
    """Refuse to go on with other data, settings or labels than a checkpoint was made with.

    A setting that is newer than the checkpoint had its default then, as every new setting leaves all as it was.
    """
    now = from_json(to_json(ready.fixed()))  # as the other was: a tuple has become a list
    before = from_json(to_json(usual(ready))) | before
    changed = [
        f"{name} was {before.get(name, 'not there')!r} and is {now.get(name, 'not there')!r}"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    ]
    if changed:
        shown = "; ".join(changed[:5]) + (f"; and {len(changed) - 5} more" if len(changed) > 5 else "")
        cure = "Go back to what it was, or name a new directory with --out."
        if now["train.precision"] != before["train.precision"]:  # which may have been left to another machine
            cure = f"--train.precision {before['train.precision']} goes on with its numbers. {cure}"
        raise Refused(f"{out} cannot go on, since what it learns from has changed: {shown}. {cure}")


def usual(ready: Ready) -> dict[str, Any]:
    """The defaults of all settings that have one, by the names that `Ready.fixed` gives them, but for those that may change."""
    tables = {"task": ready.task.config, "model": ready.model.config, "train": ready.config}
    known = ready.fixed()
    return {
        name: field.default if field.default_factory is MISSING else field.default_factory()
        for table, config in tables.items()
        for field in fields(config)
        if (name := f"{table}.{field.name}") in known and (field.default, field.default_factory) != (MISSING, MISSING)
    }


def other_world(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What to say when a run goes on in another number of processes.

    The sums are the same and their order is not; dropout, masks and other noise are drawn by each process for its own share.

    >>> other_world({"size": 2, "shard": False}, {"size": 1, "shard": False})
    ['saved by 2 processes, going on with 1 process: what is learnt is the same but for the last bits, and for dropout and noise']
    """
    was, here = ({"size": 1, "shard": False} | told for told in (before, now))
    if was == here:
        return []
    words = [
        f"{told['size']} process{'' if told['size'] == 1 else 'es'}{' that share the model' if told['shard'] else ''}"
        for told in (was, here)
    ]
    how = "what is learnt is the same but for the last bits, and for dropout and noise"
    return [f"saved by {words[0]}, going on with {words[1]}: {how}"]


def alike(ready: Ready, world: World) -> None:
    """Refuse to begin where a process has other data, settings or labels than the first."""
    if ready.task.lone and world.size > 1:
        raise Refused(
            f"{ready.task.name} learns from whole steps, so it cannot be shared by {world.size} processes; use one."
        )
    mine = hashlib.sha256(to_json(ready.fixed()).encode()).hexdigest()
    told = world.gather(int(mine[:12], 16))
    other = [rank for rank, number in enumerate(told) if number != told[0]]
    if other:
        raise Refused(
            f"rank {other[0]} has other data or settings than rank 0; give every process the same command and the same files."
        )


def shelved(ready: Ready, where: Path, world: World) -> Iterator[str]:
    """A text that is too large to be held, tokenised by the first process; the others then find it done."""
    known = read_run_settings(where.parent)
    if known and known.get("run", {}).get("digest") != ready.splits.digest:
        return  # the tokens are those of another text, whose run is about to refuse this one
    if world.is_first:
        yield from ready.shelve(where)
    world.first(lambda: None)
    if not world.is_first:
        yield from ready.shelve(where)
