"""CSV and TSV: rows of cells. A TSV's quotes are literal; a CSV's may hold commas and line ends."""

import csv
from collections import Counter, deque
from collections.abc import Iterator

from saccade.data.read.base import ReadRequest, Record
from saccade.data.read.header import find_header
from saccade.data.read.open_text import MAX_LINE_BYTES, NumberedLine, SourceFile, read_lines
from saccade.errors import DataError

MAX_ROWS_SAMPLED = 200  # rows looked at before the first is given out
MAX_COLUMNS = 10_000
MAX_CELL_LINES = 1_000  # lines that one quoted cell may run over
Row = tuple[int, list[str] | DataError]


def read_tsv(source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    return _read_table(source, request, "TSV", _read_tab_rows(source))


def read_csv(delimiter: str, source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    name = "CSV" if delimiter == "," else f"CSV with {delimiter!r}"
    return _read_table(source, request, name, _read_quoted_rows(source, delimiter))


def measure_consistency(sample_lines: list[str], delimiter: str) -> float:
    """The share of the first lines that a delimiter cuts into equally many cells, more than one; quotes count for CSV."""
    rows = [line for line in sample_lines[:MAX_ROWS_SAMPLED] if line.strip()]
    if delimiter == "\t":
        widths = [line.count("\t") + 1 for line in rows]
    else:
        csv.field_size_limit(MAX_LINE_BYTES)
        plain = (line.replace("\r", " ") for line in rows)  # a stray one is for the reader to refuse, with its line
        widths = [len(row) for row in csv.reader(plain, delimiter=delimiter) if row]
    width, count = Counter(widths).most_common(1)[0] if widths else (1, 0)
    return count / len(widths) if width > 1 else 0.0


def _read_table(
    source: SourceFile, request: ReadRequest, name: str, rows: Iterator[Row]
) -> Iterator[Record | DataError]:
    first: list[Row] = []
    for row in rows:
        first.append(row)
        if len(first) == MAX_ROWS_SAMPLED:
            break
    good = [(line, cells) for line, cells in first if not isinstance(cells, DataError)]
    if not good:
        yield from (error for _, error in first if isinstance(error, DataError))
        return
    width = Counter(len(cells) for _, cells in good).most_common(1)[0][0]
    if max(len(good[0][1]), width) > MAX_COLUMNS:
        what = f"{max(len(good[0][1]), width):,} columns, where at most {MAX_COLUMNS:,} make sense"
        hint = "check that it is a table; long vectors belong in a list in JSON lines"
        raise DataError(what, file=source.path, line=good[0][0], value=good[0][1][0][:50], hint=hint)
    header = find_header(source, request, name, [cells for _, cells in good])
    columns = header or [str(i + 1) for i in range(width)]
    skip = good[0][0] if header else 0
    for line, cells in _chain_rows(first, rows):
        if line == skip:
            continue
        yield cells if isinstance(cells, DataError) else _make_record(source, line, cells, columns)


def _chain_rows(first: list[Row], rest: Iterator[Row]) -> Iterator[Row]:
    yield from first
    yield from rest


def _make_record(source: SourceFile, line: int, cells: list[str], columns: list[str]) -> Record | DataError:
    if len(cells) == len(columns):
        return Record(line, dict(zip(columns, cells, strict=True)))
    more = len(cells) > len(columns)
    at = len(columns) if more else len(cells)
    value = cells[at] if more else cells[-1]
    hint = (
        "put quotes around a cell that has a delimiter in it" if more else "add the missing cell, even if it is empty"
    )
    if line == 1:
        hint = "if this is a header, give each column one name; otherwise " + hint
    what = f"{len(cells):,} cells where {len(columns):,} are needed"
    column = f"{at + 1}" if more else f"{columns[at]} (missing), the cell before it"
    return DataError(what, file=source.path, line=line, column=column, value=value, hint=hint)


def _read_tab_rows(source: SourceFile) -> Iterator[Row]:
    for line, text in read_lines(source):
        if isinstance(text, DataError):
            yield line, text
        elif text.strip(" \n"):
            yield line, text.removesuffix("\n").split("\t")


class _RewindableLines:
    """Lines for the CSV parser, which remembers those of the record at hand: a quote left open must not eat the file."""

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
        """Give all lines of this record but the first to be read anew."""
        self.pending_lines.extendleft(reversed(self.record_lines[1:]))


def _read_quoted_rows(source: SourceFile, delimiter: str) -> Iterator[Row]:
    csv.field_size_limit(MAX_LINE_BYTES)
    feed = _RewindableLines(read_lines(source))
    reader = csv.reader(feed, delimiter=delimiter, strict=True)
    while True:
        feed.start_record()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except DataError as error:
            if not feed.record_lines or feed.record_lines[-1][1] is not error:
                raise  # not of one line, but of the file
            yield feed.record_lines[0][0], error
        except csv.Error as error:
            line, text = feed.record_lines[0]
            yield line, _make_quote_error(source, (line, str(text)), str(error), delimiter)
            feed.rewind()
            reader = csv.reader(feed, delimiter=delimiter, strict=True)
        else:
            if cells and (len(cells) > 1 or cells[0].strip()):
                yield feed.record_lines[0][0], cells


def _make_quote_error(source: SourceFile, numbered_line: tuple[int, str], error: str, delimiter: str) -> DataError:
    line, text = numbered_line
    if "unexpected end" in error:
        what, hint = "a quote is opened and never closed", "close it, or write two quotes for one that is meant"
    elif "expected after" in error:
        what, hint = "a quote ends before its cell does", "write two quotes for one that is meant"
    else:
        what, hint = f"not CSV ({error})", "put the cell in quotes"
    at = text.find('"')
    column = str(text.count(delimiter, 0, max(at, 0)) + 1)
    return DataError(
        what, file=source.path, line=line, column=column, value=text[max(at, 0) :].rstrip("\n")[:50], hint=hint
    )
