"""Is the first line of a table its column names? By known names, or by not being like the lines below it."""

import re
from collections.abc import Sequence

from saccade.data.item import DataError
from saccade.data.read.record import Ask, plain_name
from saccade.data.read.source import Source

NAME = re.compile(r"[#_]?[\w .#()/-]{1,40}")
ROWS = 20  # from which on a first line with labels found nowhere else is telling


def find_header(source: Source, ask: Ask, name: str, rows: list[list[str]]) -> list[str] | None:
    """The column names, or None if the first line is a record; says which, aloud."""
    first = [cell.strip().strip("\ufeff") for cell in rows[0]]
    where = f"{source.path.name}: {name}"
    known = [cell for cell in first if plain_name(cell) in ask.names() and not cell.isdigit()]
    if known and all(len(cell) < 64 for cell in first):
        ask.said.append(f"{where}, the first line is a header (it has {known[0]!r}).")
    elif _unlike(first, rows[1:]):
        ask.said.append(f"{where}, the first line is taken for a header, as it is unlike the lines below it.")
    else:
        ask.said.append(f"{where} without a header: the first line is a record.")
        return None
    _refuse_twins(source, first)
    return [cell or str(i + 1) for i, cell in enumerate(first)]


def _refuse_twins(source: Source, names: list[str]) -> None:
    seen: dict[str, int] = {}
    for i, name in enumerate(names):
        if name and name in seen:
            what = f"the header has this name twice, in columns {seen[name] + 1} and {i + 1}"
            cure = "rename one of them"
            raise DataError(what, file=source.path, line=1, column=str(i + 1), value=name, cure=cure)
        seen[name] = i


def _unlike(first: Sequence[str], rest: list[list[str]]) -> bool:
    """A name above numbers, or names above columns that never hold them again.

    >>> _unlike(["remark", "points"], [["good", "3"], ["bad", "1"], ["fair", "2"]])
    True
    >>> _unlike(["fine", "4"], [["good", "3"], ["bad", "1"], ["fair", "2"]])
    False
    """
    rest = [row for row in rest if len(row) == len(first)]
    if not all(NAME.fullmatch(cell) and not is_number(cell) for cell in first if cell) or len(rest) < 2:
        return False
    columns = [[cell.strip() for cell in column if cell.strip()] for column in zip(*rest, strict=True)]
    if any(name and column and all(map(is_number, column)) for name, column in zip(first, columns, strict=True)):
        return True
    few = [set(column) for column in columns if column and len(set(column)) <= len(column) / 10]
    return (
        len(rest) >= ROWS and bool(few) and not any(name in column for name, column in zip(first, columns, strict=True))
    )


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
