"""The errors that a user can cause: one class for each exit code of the command line, each with its HTTP status.

    try:
        saccade.train("label", data="reviews.csv")
    except saccade.DataError as error:           # also a ValueError, as a script would expect
        print(error.file, error.line, error)

Whatever else reaches the top is a bug in saccade: exit code 1, with its traceback.
"""

from typing import ClassVar


class SaccadeError(Exception):
    """An error whose message is meant for the person who caused it: what came, where, what is needed and what to do."""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500


class UsageError(SaccadeError, ValueError):
    """A call that cannot be meant: an unknown name, a setting out of range, settings that contradict each other."""

    exit_code = 2
    http_status = 400


class DataError(SaccadeError, ValueError):
    """A record, a file or a text that cannot be used: what came, where it stands, what is needed and what to do.

    >>> print(DataError("a label is missing", file="reviews.tsv", line=7, column="stars", value="", hint="fill it in"))
    reviews.tsv:7: a label is missing; column stars is ''. Fill it in.
    """

    exit_code = 3
    http_status = 422

    def __init__(
        self, problem: str, *, file: object = "", line: int = 0, column: str = "", value: object = None, hint: str = ""
    ):
        self.problem, self.file, self.line, self.column, self.value, self.hint = (
            problem,
            str(file),
            line,
            column,
            value,
            hint,
        )
        where = ":".join(part for part in (self.file, str(line) if line else "") if part)
        shown = repr(value if not isinstance(value, str) or len(value) < 60 else value[:57] + "...")
        came = f"; column {column} is {shown}" if column else f"; got {shown}" if value is not None else ""
        text = f"{where}: " if where else ""
        super().__init__(f"{text}{problem}{came}.{' ' + hint[0].upper() + hint[1:] + '.' if hint else ''}")


class ModelError(SaccadeError, ValueError):
    """A model, a run or a tokenizer that cannot be read, or that cannot do what is asked of it."""

    exit_code = 4
    http_status = 422


class ResourceError(SaccadeError, RuntimeError):
    """The machine cannot do it now: no room on the disk, too little memory, a directory or a device that is in use."""

    exit_code = 5
    http_status = 503


class DivergedError(SaccadeError, RuntimeError):
    """A loss or a gradient that is not finite, so that training cannot continue."""

    exit_code = 6
    http_status = 500
