"""What a reader is asked for and what it gives: raw fields by column, each record with its line."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from saccade.data.example import Role
from saccade.data.read.open_text import SourceFile
from saccade.errors import DataError

TEXT_KINDS = ("text", "line")
TRAILING_REMARK = re.compile(r"(?<=\w)\s*\([^()]*\)\s*$")


class Record(NamedTuple):
    """One record as it stands in the file: a value for each column."""

    line: int
    fields: Mapping[str, Any]
    character: int = 0  # where in the line a part of a very long one begins, from 1; 0: the record is whole
    ends_line: bool = True  # otherwise the line goes on in the next record


@dataclass
class ReadRequest:
    """The roles to fill, the columns that the caller named for them, and what the readers say aloud."""

    roles: tuple[Role, ...]
    columns: Mapping[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.has_paired_roles = self.has_kind("tags", "answers")  # what one role says must fit another

    def has_kind(self, *kinds: str) -> bool:
        return any(role.kind in kinds for role in self.roles)

    def find_roles(self, *kinds: str) -> list[Role]:
        return [role for role in self.roles if role.kind in kinds]

    def collect_column_names(self) -> set[str]:
        """Every column name that would be recognised, as `plain_name` writes it."""
        known = {normalize_column_name(name) for role in self.roles for name in (role.name, *role.column_names)}
        return known | {normalize_column_name(part) for named in self.columns.values() for part in named.split(",")}


@dataclass(frozen=True)
class Format:
    """One kind of file: how to tell it by its content, and how to read it.

    A record error is yielded, so that the caller may go on; an error of the whole file is raised.
    """

    name: str
    matches: Callable[[SourceFile, ReadRequest], bool]
    read_records: Callable[[SourceFile, ReadRequest], Iterator[Record | DataError]]
    has_columns: bool = True  # has columns to choose from; otherwise the fields are the roles already


def normalize_column_name(name: str) -> str:
    """Column names compared without case, spaces and dashes, and without a remark in brackets behind them.

    >>> normalize_column_name(" File-Name "), normalize_column_name("Stars (1-5)")
    ('file_name', 'stars')
    """
    return TRAILING_REMARK.sub("", name).strip().lower().replace(" ", "_").replace("-", "_")
