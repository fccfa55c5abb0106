"""Parquet and Arrow files, read by pyarrow in batches of rows; class ids of Hugging Face datasets become class names."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from saccade.data.read.base import ReadRequest, Record
from saccade.data.read.open_text import FileCache, SourceFile
from saccade.errors import DataError

MAX_BATCH_ROWS = 1_000
# files stay open between reading the first rows, to find the columns, and reading all rows
OPEN_PARQUET_FILES: FileCache[Any] = FileCache(4)
OPEN_ARROW_FILES: FileCache[Any] = FileCache(4)


def matches_parquet(source: SourceFile, request: ReadRequest) -> bool:
    return source.head[:4] == b"PAR1"


def matches_arrow(source: SourceFile, request: ReadRequest) -> bool:
    return source.head[:6] == b"ARROW1" or (source.head[:4] == b"\xff\xff\xff\xff" and source.suffix == ".arrow")


def read_parquet(source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    _import_pyarrow(source)
    from pyarrow import parquet as reader

    with _convert_pyarrow_errors(source):
        file = OPEN_PARQUET_FILES.get(source.path) or reader.ParquetFile(source.path)
        OPEN_PARQUET_FILES.put(source.path, file)
        request.notes.append(f"{source.path.name}: Parquet, {file.metadata.num_rows:,} rows.")
        yield from _iter_records(file.iter_batches(batch_size=MAX_BATCH_ROWS), file.schema_arrow)


def read_arrow(source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    pyarrow = _import_pyarrow(source)
    from pyarrow import ipc

    request.notes.append(f"{source.path.name}: Arrow.")
    with _convert_pyarrow_errors(source):
        file = OPEN_ARROW_FILES.get(source.path) or pyarrow.memory_map(str(source.path))
        OPEN_ARROW_FILES.put(source.path, file)
        file.seek(0)
        if source.head[:6] == b"ARROW1":
            reader = ipc.open_file(file)
            yield from _iter_records((reader.get_batch(i) for i in range(reader.num_record_batches)), reader.schema)
        else:
            stream = ipc.open_stream(file)
            yield from _iter_records(stream, stream.schema)


def _iter_records(batches: Any, schema: Any) -> Iterator[Record]:
    names = read_class_names(schema)
    row = 0
    for batch in batches:
        for fields in batch.to_pylist():
            row += 1
            for column, known in names.items():
                fields[column] = _to_class_names(fields.get(column), known)
            yield Record(row, fields)


def read_class_names(schema: Any) -> dict[str, list[str]]:
    """The class names of each column of class ids, from the metadata that Hugging Face datasets stores in the schema."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    names = {}
    for column, feature in features.items() if isinstance(features, dict) else ():
        inner = feature.get("feature", feature) if isinstance(feature, dict) else feature
        inner = inner[0] if isinstance(inner, list) and inner else inner
        if isinstance(inner, dict) and inner.get("_type") == "ClassLabel" and isinstance(inner.get("names"), list):
            names[column] = [str(name) for name in inner["names"]]
    return names


def _to_class_names(value: Any, names: list[str]) -> Any:
    if isinstance(value, list):
        return [_to_class_names(part, names) for part in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None if value == -1 else value


def _import_pyarrow(source: SourceFile) -> ModuleType:
    try:
        import pyarrow
    except ImportError:
        hint = "install it with pip install 'saccade[data]', or write the data as CSV or JSON lines"
        raise DataError("reading Parquet and Arrow needs pyarrow", file=source.path, hint=hint) from None
    return pyarrow


@contextmanager
def _convert_pyarrow_errors(source: SourceFile) -> Iterator[None]:
    """Raise DataError for the errors of pyarrow."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, DataError):
            raise
        problem = f"invalid or truncated file: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        raise DataError(problem, file=source.path, value=source.path.name, hint="download or write it again") from None
