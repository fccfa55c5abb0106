"""CSV and TSV tables. In TSV, quotes are literal; in CSV, quoted cells may contain delimiters and line breaks."""

import csv
from collections import Counter, deque
from collections.abc import Iterator

from saccade.data.read.base import ReadRequest, Record
from saccade.data.read.header import find_header
from saccade.data.read.open_text import MAX_LINE_BYTES, NumberedLine, SourceFile, read_lines
from saccade.errors import DataError

MAX_ROWS_SAMPLED = 200  # rows that are read to detect the delimiter and the header
MAX_COLUMNS = 10_000
MAX_CELL_LINES = 1_000  # lines of one quoted cell
Row = tuple[int, list[str] | DataError]


def read_tsv(source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    return _read_table(source, request, "TSV", _read_tab_rows(source))


def read_csv(delimiter: str, source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    name = "CSV" if delimiter == "," else f"CSV with {delimiter!r}"
    return _read_table(source, request, name, _read_quoted_rows(source, delimiter))


def measure_consistency(sample_lines: list[str], delimiter: str) -> float:
    """The fraction of lines that a delimiter splits into the most common number of cells; 0 if that number is 1."""
    rows = [line for line in sample_lines[:MAX_ROWS_SAMPLED] if line.strip()]
    if delimiter == "\t":
        widths = [line.count("\t") + 1 for line in rows]
    else:
        csv.field_size_limit(MAX_LINE_BYTES)
        plain = (line.replace("\r", " ") for line in rows)  # a stray \r is reported later, by its line
        widths = [len(row) for row in csv.reader(plain, delimiter=delimiter) if row]
    width, count = Counter(widths).most_common(1)[0] if widths else (1, 0)
    return count / len(widths) if width > 1 else 0.0


def _read_table(
    source: SourceFile, request: ReadRequest, name: str, rows: Iterator[Row]
) -> Iterator[Record | DataError]:
    sample: list[Row] = []
    for row in rows:
        sample.append(row)
        if len(sample) == MAX_ROWS_SAMPLED:
            break
    valid = [(line, cells) for line, cells in sample if not isinstance(cells, DataError)]
    if not valid:
        yield from (error for _, error in sample if isinstance(error, DataError))
        return
    width = Counter(len(cells) for _, cells in valid).most_common(1)[0][0]
    if max(len(valid[0][1]), width) > MAX_COLUMNS:
        what = f"{max(len(valid[0][1]), width):,} columns; at most {MAX_COLUMNS:,} are supported"
        hint = "check that it is a table; write long vectors as lists in JSON lines"
        raise DataError(what, file=source.path, line=valid[0][0], value=valid[0][1][0][:50], hint=hint)
    header = find_header(source, request, name, [cells for _, cells in valid])
    columns = header or [str(i + 1) for i in range(width)]
    skip = valid[0][0] if header else 0
    for line, cells in _chain_rows(sample, rows):
        if line == skip:
            continue
        yield cells if isinstance(cells, DataError) else _make_record(source, line, cells, columns)


def _chain_rows(first: list[Row], rest: Iterator[Row]) -> Iterator[Row]:
    yield from first
    yield from rest


def _make_record(source: SourceFile, line: int, cells: list[str], columns: list[str]) -> Record | DataError:
    if len(cells) == len(columns):
        return Record(line, dict(zip(columns, cells, strict=True)))
    too_many = len(cells) > len(columns)
    at = len(columns) if too_many else len(cells)
    value = cells[at] if too_many else cells[-1]
    hint = (
        "put quotes around a cell that contains a delimiter"
        if too_many
        else "add the missing cell, even if it is empty"
    )
    if line == 1:
        hint = "if this is a header, give each column one name; otherwise " + hint
    problem = f"expected {len(columns):,} cells, got {len(cells):,}"
    column = f"{at + 1}" if too_many else f"{columns[at]} (missing), the cell before it"
    return DataError(problem, file=source.path, line=line, column=column, value=value, hint=hint)


def _read_tab_rows(source: SourceFile) -> Iterator[Row]:
    for line, text in read_lines(source):
        if isinstance(text, DataError):
            yield line, text
        elif text.strip(" \n"):
            yield line, text.removesuffix("\n").split("\t")


class _RewindableLines:
    """Lines for the CSV parser, which can be rewound to the current record, so that an unclosed quote ruins only one."""

    def __init__(self, numbered_lines: Iterator[NumberedLine]):
        self.numbered_lines, self.pending_lines, self.record_lines, self.character_count = (
            numbered_lines,
            deque[NumberedLine](),
            list[NumberedLine](),
            0,
        )

    def __iter__(self) -> "_RewindableLines":
        return self

    def __next__(self) -> str:
        numbered = self.pending_lines.popleft() if self.pending_lines else next(self.numbered_lines)
        self.record_lines.append(numbered)
        if isinstance(numbered[1], DataError):
            raise numbered[1]
        self.character_count += len(numbered[1])
        if len(self.record_lines) > MAX_CELL_LINES or self.character_count > MAX_LINE_BYTES:
            raise csv.Error("unexpected end of data")
        return numbered[1]

    def start_record(self) -> None:
        self.record_lines.clear()
        self.character_count = 0

    def rewind(self) -> None:
        """Return all lines of the current record but the first, to be read again."""
        self.pending_lines.extendleft(reversed(self.record_lines[1:]))


def _read_quoted_rows(source: SourceFile, delimiter: str) -> Iterator[Row]:
    csv.field_size_limit(MAX_LINE_BYTES)
    lines = _RewindableLines(read_lines(source))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        lines.start_record()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except DataError as error:
            if not lines.record_lines or lines.record_lines[-1][1] is not error:
                raise  # an error of the file, not of a line
            yield lines.record_lines[0][0], error
        except csv.Error as error:
            line, text = lines.record_lines[0]
            yield line, _make_quote_error(source, (line, str(text)), str(error), delimiter)
            lines.rewind()
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
        else:
            if cells and (len(cells) > 1 or cells[0].strip()):
                yield lines.record_lines[0][0], cells


def _make_quote_error(source: SourceFile, numbered_line: tuple[int, str], error: str, delimiter: str) -> DataError:
    line, text = numbered_line
    if "unexpected end" in error:
        problem, hint = "a quote is opened and never closed", "close it, or double it if a literal quote is meant"
    elif "expected after" in error:
        problem, hint = "a quote is closed before the end of the cell", "double it if a literal quote is meant"
    else:
        problem, hint = f"invalid CSV ({error})", "put the cell in quotes"
    at = max(text.find('"'), 0)
    column = str(text.count(delimiter, 0, at) + 1)
    return DataError(problem, file=source.path, line=line, column=column, value=text[at:].rstrip("\n")[:50], hint=hint)
