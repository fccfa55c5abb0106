"""Header detection: whether the first line of a table holds column names, by known names or by comparison with the rows."""

import re
from collections.abc import Callable, Sequence
from statistics import median_low

from saccade.data.read.base import ReadRequest, normalize_column_name
from saccade.data.read.open_text import SourceFile
from saccade.errors import DataError

COLUMN_NAME = re.compile(r"[#_]?[\w .#()/-]{1,40}")  # without sentence punctuation
MAX_NAME_CHARACTERS = 100  # surveys use the question as a column name
MIN_ROWS_TO_COMPARE = 20  # with fewer rows, values that occur only in the first line are no evidence of a header
MISSING_VALUES = {
    "n/a",
    "na",
    "none",
    "null",
    "missing",
    "unknown",
    "-",
    "--",
    "?",
}  # cells that are never column names


def find_header(source: SourceFile, request: ReadRequest, name: str, rows: list[list[str]]) -> list[str] | None:
    """The column names, or None if the first line is a record; the decision is added to the notes."""
    first = [cell.strip().strip("\ufeff") for cell in rows[0]]
    where = f"{source.path.name}: {name}"
    known = [
        cell for cell in first if normalize_column_name(cell) in request.collect_column_names() and not cell.isdigit()
    ]
    if known and all(len(cell) < 64 for cell in first):
        request.notes.append(f"{where}, the first line is a header (it has {known[0]!r}).")
    elif _differs_from_rows(first, rows[1:]):
        request.notes.append(
            f"{where}, the first line is taken for a header because it differs from the lines below it."
        )
    else:
        request.notes.append(f"{where} without a header: the first line is a record.")
        return None
    _refuse_duplicates(source, first)
    return [cell or str(i + 1) for i, cell in enumerate(first)]


def _refuse_duplicates(source: SourceFile, names: list[str]) -> None:
    seen: dict[str, int] = {}
    for i, name in enumerate(names):
        if name and name in seen:
            what = f"duplicate column name in the header, in columns {seen[name] + 1} and {i + 1}"
            hint = "rename one of them"
            raise DataError(what, file=source.path, line=1, column=str(i + 1), value=name, hint=hint)
        seen[name] = i


def _differs_from_rows(first: Sequence[str], rest: list[list[str]]) -> bool:
    """Whether the first row differs from the rest: words above numbers, or names above labels or much longer texts.

    >>> _differs_from_rows(["remark", "points"], [["good", "3"], ["bad", "1"], ["fair", "2"]])
    True
    >>> _differs_from_rows(["fine", "4"], [["good", "3"], ["bad", "1"], ["fair", "2"]])
    False
    >>> _differs_from_rows(["What did you think?", "When?"], [["good", "3/5/2019"], ["bad", "4/5/2019"]])
    True
    """
    rest = [row for row in rest if len(row) == len(first)]
    if len(rest) < 2:
        return False
    columns = [[cell.strip() for cell in column if cell.strip()] for column in zip(*rest, strict=True)]
    pairs = [(name, column) for name, column in zip(first, columns, strict=True) if name]
    if not all(_can_be_name(name, column) for name, column in pairs):
        return False
    if any(column and all(map(is_number_like, column)) for _, column in pairs):
        return True
    if len(rest) < MIN_ROWS_TO_COMPARE or not all(
        COLUMN_NAME.fullmatch(name) or _is_much_shorter(name, median_low, column) for name, column in pairs
    ):
        return False
    if any(column and len(set(column)) <= len(column) / 10 for _, column in pairs):
        return True
    return len(pairs) > 1 and all(
        COLUMN_NAME.fullmatch(name) and _is_much_shorter(name, min, column) for name, column in pairs
    )


def _can_be_name(cell: str, column: list[str]) -> bool:
    """Whether a cell can be a column name: short, on one line, no number, and not a value of its column."""
    is_short = len(cell) <= MAX_NAME_CHARACTERS and "\n" not in cell and cell.lower() not in MISSING_VALUES
    return is_short and not is_number_like(cell) and cell not in column


def _is_much_shorter(cell: str, statistic: Callable[[list[int]], int], column: list[str]) -> bool:
    """Whether a statistic of the text lengths of a column, such as the minimum, is more than twice the length of a cell."""
    return bool(column) and statistic([len(text) for text in column]) > 2 * len(cell)


def is_number_like(text: str) -> bool:
    """Whether a text is a number, date, time, price or percentage: more digits than letters, not beginning with a letter.

    >>> [is_number_like(text) for text in ("3", "-1e5", "12 Jan 2020", "2020-01-05T10:00Z", "£3.50", "80 %", "4/5", "nan")]
    [True, True, True, True, True, True, True, True]
    >>> [is_number_like(text) for text in ("x10", "Stars (1-5)", "3 of the best films", "one", "")]
    [False, False, False, False, False]
    """
    if is_number(text):
        return True
    digits, letters = sum(map(str.isdigit, text)), sum(map(str.isalpha, text))
    return digits > letters and not text[:1].isalpha()


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
