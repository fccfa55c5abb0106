"""CSV and TSV: rows of cells. A TSV's quotes are literal; a CSV's may hold commas and line ends."""

import csv
from collections import Counter, deque
from collections.abc import Iterator

from saccade.data.read.header import find_header
from saccade.data.read.record import Ask, Record
from saccade.data.read.source import LINE, Numbered, Source, lines
from saccade.errors import DataError

SAMPLE = 200  # rows looked at before the first is given out
COLUMNS = 10_000
SPREAD = 1_000  # lines that one quoted cell may run over
Row = tuple[int, list[str] | DataError]


def tsv(source: Source, ask: Ask) -> Iterator[Record | DataError]:
    return _records(source, ask, "TSV", _tab_rows(source))


def csv_with(delimiter: str, source: Source, ask: Ask) -> Iterator[Record | DataError]:
    name = "CSV" if delimiter == "," else f"CSV with {delimiter!r}"
    return _records(source, ask, name, _quoted_rows(source, delimiter))


def evenness(sample: list[str], delimiter: str) -> float:
    """The share of the first lines that a delimiter cuts into equally many cells, more than one; quotes count for CSV."""
    rows = [line for line in sample[:SAMPLE] if line.strip()]
    if delimiter == "\t":
        widths = [line.count("\t") + 1 for line in rows]
    else:
        csv.field_size_limit(LINE)
        plain = (line.replace("\r", " ") for line in rows)  # a stray one is for the reader to refuse, with its line
        widths = [len(row) for row in csv.reader(plain, delimiter=delimiter) if row]
    width, count = Counter(widths).most_common(1)[0] if widths else (1, 0)
    return count / len(widths) if width > 1 else 0.0


def _records(source: Source, ask: Ask, name: str, rows: Iterator[Row]) -> Iterator[Record | DataError]:
    first: list[Row] = []
    for row in rows:
        first.append(row)
        if len(first) == SAMPLE:
            break
    good = [(line, cells) for line, cells in first if not isinstance(cells, DataError)]
    if not good:
        yield from (error for _, error in first if isinstance(error, DataError))
        return
    width = Counter(len(cells) for _, cells in good).most_common(1)[0][0]
    if max(len(good[0][1]), width) > COLUMNS:
        what = f"{max(len(good[0][1]), width):,} columns, where at most {COLUMNS:,} make sense"
        cure = "check that it is a table; long vectors belong in a list in JSON lines"
        raise DataError(what, file=source.path, line=good[0][0], value=good[0][1][0][:50], cure=cure)
    header = find_header(source, ask, name, [cells for _, cells in good])
    columns = header or [str(i + 1) for i in range(width)]
    skip = good[0][0] if header else 0
    for line, cells in _chain(first, rows):
        if line == skip:
            continue
        yield cells if isinstance(cells, DataError) else _record(source, line, cells, columns)


def _chain(first: list[Row], rest: Iterator[Row]) -> Iterator[Row]:
    yield from first
    yield from rest


def _record(source: Source, line: int, cells: list[str], columns: list[str]) -> Record | DataError:
    if len(cells) == len(columns):
        return Record(line, dict(zip(columns, cells, strict=True)))
    more = len(cells) > len(columns)
    at = len(columns) if more else len(cells)
    value = cells[at] if more else cells[-1]
    cure = (
        "put quotes around a cell that has a delimiter in it" if more else "add the missing cell, even if it is empty"
    )
    if line == 1:
        cure = "if this is a header, give each column one name; otherwise " + cure
    what = f"{len(cells):,} cells where {len(columns):,} are needed"
    column = f"{at + 1}" if more else f"{columns[at]} (missing), the cell before it"
    return DataError(what, file=source.path, line=line, column=column, value=value, cure=cure)


def _tab_rows(source: Source) -> Iterator[Row]:
    for line, text in lines(source):
        if isinstance(text, DataError):
            yield line, text
        elif text.strip(" \n"):
            yield line, text.removesuffix("\n").split("\t")


class _Feed:
    """Lines for the CSV parser, which remembers those of the record at hand: a quote left open must not eat the file."""

    def __init__(self, source: Iterator[Numbered]):
        self.source, self.ahead, self.taken, self.size = source, deque[Numbered](), list[Numbered](), 0

    def __iter__(self) -> "_Feed":
        return self

    def __next__(self) -> str:
        numbered = self.ahead.popleft() if self.ahead else next(self.source)
        self.taken.append(numbered)
        if isinstance(numbered[1], DataError):
            raise numbered[1]
        self.size += len(numbered[1])
        if len(self.taken) > SPREAD or self.size > LINE:
            raise csv.Error("unexpected end of data")
        return numbered[1]

    def begin(self) -> None:
        self.taken.clear()
        self.size = 0

    def back(self) -> None:
        """Give all lines of this record but the first to be read anew."""
        self.ahead.extendleft(reversed(self.taken[1:]))


def _quoted_rows(source: Source, delimiter: str) -> Iterator[Row]:
    csv.field_size_limit(LINE)
    feed = _Feed(lines(source))
    reader = csv.reader(feed, delimiter=delimiter, strict=True)
    while True:
        feed.begin()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except DataError as error:
            if not feed.taken or feed.taken[-1][1] is not error:
                raise  # not of one line, but of the file
            yield feed.taken[0][0], error
        except csv.Error as error:
            line, text = feed.taken[0]
            yield line, _misquoted(source, (line, str(text)), str(error), delimiter)
            feed.back()
            reader = csv.reader(feed, delimiter=delimiter, strict=True)
        else:
            if cells and (len(cells) > 1 or cells[0].strip()):
                yield feed.taken[0][0], cells


def _misquoted(source: Source, numbered: tuple[int, str], error: str, delimiter: str) -> DataError:
    line, text = numbered
    if "unexpected end" in error:
        what, cure = "a quote is opened and never closed", "close it, or write two quotes for one that is meant"
    elif "expected after" in error:
        what, cure = "a quote ends before its cell does", "write two quotes for one that is meant"
    else:
        what, cure = f"not CSV ({error})", "put the cell in quotes"
    at = text.find('"')
    column = str(text.count(delimiter, 0, max(at, 0)) + 1)
    return DataError(
        what, file=source.path, line=line, column=column, value=text[max(at, 0) :].rstrip("\n")[:50], cure=cure
    )
