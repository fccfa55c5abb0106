"""`saccade data check|split|get`: check data before training, split it into train, dev and test, or get sample data."""

import json as encoder
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from saccade.cli.argument_types import ColumnsFlag, DirectoryFlag, optional_argument
from saccade.cli.terminal import escape_output

if TYPE_CHECKING:
    import numpy as np

    from saccade.data import Example

REGARD_SET = "regard"
REGARD_DESCRIPTION = "sentences with regard labels: the training data of the audit's regard classifier"
Action = tyro.conf.Positional[Literal["check", "split", "get"]]
FilesOrNames = tyro.conf.Positional[Annotated[list[str], optional_argument("FILE|NAME")]]


@dataclass(frozen=True)
class CheckFlags:
    """How files are read and reported."""

    task: Annotated[str, optional_argument("TASK")] = ""
    """Task that the data is for, such as label, tag or translate; default: inferred from the file."""
    columns: ColumnsFlag = ""
    """Columns of the data by role, such as text=review,label=stars or text=1,label=2."""
    on_bad_record: Literal["error", "skip"] = "error"
    """Bad records: stop at the first one (error), or write them to --rejects and continue (skip)."""
    max_bad_fraction: float = 0.01
    """Maximum fraction of bad records that may be skipped."""
    max_words: Annotated[int | None, optional_argument("INT")] = None
    """Maximum length in words, to report how many texts would be truncated; default: no limit."""
    rejects: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("bad_records.jsonl")
    """File that skipped records are written to."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print the report as JSON."""


@dataclass(frozen=True)
class SampleFlags:
    """How a sample is generated."""

    count: int = 1000
    """Number of records of a sample to write."""
    seed: int = 0
    """Random seed of the sample or of the split."""


@dataclass(frozen=True)
class SplitFlags:
    """How data is split."""

    dev: int = 0
    """Size of the dev set in records (rows, lines, tunes, articles)."""
    test: int = 0
    """Size of the test set in records."""
    train: int = 0
    """Maximum size of the training set in records; 0 keeps all that remain."""
    group_column: Annotated[str, optional_argument("COLUMN")] = ""
    """Group column, by name or number: each of its values goes to one split only; default: equal records stay together."""
    max_concat: int = 1
    """Concatenate 1 to this many random rows of a TSV file into one longer text; 1 disables it."""


@escape_output()
def main(
    action: Action,
    names: FilesOrNames,
    check: tyro.conf.OmitArgPrefixes[CheckFlags] = CheckFlags(),
    sample: tyro.conf.OmitArgPrefixes[SampleFlags] = SampleFlags(),
    split: tyro.conf.OmitArgPrefixes[SplitFlags] = SplitFlags(),
    out: DirectoryFlag = None,
    mirror: DirectoryFlag = None,
) -> int:
    """Check data before training (rows, labels, lengths, duplicates, leakage), split it, or get sample data.

    saccade data check reviews.tsv

    saccade data check train.csv test.csv --columns text=review,label=stars --on-bad-record skip

    saccade data split fra.txt --dev 2000 --test 2000 --group-column 1 --out tatoeba

    saccade data get dates dates.tsv

    saccade data get tatoeba_fra_eng --out tatoeba

    Args:
        action: `check` reports on files; `split` writes train, dev and test files; `get` writes a sample or downloads a dataset.
        names: Files or a directory to check or split; for `get` a sample and the file to write it to, or a dataset.
        check: How `check` reads files and reports on them.
        sample: How `get` generates a sample.
        split: How `split` divides the data.
        out: Output directory of `split` and of a downloaded dataset.
        mirror: Directory with a copy of the dataset, to use instead of downloading it.
    """
    from saccade.errors import DataError, UsageError

    try:
        if action == "split":
            return _split_files(names, split, out, seed=sample.seed, skip_bad=check.on_bad_record == "skip")
        return _get_data(names, sample, out, mirror) if action == "get" else _check_files(names, check)
    except (DataError, UsageError) as error:
        print(f"saccade data: {error}", file=sys.stderr)
        return error.exit_code


def _check_files(names: list[str], flags: CheckFlags) -> int:
    from saccade.data import inspect_data, open_data, parse_columns, write_rejects
    from saccade.tasks.infer_task import infer_task, task_for_data
    from saccade.training.config import Config

    if not names:
        print("saccade data check: name a file or a directory to check.", file=sys.stderr)
        return 2
    columns = parse_columns(flags.columns)
    task, roles = task_for_data(flags.task, names, columns) if flags.task else infer_task(names, columns)
    splits = open_data(
        names,
        roles,
        columns=columns,
        on_bad_record=flags.on_bad_record,
        max_bad_fraction=flags.max_bad_fraction,
        contiguous=task.is_text_stream,
        held_out=Config().held_out,
    )
    report = inspect_data(splits, roles, max_length=flags.max_words)
    if splits.rejects:
        write_rejects(splits.rejects, flags.rejects)
        report.notes.append(f"{len(splits.rejects):,} bad records were written to {flags.rejects}.")
    if flags.json:
        print(encoder.dumps({"task": task.name, "digest": splits.digest, **report.as_dict()}, ensure_ascii=False))
    else:
        print("\n".join([f"task: {task.name}{'' if flags.task else ' (inferred)'}", *report.to_lines()]))
    return 0


def _split_files(names: list[str], flags: SplitFlags, out: Path | None, *, seed: int, skip_bad: bool) -> int:
    from saccade.data.split_files import SplitSpec, split_files

    if not names or out is None or not (flags.dev or flags.test or flags.train):
        usage = "name the files, the number of records to hold out (--dev, --test) and the output directory (--out)"
        print(f"saccade data split: {usage}.", file=sys.stderr)
        return 2
    counts = split_files(
        names, out, SplitSpec(flags.dev, flags.test, flags.train, flags.group_column, seed, skip_bad, flags.max_concat)
    )
    groups = f"; each value of column {flags.group_column} is in one split only" if flags.group_column else ""
    print(f"{out}: {', '.join(f'{name} {count:,}' for name, count in counts.items())}{groups}.")
    return 0


def _get_data(names: list[str], sample: SampleFlags, out: Path | None, mirror: Path | None) -> int:
    """Write a built-in sample, or get a public dataset."""
    from saccade.data.catalog import DATASETS
    from saccade.data.samples import SAMPLES
    from saccade.suggest import suggest

    if not names or len(names) > 2:
        lines = [f"  {name:16} {entry.description}" for name, entry in [*SAMPLES.items(), *DATASETS.items()]]
        lines.append(f"  {REGARD_SET:16} {REGARD_DESCRIPTION}")
        usage = "name a sample and, optionally, a file to write it to; or name a dataset"
        print(f"saccade data get: {usage}. Available are:", *lines, sep="\n", file=sys.stderr)
        return 2
    if names[0] == REGARD_SET:
        return _write_regard_examples(names)
    if names[0] in DATASETS:
        from saccade.cli.download_data import get_dataset

        entry = DATASETS[names[0]]
        try:
            get_dataset(entry, out or Path(names[1] if len(names) == 2 else entry.name), mirror)
        except ValueError as error:
            print(f"saccade data get: {error}", file=sys.stderr)
            return 3
        return 0
    if names[0] not in SAMPLES:
        unknown = f"there is no sample or dataset {names[0]!r}; {suggest(names[0], [*SAMPLES, *DATASETS, REGARD_SET])}"
        print(f"saccade data get: {unknown}", file=sys.stderr)
        return 2
    return _write_sample(names, sample)


def _write_regard_examples(names: list[str]) -> int:
    """Write all training examples of the regard classifier; --count does not apply."""
    from saccade.audit.suites.regard.examples import builtin_examples
    from saccade.data import write_examples

    path, examples = Path(names[1] if len(names) == 2 else f"{REGARD_SET}.tsv"), builtin_examples()
    write_examples(path, examples)
    print(f"{path}: {len(examples):,} {REGARD_DESCRIPTION}.")
    return 0


def _write_sample(names: list[str], sample: SampleFlags) -> int:
    from saccade.data import write_examples
    from saccade.data.samples import SAMPLES

    entry = SAMPLES[names[0]]
    examples = entry.make(sample.count, sample.seed)
    path = Path(names[1]) if len(names) == 2 else Path(names[0] + (".conll" if "tags" in examples[0] else ".jsonl"))
    write_examples(path, _save_arrays(path, examples))
    print(f"{path}: {len(examples):,} records of {names[0]} ({entry.description}).")
    return 0


def _save_arrays(path: Path, examples: "list[Example]") -> "list[Example]":
    """Write the images and recordings of examples next to the file, and replace them by paths; other arrays are left out."""
    import numpy as np

    from saccade.data import Example
    from saccade.data.read.media_files import MEDIA

    plain = (str, int, float)
    if not any(isinstance(value, np.ndarray) for value in examples[0].values.values()):
        plain = (*plain, list, tuple)
    saved = []
    for i, example in enumerate(examples):
        values = {name: value for name, value in example.values.items() if isinstance(value, plain)}
        for name, value in example.values.items():
            if isinstance(value, np.ndarray):
                folder = path.parent / f"{path.name.split('.')[0]}_{MEDIA[name].nouns}"
                folder.mkdir(parents=True, exist_ok=True)
                suffix, content = _to_file(name, value)
                (folder / f"{i:05}{suffix}").write_bytes(content)
                values[name] = f"{folder.name}/{i:05}{suffix}"
        saved.append(Example(values))
    return saved


def _to_file(kind: str, array: "np.ndarray") -> tuple[str, bytes]:
    """The suffix and the bytes of a file with an image or a recording."""
    import io

    import numpy as np
    from PIL import Image

    from saccade.audio.load_audio import to_wav

    if kind == "audio":
        return ".wav", to_wav(array)
    pixels = array if array.dtype == np.uint8 else np.clip(array * 255, 0, 255).astype(np.uint8)
    made = io.BytesIO()
    Image.fromarray(pixels).save(made, "PNG")
    return ".png", made.getvalue()
