"""`saccade data check FILE...` and `saccade data get NAME [FILE]`: look at data before training, or get some to try."""

import json as encoder
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from saccade.data import Example

What = tyro.conf.Positional[Literal["check", "get"]]
Names = tyro.conf.Positional[Annotated[list[str], tyro.conf.arg(metavar="FILE|NAME")]]
Tasks = Literal[
    "label", "tag", "pair", "translate", "summarise", "language", "pretrain", "regress", "span", "caption", "paint"
]


@dataclass(frozen=True)
class Check:
    """How files are looked at."""

    task: Tasks | None = None
    """What the data is for; guessed from the file if not given."""
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
    """Of the sample."""


def main(
    what: What,
    names: Names,
    check: tyro.conf.OmitArgPrefixes[Check] = Check(),  # noqa: B008 (frozen)
    draw: tyro.conf.OmitArgPrefixes[Draw] = Draw(),  # noqa: B008 (frozen)
) -> int:
    """Check data before training: rows, labels, lengths, what repeats and what leaks; or write a built-in sample to a file.

    saccade data check reviews.tsv

    saccade data check train.csv test.csv --columns text=review,label=stars --on-bad-record skip

    saccade data get dates dates.tsv

    Args:
        what: `check` looks at files; `get` writes a built-in sample.
        names: The files or the directory to check; or the sample's name, and the file to write it to.
        check: How `check` looks at files.
        draw: How `get` draws a sample.
    """
    from saccade.data import DataError

    try:
        return _get(names, draw) if what == "get" else _check(names, check)
    except DataError as error:
        print(f"saccade data: {error}", file=sys.stderr)
        return 3


def _check(names: list[str], asked: Check) -> int:
    from saccade.data import examine, open_data, parse_columns, write_rejects
    from saccade.data.guess import guess, roles_for

    if not names:
        print("saccade data check: name a file or a directory to check.", file=sys.stderr)
        return 2
    named = parse_columns(asked.columns)
    task, roles = (asked.task, roles_for(asked.task, names, named)) if asked.task else guess(names, named)
    running = task in ("language", "pretrain")
    found = open_data(
        names, roles, columns=named, on_bad=asked.on_bad_record, max_bad=asked.max_bad, contiguous=running
    )
    facts = examine(found, roles, limit=asked.limit)
    if found.bad:
        write_rejects(found.bad, asked.rejects)
        facts.said.append(f"{len(found.bad):,} bad records are written down in {asked.rejects}.")
    if asked.json:
        print(encoder.dumps({"task": task, "digest": found.digest, **facts.as_dict()}, ensure_ascii=False))
    else:
        print("\n".join([f"read for the task: {task}", *facts.lines()]))
    return 0


def _get(names: list[str], draw: Draw) -> int:
    from saccade.data import write
    from saccade.data.samples import SAMPLES, sample

    if not names or len(names) > 2:
        listed = "\n".join(f"  {name:12} {entry.said}" for name, entry in SAMPLES.items())
        print(
            f"saccade data get: name a sample, and perhaps a file to write it to. There are\n{listed}", file=sys.stderr
        )
        return 2
    try:
        entry = sample(names[0])
    except ValueError as error:
        print(f"saccade data get: {error}", file=sys.stderr)
        return 2
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
