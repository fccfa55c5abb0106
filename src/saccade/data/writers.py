"""Write examples to files that can be read back: CSV, TSV, JSON lines, CoNLL, ABC, FASTA or plain text, optionally gzipped."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from saccade.data.example import Example
from saccade.errors import DataError


def write_examples(path: str | Path, examples: Sequence[Example]) -> None:
    """Write examples in the format of the file's suffix; raises DataError for values that the format cannot represent."""
    path = Path(path)
    bare = path.with_suffix("") if path.suffix == ".gz" else path
    if bare.suffix not in WRITERS:
        known = ", ".join(WRITERS)
        raise DataError("unknown file suffix", file=path, value=bare.suffix, hint=f"use one of {known}")
    if not examples:
        raise DataError("no records to write", file=path, hint="give at least one")
    raw = gzip.GzipFile(path, "wb", mtime=0) if path.suffix == ".gz" else path.open("wb")
    with raw, io.TextIOWrapper(raw, "utf-8", newline="") as file:  # type: ignore[arg-type]
        WRITERS[bare.suffix](file, path, examples)


def _write_csv(file: TextIO, path: Path, examples: Sequence[Example]) -> None:
    writer = csv.writer(file, lineterminator="\r\n")  # so that both characters are quoted within a cell
    writer.writerow(examples[0].values)
    writer.writerows(_format_cells(path, example) for example in examples)


def _write_tsv(file: TextIO, path: Path, examples: Sequence[Example]) -> None:
    file.write("\t".join(examples[0].values) + "\n")
    for n, example in enumerate(examples):
        cells = _format_cells(path, example)
        for column, cell in zip(example.values, cells, strict=True):
            if any(mark in cell for mark in "\t\n\r"):
                hint = "write CSV or JSON lines, whose values may contain tabs and line breaks"
                raise DataError(
                    "a tab or line break in a TSV cell", file=path, line=n + 2, column=column, value=cell, hint=hint
                )
        file.write("\t".join(cells) + "\n")


def _format_cells(path: Path, example: Example) -> list[str]:
    return [_format_cell(path, name, value) for name, value in example.values.items()]


def _format_cell(path: Path, name: str, value: object) -> str:
    if isinstance(value, list) and all(isinstance(part, str) and not set(part) & set("|;,") for part in value):
        return "|".join(value)
    if isinstance(value, str | int | float):
        return str(value).removesuffix("\n")
    raise DataError(
        "this value does not fit into a table cell", file=path, column=name, value=value, hint="write JSON lines"
    )


def _write_jsonl(file: TextIO, path: Path, examples: Sequence[Example]) -> None:
    for example in examples:
        file.write(json.dumps(_make_json_fields(example), ensure_ascii=False, default=_to_json_value) + "\n")


def _make_json_fields(example: Example) -> dict[str, object]:
    """The values by name; answers, pairs of (start, text), are written as Hugging Face datasets writes those of SQuAD."""
    values = dict(example.values)
    if "answers" in values:
        answers = list(values["answers"])
        values["answers"] = {"text": [text for _, text in answers], "answer_start": [start for start, _ in answers]}
    return values


def _to_json_value(value: object) -> object:
    """Arrays as lists, any other object as its str."""
    return value.tolist() if hasattr(value, "tolist") else str(value)  # type: ignore[attr-defined]


def _write_conll(file: TextIO, path: Path, examples: Sequence[Example]) -> None:
    for example in examples:
        for word, tag in zip(example["words"], example["tags"], strict=True):
            if any(c in "\t\n\r" for c in word + tag):
                raise DataError("a tab or line break in a word", file=path, value=word, hint="write JSON lines")
            file.write(f"{word}\t{tag}\n")
        file.write("\n")


def _write_txt(file: TextIO, path: Path, examples: Sequence[Example]) -> None:
    for n, example in enumerate(examples):
        text = str(next(iter(example.values.values()))).removesuffix("\n")
        if len(example.values) > 1 or "\n" in text or "\r" in text:
            hint = "write CSV or JSON lines"
            raise DataError("plain text holds one line per record", file=path, line=n + 1, value=text, hint=hint)
        file.write(text + "\n")


def _write_abc(file: TextIO, path: Path, examples: Sequence[Example]) -> None:
    """Write texts of several lines, each followed by an empty line."""
    for n, example in enumerate(examples):
        text = str(next(iter(example.values.values()))).strip("\n")
        if len(example.values) > 1 or "\n\n" in text:
            hint = "write JSON lines"
            raise DataError(
                "an ABC tune cannot contain an empty line", file=path, line=n + 1, value=text[:50], hint=hint
            )
        file.write(text + "\n\n")


def _write_fasta(file: TextIO, path: Path, examples: Sequence[Example]) -> None:
    for n, example in enumerate(examples, 1):
        text = str(next(iter(example.values.values()))).strip()
        if len(example.values) > 1 or not text.isalpha():
            hint = "write JSON lines"
            raise DataError("FASTA holds one sequence per record", file=path, line=n, value=text[:50], hint=hint)
        file.write(f">{n}\n{text}\n")


WRITERS: dict[str, Callable[[TextIO, Path, Sequence[Example]], None]] = {
    ".csv": _write_csv,
    ".tsv": _write_tsv,
    ".jsonl": _write_jsonl,
    ".conll": _write_conll,
    ".txt": _write_txt,
    ".smi": _write_txt,
    ".abc": _write_abc,
    ".fasta": _write_fasta,
}
