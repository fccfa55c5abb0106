"""Tables in memory as examples: a pandas or polars DataFrame, an Arrow table, a `datasets.Dataset` or a list of dictionaries.

Columns are recognized and checked by the same rules as those of a file; none of these libraries is imported here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from saccade.data.example import Example, Role
from saccade.data.read.base import ReadRequest, Record
from saccade.data.read.columns import map_columns
from saccade.data.read.open_text import SourceFile
from saccade.data.read.reader import MAX_RECORDS_SAMPLED, make_example
from saccade.data.read.tag_schemes import convert_tags_to_bio
from saccade.errors import DataError

MAX_BATCH_ROWS = 1_000  # rows that are converted to Python values at a time


def is_table(data: Any) -> bool:
    """Whether data are rows with named columns: a DataFrame, an Arrow table, a dataset, or dictionaries.

    >>> is_table([{"text": "good"}]), is_table(["good"]), is_table("good")
    (True, False, False)
    """
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return bool(data) and isinstance(data[0], Mapping)
    return any(hasattr(data, name) for name in ("columns", "column_names", "schema"))


def table_index(data: Any) -> Any:
    """The index of a pandas DataFrame or Series; None for other tables."""
    index = getattr(data, "index", None)
    return None if callable(index) or isinstance(data, list | tuple | str) else index


def iter_rows(data: Any) -> Iterator[Mapping[str, Any]]:
    """The rows of a table as dictionaries, a batch of rows at a time.

    >>> list(iter_rows([{"text": "good"}, {"text": "bad"}]))
    [{'text': 'good'}, {'text': 'bad'}]
    """
    if hasattr(data, "iloc"):  # pandas
        for start in range(0, len(data), MAX_BATCH_ROWS):
            yield from data.iloc[start : start + MAX_BATCH_ROWS].to_dict("records")
    elif hasattr(data, "iter_rows"):  # polars
        yield from data.iter_rows(named=True)
    elif hasattr(data, "to_batches"):  # an Arrow table
        for batch in data.to_batches(max_chunksize=MAX_BATCH_ROWS):
            yield from batch.to_pylist()
    elif hasattr(data, "to_pylist"):  # an Arrow record batch
        yield from data.to_pylist()
    else:
        yield from data


def read_table(
    data: Any,
    roles: Sequence[Role],
    *,
    columns: Mapping[str, str] | None = None,
    name: str = "",
    notes: list[str] | None = None,
    keep_fields: bool = False,
) -> Iterator[Example]:
    """The examples of a table, in order; the first bad row is a DataError that names its number, column and value.

    >>> [dict(example.values) for example in read_table([{"review": "good"}], [Role("text", "text", ("review",))])]
    [{'text': 'good'}]
    """
    source = SourceFile(Path(name or type(data).__name__), b"", True)
    request = ReadRequest(tuple(roles), columns or {}, [] if notes is None else notes, keep_fields)
    found = _read_rows(source, iter_rows(data), request)
    for item in convert_tags_to_bio(found, request) if request.has_kind("tags") else found:
        if isinstance(item, DataError):
            raise item
        yield item


def _read_rows(
    source: SourceFile, rows: Iterable[Mapping[str, Any]], request: ReadRequest
) -> Iterator[Example | DataError]:
    records = (_make_record(source, number, row) for number, row in enumerate(rows, 1))
    first = list(islice(records, MAX_RECORDS_SAMPLED))
    if not first:
        return
    column_map = map_columns(source, request, first)
    request.notes.append(f"{source.path.name}: {column_map.describe()}.")
    for record in chain(first, records):
        yield make_example(source.path, record, request, column_map)


def _make_record(source: SourceFile, number: int, row: Any) -> Record:
    if not isinstance(row, Mapping):
        raise DataError(
            f"a row is a dictionary of columns; got {type(row).__name__}",
            file=source.path,
            line=number,
            value=row,
            hint="give all rows as dictionaries, or a list of texts",
        )
    return Record(number, {str(column): value for column, value in row.items()})
