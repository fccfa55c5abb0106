"""Write the rows of a table one by one: CSV, TSV, JSON lines or Parquet, by the suffix of the file.

A file is written under a temporary name and renamed when it is complete, so that an interrupted command neither leaves half a
file nor damages an existing one.
"""

import csv
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TextIO

from saccade.errors import DataError, UsageError

MAX_ROWS_BUFFERED = 1_000  # rows by which the columns, and the types of Parquet columns, are found
UTF8_BOM = "\ufeff"  # by which Excel recognizes UTF-8


class TableWriter:
    """A context manager that writes rows, dictionaries of values by column, to a file.

        with TableWriter("predictions.csv") as table:
            table.write({"text": "good", "label": "positive"})

    The columns are `columns` and those of the first `MAX_ROWS_BUFFERED` rows. In CSV and TSV, lists and dictionaries are written
    as JSON. With `bom`, a CSV file begins with a byte order mark.
    """

    def __init__(self, path: str | Path, *, columns: Sequence[str] = (), bom: bool = False):
        self.path, self.columns = Path(path), list(columns)
        check_table_path(self.path)
        self.part_path = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        self.bom = bom
        self.row_count = 0
        self._rows: list[Mapping[str, Any]] = []
        self._format: _TableFormat | None = None

    def __enter__(self) -> Self:
        return self

    def write(self, row: Mapping[str, Any]) -> None:
        self._rows.append(row)
        self.row_count += 1
        if len(self._rows) == MAX_ROWS_BUFFERED:
            self._flush()

    def _flush(self) -> None:
        if self._format is None:
            columns = list(dict.fromkeys([*self.columns, *(name for row in self._rows for name in row)]))
            self._format = TABLE_FORMATS[self.path.suffix.lower()](self.part_path, self.path, columns, self.bom)
        self._format.write_rows(self._rows, self.row_count - len(self._rows))
        self._rows = []

    def __exit__(self, error_type: object, *details: object) -> None:
        try:
            try:
                if error_type is None:
                    self._flush()
            finally:
                if self._format is not None:
                    self._format.close()
            if error_type is None:
                os.replace(self.part_path, self.path)
        finally:
            self.part_path.unlink(missing_ok=True)


def check_table_path(path: str | Path, *, other_suffixes: Sequence[str] = ()) -> None:
    """Raise an error for a file that could not be written, before any work is done; the caller may write other formats, too."""
    path, suffixes = Path(path), [*other_suffixes, *TABLE_FORMATS]
    if path.suffix.lower() not in suffixes:
        raise UsageError(f"{path}: the suffix of the file says its format; use one of {', '.join(suffixes)}.")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no directory {path.parent}; create it, or choose another file.")
    if path.is_dir():
        raise UsageError(f"{path} is a directory; give the name of a file.")
    if path.suffix.lower() == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise UsageError(
                f"{path}: writing Parquet needs pyarrow; install it with pip install 'saccade[data]', or write .csv or .jsonl."
            ) from None


def write_table(path: str | Path, rows: Iterable[Mapping[str, Any]], *, columns: Sequence[str] = ()) -> int:
    """Write a table, and return the number of its rows; `columns` are also written if there are no rows."""
    with TableWriter(path, columns=columns) as table:
        for row in rows:
            table.write(row)
    return table.row_count


class _TableFormat:
    """An open file of one format: rows are appended until it is closed."""

    def __init__(self, part_path: Path, path: Path, columns: Sequence[str], bom: bool):
        self.path, self.columns = path, columns
        self.file: TextIO = part_path.open("w", encoding="utf-8", newline="")
        if bom:
            self.file.write(UTF8_BOM)
        self.write_header()

    def write_header(self) -> None:
        """Write what precedes the rows."""

    def write_rows(self, rows: Sequence[Mapping[str, Any]], first: int) -> None:
        """Append rows, of which the first has this index, counted from 0."""
        raise NotImplementedError

    def close(self) -> None:
        self.file.close()

    def _check_columns(self, row: Mapping[str, Any], number: int) -> None:
        """Raise an error for a row with a column that the first rows did not have."""
        new = [name for name in row if name not in self.columns]
        if new:
            raise DataError(
                f"row {number + 1:,} has the column {new[0]!r}, which the first {MAX_ROWS_BUFFERED:,} rows do not have",
                file=self.path,
                value=row[new[0]],
                hint="write .jsonl, where each row has columns of its own",
            )


class _CsvFormat(_TableFormat):
    def write_header(self) -> None:
        # CRLF as in RFC 4180, and so that either character is quoted within a cell
        self.writer = csv.writer(self.file, lineterminator="\r\n")
        if self.columns:
            self.writer.writerow(self.columns)

    def write_rows(self, rows: Sequence[Mapping[str, Any]], first: int) -> None:
        for number, row in enumerate(rows, first):
            self._check_columns(row, number)
            self.writer.writerow([_format_cell(row.get(name)) for name in self.columns])


class _TsvFormat(_TableFormat):
    """Tab-separated values without quotes, as they are read."""

    def write_header(self) -> None:
        if self.columns:
            self._write_line(self.columns, 0)

    def write_rows(self, rows: Sequence[Mapping[str, Any]], first: int) -> None:
        for number, row in enumerate(rows, first):
            self._check_columns(row, number)
            self._write_line([_format_cell(row.get(name)) for name in self.columns], number + 1)

    def _write_line(self, cells: Sequence[str], number: int) -> None:
        for column, cell in zip(self.columns, cells, strict=True):
            if any(mark in cell for mark in "\t\n\r"):
                raise DataError(
                    f"row {number:,} has a tab or a line break in a cell, which TSV cannot hold",
                    file=self.path,
                    column=column,
                    value=cell,
                    hint="write .csv or .jsonl, whose values may contain tabs and line breaks",
                )
        self.file.write("\t".join(cells) + "\n")


class _JsonLinesFormat(_TableFormat):
    def write_rows(self, rows: Sequence[Mapping[str, Any]], first: int) -> None:
        for row in rows:
            self.file.write(json.dumps(row, ensure_ascii=False, default=_to_json_value) + "\n")


class _ParquetFormat(_TableFormat):
    """Row groups of `MAX_ROWS_BUFFERED` rows; the types are those of the first rows, and a column without a value is text."""

    def __init__(self, part_path: Path, path: Path, columns: Sequence[str], bom: bool):
        self.path, self.columns, self.part_path = path, columns, part_path
        self.writer: Any = None

    def write_rows(self, rows: Sequence[Mapping[str, Any]], first: int) -> None:
        import pyarrow
        from pyarrow import parquet

        for number, row in enumerate(rows, first):
            self._check_columns(row, number)
        arrays = {name: [row.get(name) for row in rows] for name in self.columns}
        if self.writer is None:
            self.schema = pyarrow.schema([pyarrow.field(name, _infer_type(values)) for name, values in arrays.items()])
            self.writer = parquet.ParquetWriter(self.part_path, self.schema)
        try:
            table = pyarrow.table(
                {name: _to_arrow(values, self.schema.field(name).type) for name, values in arrays.items()},
                schema=self.schema,
            )
        except (pyarrow.ArrowException, TypeError, ValueError) as error:
            problem = (
                f"rows {first + 1:,} to {first + len(rows):,} have values of another type than the rows before: {error}"
            )
            raise DataError(problem, file=self.path, hint="write .jsonl, whose values may differ in type") from None
        self.writer.write_table(table)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


def _infer_type(values: Sequence[Any]) -> Any:
    """The Arrow type of a column; text for a column without values, or of values of several types."""
    import pyarrow

    try:
        found = pyarrow.infer_type(values)
    except pyarrow.ArrowException:
        return pyarrow.string()
    has_no_type = pyarrow.types.is_null(found) or (pyarrow.types.is_struct(found) and not found.num_fields)
    return pyarrow.string() if has_no_type else found


def _to_arrow(values: Sequence[Any], type_: Any) -> Any:
    import pyarrow

    if pyarrow.types.is_string(type_):
        values = [None if value is None else _format_cell(value) for value in values]
    return pyarrow.array(values, type_)


def _format_cell(value: Any) -> str:
    """A value as text: nothing for None, JSON for lists and dictionaries.

    >>> _format_cell(None), _format_cell(0.5), _format_cell(["a", "ü"])
    ('', '0.5', '["a", "ü"]')
    """
    if isinstance(value, list | tuple | Mapping):
        return json.dumps(value, ensure_ascii=False, default=_to_json_value)
    return "" if value is None else str(value)


def _to_json_value(value: Any) -> Any:
    """Arrays as lists, any other object as its str."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


TABLE_FORMATS: dict[str, type[_TableFormat]] = {
    ".csv": _CsvFormat,
    ".tsv": _TsvFormat,
    ".jsonl": _JsonLinesFormat,
    ".parquet": _ParquetFormat,
}
