"""What has to be alike: a run and its checkpoint, and the processes that work on one run."""

import hashlib
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from saccade.tasks.runs.run import Run
from saccade.training.checkpoint.serialize import from_json, to_json
from saccade.training.distributed import World
from saccade.training.events import RunRefused
from saccade.training.prepare import PreparedRun


def check_same_run(saved_facts: dict[str, Any], prepared_run: PreparedRun, out: Path) -> None:
    """Refuse to go on with other data, settings or labels than a checkpoint was made with.

    A setting that is newer than the checkpoint had its default then, as every new setting leaves all as it was.
    """
    now = from_json(to_json(prepared_run.resume_facts()))  # as the other was: a tuple has become a list
    saved_facts = from_json(to_json(default_facts(prepared_run))) | saved_facts
    changed = [
        f"{name} was {saved_facts.get(name, 'not there')!r} and is {now.get(name, 'not there')!r}"
        for name in {**saved_facts, **now}
        if saved_facts.get(name) != now.get(name)
    ]
    if changed:
        shown = "; ".join(changed[:5]) + (f"; and {len(changed) - 5} more" if len(changed) > 5 else "")
        cure = "Go back to what it was, or name a new directory with --out."
        if now["train.precision"] != saved_facts["train.precision"]:  # which may have been left to another machine
            cure = f"--train.precision {saved_facts['train.precision']} goes on with its numbers. {cure}"
        raise RunRefused(f"{out} cannot go on, since what it learns from has changed: {shown}. {cure}")


def default_facts(prepared_run: PreparedRun) -> dict[str, Any]:
    """The defaults of all settings that have one, by the names that `PreparedRun.resume_facts` gives them, but for those that may change."""
    tables = {"task": prepared_run.task.config, "model": prepared_run.model.config, "train": prepared_run.config}
    known = prepared_run.resume_facts()
    return {
        name: field.default if field.default_factory is MISSING else field.default_factory()
        for table, config in tables.items()
        for field in fields(config)
        if (name := f"{table}.{field.name}") in known and (field.default, field.default_factory) != (MISSING, MISSING)
    }


def world_change_note(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What to say when a run goes on in another number of processes.

    The sums are the same and their order is not; dropout, masks and other noise are drawn by each process for its own share.

    >>> world_change_note({"size": 2, "fsdp": False}, {"size": 1, "fsdp": False})
    ['saved by 2 processes, going on with 1 process: what is learnt is the same but for the last bits, and for dropout and noise']
    """
    was, here = ({"size": 1, "fsdp": False} | told for told in (before, now))
    if was == here:
        return []
    words = [
        f"{told['size']} process{'' if told['size'] == 1 else 'es'}{' that share the model' if told['fsdp'] else ''}"
        for told in (was, here)
    ]
    how = "what is learnt is the same but for the last bits, and for dropout and noise"
    return [f"saved by {words[0]}, going on with {words[1]}: {how}"]


def check_ranks_agree(prepared_run: PreparedRun, world: World) -> None:
    """Refuse to begin where a process has other data, settings or labels than the first."""
    if prepared_run.task.needs_unsplit_batch and world.size > 1:
        raise RunRefused(
            f"{prepared_run.task.name} learns from whole steps, so it cannot be shared by {world.size} processes; use one."
        )
    mine = hashlib.sha256(to_json(prepared_run.resume_facts()).encode()).hexdigest()
    told = world.all_gather(int(mine[:12], 16))
    other = [rank for rank, number in enumerate(told) if number != told[0]]
    if other:
        raise RunRefused(
            f"rank {other[0]} has other data or settings than rank 0; give every process the same command and the same files."
        )


def write_shards_once(prepared_run: PreparedRun, directory: Path, world: World) -> Iterator[str]:
    """A text that is too large to be held, tokenised by the first process; the others then find it done."""
    known = Run(directory.parent).settings
    if known and known.get("run", {}).get("digest") != prepared_run.splits.digest:
        return  # the tokens are those of another text, whose run is about to refuse this one
    if world.is_first:
        yield from prepared_run.write_token_shards(directory)
    world.run_on_first(lambda: None)
    if not world.is_first:
        yield from prepared_run.write_token_shards(directory)
