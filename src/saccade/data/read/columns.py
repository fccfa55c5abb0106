"""Map the columns of a table to roles: as named by the caller, by known column names, or by content."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from shlex import quote
from typing import Any

from saccade.data.example import Role
from saccade.data.read.base import SPLIT_TEXT_COLUMNS, ReadRequest, Record, normalize_column_name
from saccade.data.read.header import is_number
from saccade.data.read.media_files import MEDIA, find_media_kind
from saccade.data.read.open_text import SourceFile
from saccade.data.read.translation_json import find_other_column, find_text_pair, holds_objects
from saccade.errors import DataError

PAIR_ROLES = ("source", "target")
SPAN_COLUMNS = ("spans", "entities", "labels", "label", "annotations")
MISSING = object()
ID_COLUMNS = ("id", "guid", "uid", "idx", "index", "example_id", "record_id", "pair_id", "pairid")


@dataclass(frozen=True)
class ColumnMap:
    """The columns of each role (several only for numbers); or the text, and its spans, that is split into words."""

    columns: Mapping[str, list[str]]
    text_column: str = ""
    spans_column: str = ""

    def describe(self) -> str:
        parts = [f"{role} is {_format_columns(names)}" for role, names in self.columns.items()]
        if self.text_column:
            tags = f", tags from {self.spans_column}" if self.spans_column else ""
            parts.append(f"words are split from column {self.text_column}{tags}")
        return "; ".join(parts)


def _format_columns(names: list[str]) -> str:
    if len(names) == 1:
        return f"column {names[0]}"
    return f"columns {', '.join(names if len(names) < 8 else [*names[:3], '...', names[-1]])}"


def parse_columns(text: str) -> dict[str, str]:
    """Parse the value of --columns: the column of each role, by name or number.

    >>> parse_columns("text=review,label=2")
    {'text': 'review', 'label': '2'}
    >>> parse_columns("x=1,2,3,y=4")
    {'x': '1,2,3', 'y': '4'}
    """
    columns: dict[str, str] = {}
    role = ""
    for part in filter(None, text.split(",")):
        if "=" in part:
            role, _, name = part.partition("=")
            role = role.strip()
            columns[role] = name.strip()
        elif role:
            columns[role] += f",{part.strip()}"
        if not role or not columns[role]:
            hint = "write ROLE=COLUMN, for example --columns text=review,label=stars or text=1,label=2"
            raise DataError("cannot parse --columns", value=text, hint=hint)
    return columns


def get_field(fields: Mapping[str, Any], name: str) -> Any:
    """A field by its name, or a nested field by a dotted path; MISSING if there is none."""
    if name in fields:
        return fields[name]
    value: Any = fields
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return MISSING
        value = value[part]
    return value


def find_id(fields: Mapping[str, Any] | None) -> Any:
    """The id of a record, from a column with one of the usual names; None if it has none.

    >>> find_id({"Example-ID": "a7", "text": "good"}), find_id({"text": "good"})
    ('a7', None)
    """
    return next((value for name, value in (fields or {}).items() if normalize_column_name(name) in ID_COLUMNS), None)


def map_columns(source: SourceFile, request: ReadRequest, records: Sequence[Record]) -> ColumnMap:
    """Choose the columns of every role by the first records of a file."""
    names = _list_column_names(records)
    numbered = bool(names) and all(name == str(i + 1) for i, name in enumerate(names))
    _check_roles(source, request)
    if numbered and len(names) < sum(not role.shares_column for role in request.roles):
        wanted = " and ".join(role.name for role in request.roles)
        what = f"{len(names)} columns are too few for {wanted}"
        hint = "put a tab or a comma between the cells of a row"
        first = records[0]
        raise DataError(what, file=source.path, line=first.line, column="1", value=first.fields["1"], hint=hint)
    chosen: dict[str, list[str]] = {}
    for role in request.roles:
        if role.name in request.columns:
            parts = request.columns[role.name].split(",")
            chosen[role.name] = [_resolve_column(source, role, part, records) for part in parts]
    for role in request.roles:
        if role.name not in chosen and not numbered:
            candidates = [name for name in names if role.kind != "text" or not holds_objects(name, records)]
            column = _find_by_name(role, candidates, _collect_used_columns(request, chosen))
            if column:
                chosen[role.name] = [column]
    _complete_pair(request, chosen, records)
    text_map = _map_text_column(request, names, chosen, records)
    if text_map is not None:
        return text_map
    unmapped = [role for role in request.roles if role.name not in chosen]
    if any(role.kind == "numbers" for role in unmapped) or numbered:
        _map_by_content(
            unmapped, names, chosen, records, guess_all=numbered, used_columns=_collect_used_columns(request, chosen)
        )
    elif unmapped and len(names) == len(request.roles) == 1:
        chosen[unmapped[0].name] = names
    for role in unmapped:
        if role.name not in chosen:
            raise _make_unknown_column_error(
                source,
                role,
                role.column_names,
                records,
                used_columns=[name for used in chosen.values() for name in used],
            )
    return ColumnMap({role.name: chosen[role.name] for role in request.roles})


def _complete_pair(request: ReadRequest, role_columns: dict[str, list[str]], records: Sequence[Record]) -> None:
    """Where an object holds two texts and the role of one is known, the other text gets the other role.

    A target that was only recognized by its name does not decide, since many languages are known as target columns.
    """
    known = [name for name in PAIR_ROLES if name in role_columns]
    if known not in (["source"], ["target"]) or not {role.name for role in request.roles} >= set(PAIR_ROLES):
        return
    other = find_other_column(find_text_pair(records), role_columns[known[0]][0])
    if other is not None and ("source" in role_columns or "target" in request.columns):
        role_columns[PAIR_ROLES[1 - PAIR_ROLES.index(known[0])]] = [other]


def _list_column_names(records: Sequence[Record]) -> list[str]:
    names: dict[str, None] = {}
    for record in records:
        for name, value in record.fields.items():
            if isinstance(value, Mapping):
                names |= dict.fromkeys(f"{name}.{inner}" for inner in value)
            names[name] = None
    return list(names)


def _check_roles(source: SourceFile, request: ReadRequest) -> None:
    for name in request.columns:
        if name not in {role.name for role in request.roles}:
            wanted = ", ".join(role.name for role in request.roles)
            hint = f"name one of {wanted}: --columns {request.roles[0].name}=COLUMN"
            raise DataError(
                f"--columns has an unknown role; the roles of this task are {wanted}", value=name, hint=hint
            )


def _resolve_column(source: SourceFile, role: Role, column: str, records: Sequence[Record]) -> str:
    """The column that the caller named, by its name or else by its number."""
    names = _list_column_names(records)
    if column in names:
        return column
    near = [name for name in names if normalize_column_name(name) == normalize_column_name(column)]
    if near:
        return near[0]
    if column.isdecimal() and 1 <= int(column) <= len(names):
        return names[int(column) - 1]
    raise _make_unknown_column_error(source, role, (column,), records)


def _make_unknown_column_error(
    source: SourceFile,
    role: Role,
    expected_names: Sequence[str],
    records: Sequence[Record],
    *,
    used_columns: Sequence[str] = (),
) -> DataError:
    names = _list_column_names(records)
    plain = {normalize_column_name(name): name for name in names}
    matches = [get_close_matches(normalize_column_name(name), plain, n=1, cutoff=0.7) for name in expected_names]
    similar = [plain[match] for found in matches for match in found]
    similar += [name for name in names if set(normalize_column_name(name).split("_")) & set(expected_names)]
    guess = (
        similar[0] if similar else _guess_column(role, [name for name in names if name not in used_columns], records)
    )
    known = ", ".join(names if len(names) <= 12 else [*names[:12], f"and {len(names) - 12:,} more"])
    expected = ", ".join(list(expected_names)[:6]) or role.name
    what = f"no column for {role.name}: looked for {expected}; there are {known or 'none'}"
    written = str(names.index(guess) + 1) if "," in guess else guess  # in --columns, a comma ends a name
    hint = f"name it: --columns {quote(f'{role.name}={written}')}" + (" (the nearest)" if similar else "")
    pair = find_text_pair(records)
    if role.name in PAIR_ROLES and pair is not None and not similar:
        hint = f"name both: --columns source={pair[0]},target={pair[1]}, or the other way round"
    return DataError(what, file=source.path, line=1, hint=hint)


def _guess_column(role: Role, names: list[str], records: Sequence[Record]) -> str:
    """The column to suggest where no name is similar: for a text the longest, for a label that with the fewest values."""
    cells = _collect_column_values(names, records)
    textual = [name for name in names if any(isinstance(record.fields.get(name), str) for record in records)]
    textual = [name for name in textual if not all(map(is_number, filter(None, cells[name])))]
    varying = [name for name in names if len(set(cells[name])) > 1]
    if role.kind in ("text", "texts", "line", "words") and textual:
        return _find_longest_column(textual, cells)
    if role.kind in ("label", "labels", "tags") and varying:
        return _find_least_varied_column(varying, cells)
    return names[-1] if names else "NAME"


def _collect_column_values(names: list[str], records: Sequence[Record]) -> dict[str, list[str]]:
    return {name: [str(record.fields.get(name, "")).strip() for record in records] for name in names}


def _find_longest_column(names: Sequence[str], cells: Mapping[str, list[str]]) -> str:
    return max(names, key=lambda name: sum(map(len, cells[name])))


def _find_most_varied_column(names: Sequence[str], cells: Mapping[str, list[str]]) -> str:
    """The column with the most distinct words, which is not that of the tags, however long they are."""
    return max(names, key=lambda name: len({word for cell in cells[name] for word in cell.split()}))


def _find_least_varied_column(names: Sequence[str], cells: Mapping[str, list[str]]) -> str:
    """The column with the fewest distinct values, short ones preferred."""
    return min(names, key=lambda name: len(set(cells[name])) * (1 + sum(map(len, cells[name]))))


def _find_by_name(role: Role, names: list[str], used_columns: set[str]) -> str | None:
    """The column of a role by its known names, as the whole name or as the last part of a dotted path."""
    free = [name for name in names if name not in used_columns]
    for known in (role.name, *role.column_names):
        for name in free:
            if normalize_column_name(name) == known:
                return name
    for known in (role.name, *role.column_names):
        ends = [name for name in free if "." in name and normalize_column_name(name.rsplit(".", 1)[1]) == known]
        if len(ends) == 1:
            return ends[0]
    return None


def _map_text_column(
    request: ReadRequest, names: list[str], role_columns: dict[str, list[str]], records: Sequence[Record]
) -> ColumnMap | None:
    """The text to split into words, where there is no column of words, and the spans that are turned into tags."""
    words = next(iter(request.find_roles("words")), None)
    if words is None or words.name in role_columns:
        return None
    text = next((name for name in names if normalize_column_name(name) in SPLIT_TEXT_COLUMNS), "")
    if not text:
        return None
    if not request.has_kind("tags"):
        return ColumnMap({}, text)
    spans = [
        name for name in SPAN_COLUMNS if name in names and any(isinstance(r.fields.get(name), list) for r in records)
    ]
    return ColumnMap({}, text, spans[0]) if spans else None


def _collect_used_columns(request: ReadRequest, role_columns: Mapping[str, list[str]]) -> set[str]:
    """The columns that cannot be those of another role."""
    return {name for role in request.roles if not role.shares_column for name in role_columns.get(role.name, ())}


def _map_by_content(
    unmapped_roles: list[Role],
    names: list[str],
    role_columns: dict[str, list[str]],
    records: Sequence[Record],
    *,
    guess_all: bool,
    used_columns: set[str],
) -> None:
    """Map the remaining roles by the content of the columns; without `guess_all`, only the role of all unused numbers."""
    cells = _collect_column_values(names, records)
    free = [name for name in names if name not in used_columns and sum(map(bool, cells[name])) > len(records) / 10]
    numeric = [
        name
        for name in free
        if all(map(is_number, filter(None, cells[name]))) and normalize_column_name(name) not in ID_COLUMNS
    ]
    text_role_count = sum(role.kind in ("text", "line", "words") for role in unmapped_roles)
    for role in sorted(
        unmapped_roles, key=lambda role: KIND_ORDER.index(role.kind) if role.kind in KIND_ORDER else len(KIND_ORDER)
    ):
        columns: list[str] = []
        if role.kind in ("text", "line", "words"):
            free = [name for name in free if not _names_files(cells[name])]
        if role.kind == "numbers":
            columns = [name for name in numeric if name in free]
        elif not guess_all:
            continue
        elif role.kind == "number":
            columns = [name for name in numeric if name in free][-1:]
        elif role.kind in MEDIA:
            columns = [name for name in free if any(find_media_kind(cell) == role.kind for cell in cells[name])][:1]
        elif role.kind in ("label", "labels") and len(free) > text_role_count:
            columns = [_find_least_varied_column(free, cells)]
        elif text_role_count == 1 and free:
            columns = [
                (
                    _find_most_varied_column
                    if any(other.kind == "tags" for other in unmapped_roles)
                    else _find_longest_column
                )(free, cells)
            ]
        elif role.kind in ("text", "line"):
            columns = [name for name in free if name not in numeric][:1] or free[:1]
        if columns:
            role_columns[role.name] = columns
            free = [name for name in free if name not in columns]


def _names_files(cells: Sequence[str]) -> bool:
    """Whether nearly all values of a column, of which the first may be its name, are names of images or recordings."""
    return sum(find_media_kind(cell) is not None for cell in cells) >= max(1, 0.9 * (len(cells) - 1))


KIND_ORDER = (*MEDIA, "number", "label", "labels", "numbers", "text", "line", "words")  # the most distinctive first
