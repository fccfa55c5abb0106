"""Examples to a file that the readers read back: CSV, TSV, JSON lines, CoNLL, ABC, FASTA, plain or aligned text, and as .gz."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from saccade.data.item import Example
from saccade.errors import DataError


def write(path: str | Path, examples: Sequence[Example]) -> None:
    """Write the examples in the format that the name asks for; what the format cannot hold is refused."""
    path = Path(path)
    bare = path.with_suffix("") if path.suffix == ".gz" else path
    if bare.suffix not in WRITERS:
        known = ", ".join(WRITERS)
        raise DataError(
            "no format is known by this ending", file=path, value=bare.suffix, cure=f"end the name in one of {known}"
        )
    if not examples:
        raise DataError("no records to write", file=path, cure="give at least one")
    raw = gzip.GzipFile(path, "wb", mtime=0) if path.suffix == ".gz" else path.open("wb")
    with raw, io.TextIOWrapper(raw, "utf-8", newline="") as file:  # type: ignore[arg-type]
        WRITERS[bare.suffix](file, path, examples)


def _csv(file: TextIO, path: Path, examples: Sequence[Example]) -> None:
    writer = csv.writer(file, lineterminator="\r\n")  # so that both are quoted where they stand in a cell
    writer.writerow(examples[0].values)
    writer.writerows(_cells(path, example) for example in examples)


def _tsv(file: TextIO, path: Path, examples: Sequence[Example]) -> None:
    file.write("\t".join(examples[0].values) + "\n")
    for n, example in enumerate(examples):
        cells = _cells(path, example)
        for column, cell in zip(example.values, cells, strict=True):
            if any(mark in cell for mark in "\t\n\r"):
                cure = "write CSV or JSON lines, whose cells may hold tabs and line ends"
                raise DataError(
                    "a tab or line end in a TSV cell", file=path, line=n + 2, column=column, value=cell, cure=cure
                )
        file.write("\t".join(cells) + "\n")


def _cells(path: Path, example: Example) -> list[str]:
    return [_cell(path, name, value) for name, value in example.values.items()]


def _cell(path: Path, name: str, value: object) -> str:
    if isinstance(value, list) and all(isinstance(part, str) and not set(part) & set("|;,") for part in value):
        return "|".join(value)
    if isinstance(value, str | int | float):
        return str(value).removesuffix("\n")
    raise DataError("a table cannot hold this", file=path, column=name, value=value, cure="write JSON lines")


def _jsonl(file: TextIO, path: Path, examples: Sequence[Example]) -> None:
    for example in examples:
        file.write(json.dumps(_fields(example), ensure_ascii=False, default=_listed) + "\n")


def _fields(example: Example) -> dict[str, object]:
    """The values by name; answers, which are (start, text), as datasets writes those of SQuAD."""
    values = dict(example.values)
    if "answers" in values:
        found = list(values["answers"])
        values["answers"] = {"text": [text for _, text in found], "answer_start": [start for start, _ in found]}
    return values


def _listed(value: object) -> object:
    """Arrays as lists; what else is there was never read by us."""
    return value.tolist() if hasattr(value, "tolist") else str(value)  # type: ignore[attr-defined]


def _conll(file: TextIO, path: Path, examples: Sequence[Example]) -> None:
    for example in examples:
        for word, tag in zip(example["words"], example["tags"], strict=True):
            if any(c in "\t\n\r" for c in word + tag):
                raise DataError("a tab or line end in a word", file=path, value=word, cure="write JSON lines")
            file.write(f"{word}\t{tag}\n")
        file.write("\n")


def _txt(file: TextIO, path: Path, examples: Sequence[Example]) -> None:
    for n, example in enumerate(examples):
        text = str(next(iter(example.values.values()))).removesuffix("\n")
        if len(example.values) > 1 or "\n" in text or "\r" in text:
            cure = "write CSV or JSON lines"
            raise DataError("plain text holds one line for each record", file=path, line=n + 1, value=text, cure=cure)
        file.write(text + "\n")


def _records(file: TextIO, path: Path, examples: Sequence[Example]) -> None:
    """Texts of several lines, each with an empty line at its end."""
    for n, example in enumerate(examples):
        text = str(next(iter(example.values.values()))).strip("\n")
        if len(example.values) > 1 or "\n\n" in text:
            cure = "write JSON lines"
            raise DataError("a tune has no empty line in it", file=path, line=n + 1, value=text[:50], cure=cure)
        file.write(text + "\n\n")


def _fasta(file: TextIO, path: Path, examples: Sequence[Example]) -> None:
    for n, example in enumerate(examples, 1):
        text = str(next(iter(example.values.values()))).strip()
        if len(example.values) > 1 or not text.isalpha():
            cure = "write JSON lines"
            raise DataError("FASTA holds one sequence for each record", file=path, line=n, value=text[:50], cure=cure)
        file.write(f">{n}\n{text}\n")


WRITERS: dict[str, Callable[[TextIO, Path, Sequence[Example]], None]] = {
    ".csv": _csv,
    ".tsv": _tsv,
    ".jsonl": _jsonl,
    ".conll": _conll,
    ".txt": _txt,
    ".smi": _txt,
    ".abc": _records,
    ".fasta": _fasta,
}
