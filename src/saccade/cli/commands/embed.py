"""`saccade embed RUN TEXT...`: sentence embeddings as numbers or as a file, and the nearest texts by cosine similarity."""

import json as json_text
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from saccade.cli.argument_types import ColumnsFlag, FileFlag, RunArgument, TextArguments, optional_argument

if TYPE_CHECKING:
    from torch import Tensor

    from saccade.api.run import Run
    from saccade.data import Example

ARRAY_SUFFIX = ".npy"
ENGINE_HELP = (
    "Optimized inference: auto and float32 give the vectors of plain PyTorch to within 1e-4; int8 and float16 are less exact; "
    "off runs plain PyTorch."
)


@dataclass(frozen=True)
class EmbedRequest:
    """What to embed, and what to do with the vectors."""

    texts: Sequence[str]
    data: Sequence[str]
    columns: str
    out: str
    nearest: int
    json: bool


def main(
    run: RunArgument,
    text: TextArguments = (),
    *,
    data: FileFlag = (),
    columns: ColumnsFlag = "",
    out: Annotated[str, optional_argument("FILE")] = "",
    nearest: Annotated[int, optional_argument("INT")] = 0,
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
    batch_size: Annotated[int | None, optional_argument("INT")] = None,
    engine: Annotated[Literal["auto", "int8", "float16", "float32", "off"], tyro.conf.arg(help=ENGINE_HELP)] = "auto",
    device: Literal["cpu", "cuda", "mps", "auto"] = "cpu",
) -> int:
    """Sentence embeddings: a vector for each text, or the texts with the most similar vectors.

    saccade embed minilm "A man sleeps." "Somebody rests."

    saccade embed minilm --data reviews.csv --out vectors.npy

    Find the five reviews most similar to a text or, without a text, the five most similar pairs of reviews:

    saccade embed minilm "too long" --data reviews.csv --nearest 5

    saccade embed minilm --data reviews.csv --nearest 5

    Pooling and normalization are those of the model's files; without any, a vector is the mean over the tokens.

    Args:
        run: A run, a model directory, a hub name or a short name (minilm).
        text: Texts to embed. Default: those of --data, or one per line from standard input.
        data: Data files with texts, in any format that training reads.
        columns: Column that holds the texts, such as text=review. Default: the column that training used.
        out: Write the vectors to a file: .npy (an array), or .parquet, .jsonl, .csv or .tsv (a column added to the data).
        nearest: Number of most similar texts of --data to print for each text or, without a text, of most similar pairs.
        json: Print JSON: an object with the vector of each text, or with its nearest texts.
        batch_size: Batch size: number of texts per forward pass. Default: as many as fit in 8,192 tokens.
        engine: Engine of inference.
        device: Device of inference; auto: the best available.
    """
    from saccade.cli.exit_codes import run_command

    request = EmbedRequest(text, data, columns, out, nearest, json)
    settings = {"batch_size": batch_size, "engine": engine, "device": device}
    return run_command("embed", lambda: _embed_texts(run, request, settings))


def _embed_texts(path: str, request: EmbedRequest, settings: dict[str, Any]) -> int:
    from saccade.api.embed import embed
    from saccade.api.run import Run
    from saccade.cli.inputs import suggest_near_runs

    _check_request(request)
    opened = Run(path)
    with suggest_near_runs(path):
        assert opened.model is not None  # loads it, so that a path that does not exist is reported first
    examples = _read_texts(opened, request)
    if not examples:
        print("saccade embed: no input texts.", file=sys.stderr)
        return 0
    vectors = embed(opened, [example["text"] for example in examples], **settings)
    if request.out:
        _write_vectors(request.out, vectors, examples)
        count, width = vectors.shape
        print(f"saccade embed: wrote {count:,} vectors of width {width:,} to {request.out}", file=sys.stderr)
    elif request.nearest and request.texts and request.data:
        queries = embed(opened, request.texts, **settings)
        _print_neighbors(request, queries, vectors, examples)
    elif request.nearest:
        _print_pairs(request, vectors, examples)
    else:
        _print_vectors(request, vectors, examples)
    return 0


def _check_request(request: EmbedRequest) -> None:
    from saccade.data.table_writer import check_table_path
    from saccade.errors import UsageError

    if request.nearest < 0:
        raise UsageError(f"--nearest is {request.nearest}; give the number of texts to print, such as 5.")
    if request.out and request.nearest:
        raise UsageError("--out writes vectors and --nearest prints texts; use one of them.")
    if request.texts and request.data and not request.nearest:
        raise UsageError("Texts and --data are both given; use one of them, or --nearest to find texts in the data.")
    if request.out:
        check_table_path(request.out, other_suffixes=(ARRAY_SUFFIX,))


def _read_texts(opened: "Run", request: EmbedRequest) -> "list[Example]":
    """The texts of the data files, of the command line or of standard input."""
    from saccade.cli.inputs import print_notes, read_stdin_lines
    from saccade.data import Example, parse_columns
    from saccade.data.example import TEXT
    from saccade.data.read import read_examples

    if not request.data:
        return [
            Example({"text": text}, "", number) for number, text in enumerate(request.texts or read_stdin_lines(), 1)
        ]
    stored = {role: name for role, name in opened.columns.items() if role == TEXT.name}
    records = read_examples(request.data, (TEXT,), columns=stored | parse_columns(request.columns), keep_fields=True)
    print_notes(records.notes)
    return list(records.examples)


def _write_vectors(path: str, vectors: "Tensor", examples: "Sequence[Example]") -> None:
    """An array (texts, width) as .npy, or a table with the columns of the data and a column of vectors."""
    import os

    import numpy as np

    from saccade.data.table_writer import write_table

    if not path.lower().endswith(ARRAY_SUFFIX):
        rows = zip(examples, vectors.tolist(), strict=True)
        write_table(path, ({**(one.fields or one.values), "embedding": vector} for one, vector in rows))
        return
    part = f"{path}.{os.getpid()}.part"
    with open(part, "wb") as file:
        np.save(file, vectors.numpy())
    os.replace(part, path)


def _print_vectors(request: EmbedRequest, vectors: "Tensor", examples: "Sequence[Example]") -> None:
    for example, vector in zip(examples, vectors.tolist(), strict=True):
        record = _describe(example) | {"embedding": vector}
        numbers = " ".join(f"{value:.6g}" for value in vector)
        print(json_text.dumps(record, ensure_ascii=False) if request.json else numbers)


def _print_neighbors(
    request: EmbedRequest, queries: "Tensor", vectors: "Tensor", examples: "Sequence[Example]"
) -> None:
    from saccade.api.similarity import nearest_neighbors

    values, indices = nearest_neighbors(queries, vectors, request.nearest)
    for text, similarities, neighbors in zip(request.texts, values.tolist(), indices.tolist(), strict=True):
        found = [(value, examples[index]) for value, index in zip(similarities, neighbors, strict=True)]
        if request.json:
            nearest = [{"similarity": value} | _describe(example) for value, example in found]
            print(json_text.dumps({"text": text, "nearest": nearest}, ensure_ascii=False))
        else:
            print(text, *(f"  {value:.3f}  {_format_text(example)}" for value, example in found), sep="\n")


def _print_pairs(request: EmbedRequest, vectors: "Tensor", examples: "Sequence[Example]") -> None:
    from saccade.api.similarity import nearest_pairs

    for value, first, second in nearest_pairs(vectors, request.nearest):
        if request.json:
            pair = {"first": _describe(examples[first]), "second": _describe(examples[second])}
            print(json_text.dumps({"similarity": value} | pair, ensure_ascii=False))
        else:
            print(f"{value:.3f}  {_format_text(examples[first])}\n       {_format_text(examples[second])}")


def _describe(example: "Example") -> dict[str, Any]:
    """The text of an example, and its id and line in a data file."""
    from saccade.data.read import find_id

    location = {"id": find_id(example.fields), "line": example.line} if example.fields is not None else {}
    return {name: value for name, value in location.items() if value is not None} | {"text": example["text"]}


def _format_text(example: "Example") -> str:
    record = _describe(example)
    place = f"id {record['id']}: " if "id" in record else f"line {record['line']:,}: " if "line" in record else ""
    return place + record["text"].strip().replace("\n", " ")
