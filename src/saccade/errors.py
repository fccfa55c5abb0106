"""Exceptions that a user can cause: one class for each exit code of the command line, each with its HTTP status.

    try:
        saccade.train("label", data="reviews.csv")
    except saccade.DataError as error:           # also a ValueError, as a script would expect
        print(error.file, error.line, error)

Any other exception that is not caught is a bug in saccade: exit code 1, with its traceback.
"""

from typing import ClassVar


class SaccadeError(Exception):
    """Base class of errors with a message for the user: what was given, where, what is expected and what to do."""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500


class UsageError(SaccadeError, ValueError):
    """Invalid usage: an unknown name, a setting out of range, settings that contradict each other."""

    exit_code = 2
    http_status = 400


class KeywordError(UsageError, TypeError):
    """A function was called with a keyword that it does not have; also a TypeError, as Python itself would raise."""


class DataError(SaccadeError, ValueError):
    """Invalid data: a record, file or text that cannot be used, with its file, line, column and value and a hint.

    >>> print(DataError("a label is missing", file="reviews.tsv", line=7, column="stars", value="", hint="fill it in"))
    reviews.tsv:7: a label is missing; column stars is ''. Fill it in.
    """

    problem: str
    file: str
    line: int
    column: str
    value: object
    hint: str

    exit_code = 3
    http_status = 422

    def __init__(
        self, problem: str, *, file: object = "", line: int = 0, column: str = "", value: object = None, hint: str = ""
    ):
        self.problem, self.file, self.line = problem, str(file), line
        self.column, self.value, self.hint = column, value, hint
        location = ":".join(part for part in (self.file, str(line) if line else "") if part)
        excerpt = repr(value if not isinstance(value, str) or len(value) < 60 else value[:57] + "...")
        got = f"; column {column} is {excerpt}" if column else f"; got {excerpt}" if value is not None else ""
        prefix = f"{location}: " if location else ""
        super().__init__(f"{prefix}{problem}{got}.{' ' + hint[0].upper() + hint[1:] + '.' if hint else ''}")


class ModelError(SaccadeError, ValueError):
    """A model, run or tokenizer that cannot be read, or that does not support the requested operation."""

    exit_code = 4
    http_status = 422


class ResourceError(SaccadeError, RuntimeError):
    """Insufficient resources: a full disk, too little memory, a directory or a device that is in use."""

    exit_code = 5
    http_status = 503


class DivergedError(SaccadeError, RuntimeError):
    """Training diverged: the loss or a gradient is not finite."""

    exit_code = 6
    http_status = 500
