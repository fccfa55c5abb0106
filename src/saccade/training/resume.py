"""Consistency checks: a resumed run must match its checkpoint, and the processes of a distributed run each other."""

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

EARLIER_DEFAULTS = {"train.test_size": 0.0}  # of new settings whose default differs from what runs did before


def check_same_run(saved_facts: dict[str, Any], prepared_run: PreparedRun, out: Path) -> None:
    """Raise RunRefused if data, settings or labels differ from those of the checkpoint.

    A setting that is missing in an older checkpoint counts as its default, since the default of a new setting changes nothing;
    the exceptions are in EARLIER_DEFAULTS.
    """
    now = from_json(to_json(prepared_run.resume_facts()))  # like the saved facts, in which a tuple has become a list
    saved_facts = from_json(to_json(default_facts(prepared_run))) | EARLIER_DEFAULTS | saved_facts
    changed = [
        f"{name} was {saved_facts.get(name, 'missing')!r} and is {now.get(name, 'missing')!r}"
        for name in {**saved_facts, **now}
        if saved_facts.get(name) != now.get(name)
    ]
    if changed:
        shown = "; ".join(changed[:5]) + (f"; and {len(changed) - 5} more" if len(changed) > 5 else "")
        cure = "Restore the old values, or start a new run in another directory with --out."
        if (
            now["train.precision"] != saved_facts["train.precision"]
        ):  # which `auto` may resolve differently on another machine
            cure = f"Pass --train.precision {saved_facts['train.precision']} to resume. {cure}"
        raise RunRefused(f"{out} cannot resume, since data or settings have changed: {shown}. {cure}")


def default_facts(prepared_run: PreparedRun) -> dict[str, Any]:
    """The defaults of all settings in `PreparedRun.resume_facts` that have one, by the same names."""
    tables = {"task": prepared_run.task.config, "model": prepared_run.model.config, "train": prepared_run.config}
    facts = prepared_run.resume_facts()
    return {
        name: field.default if field.default_factory is MISSING else field.default_factory()
        for table, config in tables.items()
        for field in fields(config)
        if (name := f"{table}.{field.name}") in facts and (field.default, field.default_factory) != (MISSING, MISSING)
    }


def world_change_note(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The note for a run that resumes with another number of processes.

    Sums are taken in another order, and each process draws its own random numbers for dropout and masking.

    >>> world_change_note({"size": 2, "fsdp": False}, {"size": 1, "fsdp": False})
    ['saved by 2 processes, resuming with 1 process: results differ by rounding and by the random numbers of dropout and masking']
    """
    worlds = [{"size": 1, "fsdp": False} | facts for facts in (before, now)]
    if worlds[0] == worlds[1]:
        return []
    saved, current = (
        f"{facts['size']} process{'' if facts['size'] == 1 else 'es'}{' with FSDP' if facts['fsdp'] else ''}"
        for facts in worlds
    )
    effect = "results differ by rounding and by the random numbers of dropout and masking"
    return [f"saved by {saved}, resuming with {current}: {effect}"]


def check_ranks_agree(prepared_run: PreparedRun, world: World) -> None:
    """Raise RunRefused if a process has other data, settings or labels than rank 0."""
    if prepared_run.task.needs_unsplit_batch and world.size > 1:
        raise RunRefused(f"{prepared_run.task.name} cannot split a step over {world.size} processes; use one process.")
    digest = hashlib.sha256(to_json(prepared_run.resume_facts()).encode()).hexdigest()
    digests = world.all_gather(int(digest[:12], 16))
    differing = [rank for rank, number in enumerate(digests) if number != digests[0]]
    if differing:
        raise RunRefused(
            f"rank {differing[0]} has other data or settings than rank 0; give every process the same command and the same files."
        )


def write_shards_once(prepared_run: PreparedRun, directory: Path, world: World) -> Iterator[str]:
    """Tokenize a text that is too large for memory on rank 0; the other processes then find its token shards."""
    settings = Run(directory.parent).settings
    if settings and settings.get("run", {}).get("digest") != prepared_run.splits.digest:
        return  # the shards are of another text: `check_same_run` will refuse to resume
    if world.is_first:
        yield from prepared_run.write_token_shards(directory)
    world.run_on_first(lambda: None)
    if not world.is_first:
        yield from prepared_run.write_token_shards(directory)
