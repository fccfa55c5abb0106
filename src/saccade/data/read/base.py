"""The interface of data readers: a `Format` turns a file and a `ReadRequest` into records, with fields by column."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from saccade.data.example import Role
from saccade.data.read.open_text import SourceFile
from saccade.errors import DataError

TEXT_KINDS = ("text", "line")
SPLIT_TEXT_COLUMNS = ("text", "sentence", "content", "tweet")  # columns of a text that is split into words
TRAILING_REMARK = re.compile(r"(?<=\w)\s*\([^()]*\)\s*$")


class Record(NamedTuple):
    """One unparsed record of a file: a value for each column."""

    line: int
    fields: Mapping[str, Any]
    character: int = 0  # for a chunk of a very long line, its position in the line from 1; 0 for a whole record
    ends_line: bool = True  # False if the line continues in the next record


@dataclass
class ReadRequest:
    """The roles to read, the columns that the caller named for them, and the notes that readers add for the user."""

    roles: tuple[Role, ...]
    columns: Mapping[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    keep_fields: bool = False  # examples keep the values of all columns, not only those of the roles
    is_preview: bool = False  # only the first megabyte of each text file is read, to infer the task

    def __post_init__(self) -> None:
        self.has_paired_roles: bool = self.has_kind(
            "tags", "answers"
        )  # values that have to agree with those of another role

    def has_kind(self, *kinds: str) -> bool:
        return any(role.kind in kinds for role in self.roles)

    def find_roles(self, *kinds: str) -> list[Role]:
        return [role for role in self.roles if role.kind in kinds]

    def collect_column_names(self) -> set[str]:
        """All column names that are recognized, as `normalize_column_name` writes them."""
        known = {normalize_column_name(name) for role in self.roles for name in (role.name, *role.column_names)}
        if self.has_kind("words") and not self.has_kind("tags"):
            known |= set(SPLIT_TEXT_COLUMNS)
        return known | {normalize_column_name(name) for names in self.columns.values() for name in names.split(",")}


@dataclass(frozen=True)
class Format:
    """A file format: how to detect it by its content, and how to read it.

    The error of a single record is yielded, so that the caller can continue; an error of the whole file is raised.
    """

    name: str
    matches: Callable[[SourceFile, ReadRequest], bool]
    read_records: Callable[[SourceFile, ReadRequest], Iterator[Record | DataError]]
    has_columns: bool = True  # False if the fields of a record are named by role already
    has_preview: bool = True  # whether the beginning of a file can be read by itself


def normalize_column_name(name: str) -> str:
    """Normalize a column name for comparison: lowercase, underscores for spaces and dashes, no parentheses at the end.

    >>> normalize_column_name(" File-Name "), normalize_column_name("Stars (1-5)")
    ('file_name', 'stars')
    """
    return TRAILING_REMARK.sub("", name).strip().lower().replace(" ", "_").replace("-", "_")
