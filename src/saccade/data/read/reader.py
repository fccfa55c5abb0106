"""Read data files into examples: `read_examples` all at once, `stream_examples` one by one."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from saccade.data.example import Example, Records, Role
from saccade.data.read import class_folders, idx, plain_text
from saccade.data.read.base import ReadRequest, Record, normalize_column_name
from saccade.data.read.columns import ID_COLUMNS, MISSING, ColumnMap, get_field, map_columns
from saccade.data.read.formats import find_format
from saccade.data.read.group_files import FileGroup, group_files
from saccade.data.read.open_text import SourceFile, check_regular_file, hash_file, open_source, preview_source
from saccade.data.read.parse_values import (
    LIST_PARSERS,
    MAX_WORD_CHARACTERS,
    PARSERS,
    Location,
    is_missing,
    make_word_error,
)
from saccade.data.read.span_annotations import find_word_offsets, spans_to_tags
from saccade.data.read.squad import locate_answers
from saccade.data.read.tag_schemes import convert_tags_to_bio
from saccade.data.streaming.text_chunks import MAX_CHUNK_CHARACTERS, chunk_text
from saccade.errors import DataError

MAX_RECORDS_SAMPLED = 200  # records that are read to map the columns
MAX_IDS_COMPARED = 200_000  # records whose ids are remembered to find duplicates, which bounds the memory
Paths = Sequence[str | Path]


def read_examples(
    paths: Paths,
    roles: Sequence[Role],
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_record: str = "error",
    max_bad_fraction: float = 0.01,
    keep_fields: bool = False,
) -> Records:
    """All records of one split; with `on_bad_record="skip"` bad records are rejected, up to the fraction `max_bad_fraction`."""
    notes: list[str] = []
    rejects: list[DataError] = []
    files = [Path(path) for path in paths]
    before = _stamp_files(files)
    examples = list(
        stream_examples(
            files,
            roles,
            columns=columns,
            on_bad_record=on_bad_record,
            max_bad_fraction=max_bad_fraction,
            notes=notes,
            rejects=rejects,
            keep_fields=keep_fields,
        )
    )
    digest = hash_data(files, columns)
    changed = [path for path, stamp in _stamp_files(files).items() if stamp != before.get(path)]
    if changed:
        raise DataError("the file changed while it was read", file=changed[0], hint="read it again when it is complete")
    return Records(examples, notes, rejects, digest)


def stream_examples(
    paths: Paths,
    roles: Sequence[Role],
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_record: str = "error",
    max_bad_fraction: float = 0.01,
    notes: list[str] | None = None,
    rejects: list[DataError] | None = None,
    preview: bool = False,
    keep_fields: bool = False,
) -> Iterator[Example]:
    """Yield the records one by one, for data larger than memory; notes and rejected records are appended to the lists.

    With `keep_fields`, the examples have the values of all columns, such as the id of a record, and not only those of the roles.
    With `preview`, only the records of the first megabyte of each text file are read, and no file is opened twice for it.
    """
    if on_bad_record not in ("error", "skip"):
        raise ValueError(f"on_bad_record has to be 'error' or 'skip'; got {on_bad_record!r}.")
    if not paths or not roles:
        raise ValueError("At least one file and one role are needed.")
    request = ReadRequest(tuple(roles), columns or {}, [] if notes is None else notes, keep_fields, preview)
    rejects = [] if rejects is None else rejects
    good = 0
    groups = group_files([Path(path) for path in paths], request)
    items = chain.from_iterable(_read_group(group, request) for group in groups)
    for item in convert_tags_to_bio(items, request) if request.has_kind("tags") else items:
        if isinstance(item, Example):
            good += 1
            yield item
        elif on_bad_record == "error":
            raise item
        else:
            rejects.append(item)
    if rejects and len(rejects) > max_bad_fraction * (good + len(rejects)):
        first, total = rejects[0], good + len(rejects)
        raise DataError(
            f"{len(rejects):,} of {total:,} records are bad, more than {max_bad_fraction:.1%}; the first: {first.problem}",
            file=first.file,
            line=first.line,
            column=first.column,
            value=first.value,
            hint=f"{first.hint}; or allow more of them with --max-bad-fraction",
        )
    if not good:
        hint = "give a file with at least one record below the header"
        raise DataError("the file has no records", file=paths[0], line=1, value="", hint=hint)


def _read_group(file_group: FileGroup, request: ReadRequest) -> Iterator[Example | DataError]:
    """The examples of one file, of two paired files, or of a folder."""
    by_role = ColumnMap({role.name: [role.name] for role in request.roles})
    if file_group[0].is_dir():
        for path, record in class_folders.read_class_folders(file_group[0], request):
            yield make_example(path, record, request, by_role)
        return
    source = open_source(file_group[0])
    if len(file_group) == 2:
        other = open_source(file_group[1])
        pairs = (
            idx.read_idx_pair(source, other, request)
            if idx.matches(source)
            else plain_text.read_aligned_lines(source, other, request)
        )
        yield from (make_example(source.path, record, request, by_role) for record in pairs)
        return
    form = find_format(source, request)
    if request.is_preview and form.has_preview:
        source = preview_source(source)
    records = form.read_records(source, request)
    column_map = by_role
    if form.has_columns:
        sample = list(islice(records, MAX_RECORDS_SAMPLED))
        valid = [record for record in sample if isinstance(record, Record)]
        if valid:
            column_map = map_columns(source, request, valid)
            request.notes.append(f"{source.path.name}: {column_map.describe()}.")
        ids = [name for name in (valid[0].fields if valid else ()) if normalize_column_name(name) in ID_COLUMNS]
        records = chain(sample, records)
        records = _count_duplicate_ids(source, ids[0], records, request) if ids else records
    elif form.name == "plain text" and request.has_kind("words"):
        column_map = ColumnMap({}, request.roles[0].name)
    for record in records:
        yield from _chunk_line(make_example(source.path, record, request, column_map), request)


def make_example(
    path: Path, record: Record | DataError, request: ReadRequest, column_map: ColumnMap
) -> Example | DataError:
    """The example of a record, or the error of a bad one."""
    if isinstance(record, DataError):
        return record
    try:
        values = (
            _split_words(path, record, column_map)
            if column_map.text_column
            else _parse_values(path, record, request, column_map)
        )
    except DataError as error:
        return error
    fields = record.fields if request.keep_fields else None
    return Example(values, str(path), record.line, record.character, fields)


def _chunk_line(example: Example | DataError, request: ReadRequest) -> Iterator[Example | DataError]:
    """A line of running text as one example or, if it is very long, as several, to bound the memory of later steps."""
    name = request.roles[0].name
    if isinstance(example, DataError) or not request.has_kind("line") or len(example[name]) <= MAX_CHUNK_CHARACTERS:
        yield example
        return
    text, first = example[name], max(1, example.character)
    for start, end in chunk_text(text):
        values = {**example.values, name: text[start:end]}
        yield replace(example, values=values, character=first + start)


def _parse_values(path: Path, record: Record, request: ReadRequest, column_map: ColumnMap) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for role in request.roles:
        names = column_map.columns[role.name]
        if not role.required and _is_missing(record, names[0], role):
            continue
        raw = [_require_field(path, record, name) for name in names]
        if role.kind != "numbers":
            if not record.ends_line:
                values[role.name] = raw[0]
                continue
            parse = LIST_PARSERS[role.list_policy] if role.list_policy else PARSERS[role.kind]
            values[role.name] = parse(raw[0], Location(path, record.line, names[0], request.notes))
            continue
        if len(raw) == 1 and isinstance(raw[0], list):
            raw, names = raw[0], names * len(raw[0])
        pairs = zip(names, raw, strict=True)
        values[role.name] = [PARSERS["number"](value, Location(path, record.line, name)) for name, value in pairs]
    if request.has_paired_roles:
        _check_agreement(path, record, values, request)
    return values


def _is_missing(record: Record, name: str, role: Role) -> bool:
    value = get_field(record.fields, name)
    return value is MISSING or is_missing(value, role.kind)


def _require_field(path: Path, record: Record, name: str) -> Any:
    value = get_field(record.fields, name)
    if value is MISSING:
        known, hint = ", ".join(map(str, record.fields)), f"add {name!r} to this record"
        raise DataError(
            f"this record has no {name}; it has {known}", file=path, line=record.line, column=name, value="", hint=hint
        )
    return value


def _check_agreement(path: Path, record: Record, values: dict[str, Any], request: ReadRequest) -> None:
    """Check values that have to agree: a tag for each word, and answers that occur in the context."""
    for tags in request.find_roles("tags"):
        words = values[request.find_roles("words")[0].name] if request.has_kind("words") else values[tags.name]
        if len(words) != len(values[tags.name]):
            what = f"{len(words)} words and {len(values[tags.name])} tags"
            value, hint = values[tags.name], "give each word one tag"
            raise DataError(what, file=path, line=record.line, column=tags.name, value=value, hint=hint)
    for role in request.find_roles("answers"):
        location = Location(path, record.line, role.name)
        values[role.name] = locate_answers(values[role.name], str(values.get("context", "")), record.fields, location)


def _split_words(path: Path, record: Record, column_map: ColumnMap) -> dict[str, Any]:
    """The values of a text that is split into words, with tags if it has spans."""
    location = Location(path, record.line, column_map.text_column)
    text = PARSERS["text"](_require_field(path, record, column_map.text_column), location)
    if column_map.spans_column:
        spans = _require_field(path, record, column_map.spans_column)
        values = spans_to_tags(text, spans, Location(path, record.line, column_map.spans_column))
    else:
        offsets = find_word_offsets(text)
        values = {"words": [text[a:b] for a, b in offsets], "text": text, "offsets": offsets}
    longest = max(values["words"], key=len, default="")
    if column_map.spans_column and len(longest) > MAX_WORD_CHARACTERS:
        raise make_word_error(longest, location, f"the word at character {text.find(longest) + 1:,}")
    if not values["words"]:
        raise location.error("the text has no words", text, "fill it in or remove the record")
    return values


def _count_duplicate_ids(
    source: SourceFile, name: str, records: Iterator[Record | DataError], request: ReadRequest
) -> Iterator[Record | DataError]:
    """Add a note on duplicate ids, which are often the result of joining a table with itself."""
    seen: set[str] = set()
    duplicates, first = 0, ""
    for record in records:
        if isinstance(record, Record):
            value = str(record.fields.get(name))
            if value in seen:
                duplicates += 1
                first = first or f"{value} in line {record.line}"
            if len(seen) < MAX_IDS_COMPARED:
                seen.add(value)
        yield record
    if duplicates:
        request.notes.append(f"{source.path.name}: {duplicates:,} duplicate values of {name}, the first is {first}.")


def _list_files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(entry for entry in path.rglob("*") if entry.is_file())
        else:
            yield path


def _stamp_files(paths: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    stamps = {}
    for path in _list_files(paths):
        info = check_regular_file(path).stat()
        stamps[path] = (info.st_size, info.st_mtime_ns)
    return stamps


def hash_data(paths: Paths, columns: Mapping[str, str] | None = None) -> str:
    """The SHA-256 of the bytes of all files, in order, and of the column names."""
    digest = hashlib.sha256(json.dumps(sorted((columns or {}).items())).encode())
    for path in _list_files([Path(path) for path in paths]):
        digest.update(hash_file(path))
    return digest.hexdigest()


def write_rejects(rejects: Sequence[DataError], path: str | Path) -> None:
    """Write one line of JSON for each bad record: its location, the problem and a hint."""
    fields = ("file", "line", "column", "value", "problem", "hint")
    with Path(path).open("w", encoding="utf-8") as file:
        for error in rejects:
            row = {name: getattr(error, name) for name in fields}
            file.write(json.dumps(row, ensure_ascii=False, default=repr) + "\n")
