"""`saccade data check|split|get ...`: look at data before training, hold some of it out, or get some to try."""

import json as encoder
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from saccade.cli.terminal import harmless_output

if TYPE_CHECKING:
    from saccade.data import Example

REGARD = "regard"
LESSONS = "sentences about XYZ, by what they say of their worth: what the audit's judge of regard learns from"
What = tyro.conf.Positional[Literal["check", "split", "get"]]
Names = tyro.conf.Positional[Annotated[list[str], tyro.conf.arg(metavar="FILE|NAME")]]


@dataclass(frozen=True)
class Check:
    """How files are looked at."""

    task: Annotated[str, tyro.conf.arg(metavar="TASK")] = ""
    """The task that the data is for, such as label, tag or translate; inferred from the file if not given."""
    columns: str = ""
    """Which column is which, such as text=review,label=stars or text=1,label=2."""
    on_bad_record: Literal["error", "skip"] = "error"
    """Stop at the first bad record, or skip it and write it to --rejects."""
    max_bad: float = 0.01
    """The share of bad records from which on skipping stops."""
    limit: int | None = None
    """The length beyond which a text will be cut off, in words, to see how many are."""
    rejects: Path = Path("bad_records.jsonl")
    """Where skipped records are written down."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print the facts as JSON."""


@dataclass(frozen=True)
class Draw:
    """How a sample is drawn."""

    count: int = 1000
    """How many records of a sample to write."""
    seed: int = 0
    """Of the sample, or of the split."""


@dataclass(frozen=True)
class Split:
    """How records are held out."""

    dev: int = 0
    """How many records (rows, lines, tunes, articles) to keep apart for development."""
    test: int = 0
    """How many to keep apart for the test."""
    train: int = 0
    """The most to learn from; 0: all that are left."""
    by: str = ""
    """A column, by name or number, no value of which may stand in two parts; none: equal records stay together."""
    join: int = 1
    """Make texts of 1 to so many rows of a table with tabs, drawn at random: longer texts of short ones."""


@harmless_output()
def main(
    what: What,
    names: Names,
    check: tyro.conf.OmitArgPrefixes[Check] = Check(),
    draw: tyro.conf.OmitArgPrefixes[Draw] = Draw(),
    split: tyro.conf.OmitArgPrefixes[Split] = Split(),
    out: Path | None = None,
    mirror: Path | None = None,
) -> int:
    """Check data before training: rows, labels, lengths, what repeats and what leaks; hold some out; or get some to try.

    saccade data check reviews.tsv

    saccade data check train.csv test.csv --columns text=review,label=stars --on-bad-record skip

    saccade data split fra.txt --dev 2000 --test 2000 --by 1 --out tatoeba

    saccade data get dates dates.tsv

    saccade data get tatoeba_fra_eng --out tatoeba

    Args:
        what: `check` looks at files; `split` writes train, dev and test; `get` writes a built-in sample, or fetches a set.
        names: The files or the directory to check or to split; or the name of a sample, and the file for it; or of a set.
        check: How `check` looks at files.
        draw: How `get` draws a sample.
        split: How `split` holds records out.
        out: The directory that `split` and the files of a set are written to.
        mirror: A directory with a copy of the set, to take instead of downloading it.
    """
    from saccade.errors import DataError, UsageError

    try:
        if what == "split":
            return _split(names, split, out, seed=draw.seed, skips=check.on_bad_record == "skip")
        return _get(names, draw, out, mirror) if what == "get" else _check(names, check)
    except (DataError, UsageError) as error:
        print(f"saccade data: {error}", file=sys.stderr)
        return error.exit_code


def _check(names: list[str], asked: Check) -> int:
    from saccade.data import examine, open_data, parse_columns, write_rejects
    from saccade.tasks.infer_task import infer_task, task_for_data

    if not names:
        print("saccade data check: name a file or a directory to check.", file=sys.stderr)
        return 2
    named = parse_columns(asked.columns)
    task, roles = task_for_data(asked.task, names, named) if asked.task else infer_task(names, named)
    found = open_data(
        names, roles, columns=named, on_bad=asked.on_bad_record, max_bad=asked.max_bad, contiguous=task.running
    )
    facts = examine(found, roles, limit=asked.limit)
    if found.bad:
        write_rejects(found.bad, asked.rejects)
        facts.said.append(f"{len(found.bad):,} bad records are written down in {asked.rejects}.")
    if asked.json:
        print(encoder.dumps({"task": task.name, "digest": found.digest, **facts.as_dict()}, ensure_ascii=False))
    else:
        print("\n".join([f"read for the task: {task.name}", *facts.lines()]))
    return 0


def _split(names: list[str], asked: Split, out: Path | None, *, seed: int, skips: bool) -> int:
    from saccade.data.parting import Parts, part

    if not names or out is None or not (asked.dev or asked.test or asked.train):
        need = "name the files, how many records to hold out (--dev, --test) and where to write to (--out)"
        print(f"saccade data split: {need}.", file=sys.stderr)
        return 2
    counts = part(names, out, Parts(asked.dev, asked.test, asked.train, asked.by, seed, skips, asked.join))
    by = f"; no value of column {asked.by} stands in two of them" if asked.by else ""
    print(f"{out}: {', '.join(f'{name} {count:,}' for name, count in counts.items())}{by}.")
    return 0


def _get(names: list[str], draw: Draw, out: Path | None, mirror: Path | None) -> int:
    """A sample of our own, or a set of others."""
    from saccade.attention.table import nearest
    from saccade.data.samples import SAMPLES
    from saccade.data.sets import SETS

    if not names or len(names) > 2:
        listed = [f"  {name:16} {entry.said}" for name, entry in [*SAMPLES.items(), *SETS.items()]]
        listed.append(f"  {REGARD:16} {LESSONS}")
        need = "name a sample, and perhaps a file to write it to, or a set"
        print(f"saccade data get: {need}. There are", *listed, sep="\n", file=sys.stderr)
        return 2
    if names[0] == REGARD:
        return _lessons(names)
    if names[0] in SETS:
        from saccade.cli.getting import get_set

        entry = SETS[names[0]]
        try:
            get_set(entry, out or Path(names[1] if len(names) == 2 else entry.name), mirror)
        except ValueError as error:
            print(f"saccade data get: {error}", file=sys.stderr)
            return 3
        return 0
    if names[0] not in SAMPLES:
        unknown = f"There is no sample or set {names[0]!r}; {nearest(names[0], [*SAMPLES, *SETS, REGARD])}"
        print(f"saccade data get: {unknown}", file=sys.stderr)
        return 2
    return _draw(names, draw)


def _lessons(names: list[str]) -> int:
    """All that the judge of regard learns from: it is whole or nothing, so no sample is drawn."""
    from saccade.audit.regard.examples import own_examples
    from saccade.data import write

    path, examples = Path(names[1] if len(names) == 2 else f"{REGARD}.tsv"), own_examples()
    write(path, examples)
    print(f"{path}: {len(examples):,} {LESSONS}.")
    return 0


def _draw(names: list[str], draw: Draw) -> int:
    from saccade.data import write
    from saccade.data.samples import SAMPLES

    entry = SAMPLES[names[0]]
    examples = entry.make(draw.count, draw.seed)
    path = Path(names[1]) if len(names) == 2 else Path(names[0] + (".conll" if "tags" in examples[0] else ".jsonl"))
    write(path, _as_files(path, examples))
    print(f"{path}: {len(examples):,} records of {names[0]} ({entry.said}).")
    return 0


def _as_files(path: Path, examples: "list[Example]") -> "list[Example]":
    """The examples with pictures written beside the file, and only what a file can hold."""
    import numpy as np
    from PIL import Image

    from saccade.data import Example

    if not any(isinstance(value, np.ndarray) for value in examples[0].values.values()):
        plain = (str, int, float, list, tuple)
        return [Example({k: v for k, v in e.values.items() if isinstance(v, plain)}) for e in examples]
    folder = path.parent / f"{path.name.split('.')[0]}_images"
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for i, example in enumerate(examples):
        values = {name: value for name, value in example.values.items() if isinstance(value, str | int | float)}
        for name, value in example.values.items():
            if isinstance(value, np.ndarray):
                pixels = value if value.dtype == np.uint8 else np.clip(value * 255, 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{i:05}.png")
                values[name] = f"{folder.name}/{i:05}.png"
        found.append(Example(values))
    return found
