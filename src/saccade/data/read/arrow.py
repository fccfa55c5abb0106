"""Parquet and Arrow files, through pyarrow, a batch of rows at a time; class names of Hugging Face datasets are put back."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from saccade.data.read.record import Ask, Record
from saccade.data.read.source import Source
from saccade.errors import DataError

ROWS = 1_000


def looks_like_parquet(source: Source, ask: Ask) -> bool:
    return source.head[:4] == b"PAR1"


def looks(source: Source, ask: Ask) -> bool:
    return source.head[:6] == b"ARROW1" or (source.head[:4] == b"\xff\xff\xff\xff" and source.suffix == ".arrow")


def parquet(source: Source, ask: Ask) -> Iterator[Record | DataError]:
    _import(source)
    from pyarrow import parquet as reader

    with _guard(source), reader.ParquetFile(source.path) as file:
        ask.said.append(f"{source.path.name}: Parquet, {file.metadata.num_rows:,} rows.")
        yield from _rows(file.iter_batches(batch_size=ROWS), file.schema_arrow)


def arrow(source: Source, ask: Ask) -> Iterator[Record | DataError]:
    pyarrow = _import(source)
    from pyarrow import ipc

    ask.said.append(f"{source.path.name}: Arrow.")
    with _guard(source), pyarrow.memory_map(str(source.path)) as file:
        if source.head[:6] == b"ARROW1":
            whole = ipc.open_file(file)
            yield from _rows((whole.get_batch(i) for i in range(whole.num_record_batches)), whole.schema)
        else:
            stream = ipc.open_stream(file)
            yield from _rows(stream, stream.schema)


def _rows(batches: Any, schema: Any) -> Iterator[Record]:
    names = class_names(schema)
    row = 0
    for batch in batches:
        for fields in batch.to_pylist():
            row += 1
            for column, known in names.items():
                fields[column] = _named(fields.get(column), known)
            yield Record(row, fields)


def class_names(schema: Any) -> dict[str, list[str]]:
    """column -> the names of its classes, where `datasets` wrote numbers and keeps the names beside them."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    found = {}
    for column, feature in features.items() if isinstance(features, dict) else ():
        inner = feature.get("feature", feature) if isinstance(feature, dict) else feature
        inner = inner[0] if isinstance(inner, list) and inner else inner
        if isinstance(inner, dict) and inner.get("_type") == "ClassLabel" and isinstance(inner.get("names"), list):
            found[column] = [str(name) for name in inner["names"]]
    return found


def _named(value: Any, names: list[str]) -> Any:
    if isinstance(value, list):
        return [_named(part, names) for part in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None if value == -1 else value


def _import(source: Source) -> ModuleType:
    try:
        import pyarrow
    except ImportError:
        cure = "install it with pip install 'saccade[data]', or write the data as CSV or JSON lines"
        raise DataError("reading Parquet and Arrow needs pyarrow", file=source.path, cure=cure) from None
    return pyarrow


@contextmanager
def _guard(source: Source) -> Iterator[None]:
    """pyarrow's errors, which are many, as ours."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, DataError):
            raise
        what = f"not whole: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        raise DataError(
            what, file=source.path, value=source.path.name, cure="fetch it again or write it anew"
        ) from None
