"""`read` and `stream`: files to examples, all at once or one by one."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from saccade.data.example import Example, Records, Role
from saccade.data.read import folder, idx, plain_text
from saccade.data.read.base import ReadRequest, Record, normalize_column_name
from saccade.data.read.columns import ID_COLUMNS, MISSING, ColumnMap, get_field, map_columns
from saccade.data.read.formats import find_format
from saccade.data.read.group_files import FileGroup, group_files
from saccade.data.read.open_text import SourceFile, check_regular_file, hash_file, open_source
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

MAX_RECORDS_SAMPLED = 200  # records looked at to choose the columns
Paths = Sequence[str | Path]


def read_examples(
    paths: Paths,
    roles: Sequence[Role],
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_record: str = "error",
    max_bad_fraction: float = 0.01,
) -> Records:
    """All records of one split; with `on_bad="skip"` the bad ones are kept apart, up to a share of `max_bad`."""
    said: list[str] = []
    bad: list[DataError] = []
    files = [Path(path) for path in paths]
    before = _stamp_files(files)
    found = list(
        stream_examples(
            files,
            roles,
            columns=columns,
            on_bad_record=on_bad_record,
            max_bad_fraction=max_bad_fraction,
            notes=said,
            rejects=bad,
        )
    )
    mark = hash_data(files, columns)
    changed = [path for path, stamp in _stamp_files(files).items() if stamp != before.get(path)]
    if changed:
        raise DataError("the file changed while it was read", file=changed[0], hint="read it again when it is written")
    return Records(found, said, bad, mark)


def stream_examples(
    paths: Paths,
    roles: Sequence[Role],
    *,
    columns: Mapping[str, str] | None = None,
    on_bad_record: str = "error",
    max_bad_fraction: float = 0.01,
    notes: list[str] | None = None,
    rejects: list[DataError] | None = None,
) -> Iterator[Example]:
    """The same one by one, for text larger than memory; what is said and what is bad go into the lists handed in."""
    if on_bad_record not in ("error", "skip"):
        raise ValueError(f"A bad record is an 'error' or a 'skip'; got {on_bad_record!r}.")
    if not paths or not roles:
        raise ValueError("At least one file and one role are needed.")
    ask = ReadRequest(tuple(roles), columns or {}, [] if notes is None else notes)
    rejects = [] if rejects is None else rejects
    good = 0
    found = chain.from_iterable(_read_group(unit, ask) for unit in group_files([Path(path) for path in paths], ask))
    for item in convert_tags_to_bio(found, ask) if ask.has_kind("tags") else found:
        if isinstance(item, Example):
            good += 1
            yield item
        elif on_bad_record == "error":
            raise item
        else:
            rejects.append(item)
    if rejects and len(rejects) > max_bad_fraction * (good + len(rejects)):
        what = f"{len(rejects):,} of {good + len(rejects):,} records are bad, more than {max_bad_fraction:.1%}; the first: {rejects[0].problem}"
        hint = f"{rejects[0].hint}; or allow more of them with --max-bad-fraction"
        raise DataError(
            what,
            file=rejects[0].file,
            line=rejects[0].line,
            column=rejects[0].column,
            value=rejects[0].value,
            hint=hint,
        )
    if not good:
        hint = "give a file with at least one record below the header"
        raise DataError("there are no records", file=paths[0], line=1, value="", hint=hint)


def _read_group(file_group: FileGroup, request: ReadRequest) -> Iterator[Example | DataError]:
    """The examples of one file, pair or folder."""
    direct = ColumnMap({role.name: [role.name] for role in request.roles})
    if file_group[0].is_dir():
        for path, record in folder.read_class_folders(file_group[0], request):
            yield make_example(path, record, request, direct)
        return
    source = open_source(file_group[0])
    if len(file_group) == 2:
        other = open_source(file_group[1])
        pairs = (
            idx.read_idx_pair(source, other, request)
            if idx.matches(source)
            else plain_text.read_aligned_lines(source, other, request)
        )
        yield from (make_example(source.path, record, request, direct) for record in pairs)
        return
    form = find_format(source, request)
    records = form.read_records(source, request)
    choice = direct
    if form.has_columns:
        first = list(islice(records, MAX_RECORDS_SAMPLED))
        good = [record for record in first if isinstance(record, Record)]
        if good:
            choice = map_columns(source, request, good)
            request.notes.append(f"{source.path.name}: {choice.describe()}.")
        ids = [name for name in (good[0].fields if good else ()) if normalize_column_name(name) in ID_COLUMNS]
        records = chain(first, records)
        records = _count_duplicate_ids(source, ids[0], records, request) if ids else records
    elif form.name == "plain text" and request.has_kind("words"):
        choice = ColumnMap({}, request.roles[0].name)
    for record in records:
        yield from _chunk_line(make_example(source.path, record, request, choice), request)


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
    return Example(values, str(path), record.line, record.character)


def _chunk_line(example: Example | DataError, request: ReadRequest) -> Iterator[Example | DataError]:
    """A line of running text as one example or, where it is very long, as several, so that no step has to hold it whole."""
    name = request.roles[0].name
    if isinstance(example, DataError) or not request.has_kind("line") or len(example[name]) <= MAX_CHUNK_CHARACTERS:
        yield example
        return
    text, first = example[name], max(1, example.character)
    for start, end in chunk_text(text):
        values = {**example.values, name: text[start:end]}
        yield Example(values, example.file, example.line, first + start)


def _parse_values(path: Path, record: Record, request: ReadRequest, column_map: ColumnMap) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for role in request.roles:
        names = column_map.columns[role.name]
        if not role.required and _is_missing(record, names[0], role):
            continue
        found = [_require_field(path, record, name) for name in names]
        if role.kind != "numbers":
            if not record.ends_line:
                values[role.name] = found[0]
                continue
            parse = LIST_PARSERS[role.list_policy] if role.list_policy else PARSERS[role.kind]
            values[role.name] = parse(found[0], Location(path, record.line, names[0], request.notes))
            continue
        if len(found) == 1 and isinstance(found[0], list):
            found, names = found[0], names * len(found[0])
        pairs = zip(names, found, strict=True)
        values[role.name] = [PARSERS["number"](value, Location(path, record.line, name)) for name, value in pairs]
    if request.has_paired_roles:
        _check_agreement(path, record, values, request)
    return values


def _is_missing(record: Record, name: str, role: Role) -> bool:
    found = get_field(record.fields, name)
    return found is MISSING or is_missing(found, role.kind)


def _require_field(path: Path, record: Record, name: str) -> Any:
    found = get_field(record.fields, name)
    if found is MISSING:
        there, hint = ", ".join(map(str, record.fields)), f"add {name!r} to this record"
        raise DataError(
            f"this record has no {name}; it has {there}", file=path, line=record.line, column=name, value="", hint=hint
        )
    return found


def _check_agreement(path: Path, record: Record, values: dict[str, Any], request: ReadRequest) -> None:
    """What one role says must fit another: a tag for each word, an answer where it is said to be."""
    for tags in request.find_roles("tags"):
        words = values[request.find_roles("words")[0].name] if request.has_kind("words") else values[tags.name]
        if len(words) != len(values[tags.name]):
            what = f"{len(words)} words and {len(values[tags.name])} tags"
            value, hint = values[tags.name], "give each word one tag"
            raise DataError(what, file=path, line=record.line, column=tags.name, value=value, hint=hint)
    for role in request.find_roles("answers"):
        place = Location(path, record.line, role.name)
        values[role.name] = locate_answers(values[role.name], str(values.get("context", "")), record.fields, place)


def _split_words(path: Path, record: Record, column_map: ColumnMap) -> dict[str, Any]:
    text = PARSERS["text"](
        _require_field(path, record, column_map.text_column), Location(path, record.line, column_map.text_column)
    )
    if column_map.spans_column:
        place = Location(path, record.line, column_map.spans_column)
        found = spans_to_tags(text, _require_field(path, record, column_map.spans_column), place)
    else:
        offsets = find_word_offsets(text)
        found = {"words": [text[a:b] for a, b in offsets], "text": text, "offsets": offsets}
    longest = max(found["words"], key=len, default="")
    if column_map.spans_column and len(longest) > MAX_WORD_CHARACTERS:
        raise make_word_error(
            longest,
            Location(path, record.line, column_map.text_column),
            f"the word at character {text.find(longest) + 1:,}",
        )
    if not found["words"]:
        raise Location(path, record.line, column_map.text_column).error(
            "no word in the text", text, "fill it in or remove the record"
        )
    return found


def _count_duplicate_ids(
    source: SourceFile, name: str, records: Iterator[Record | DataError], request: ReadRequest
) -> Iterator[Record | DataError]:
    """Say aloud how many ids stand twice: often a file that was joined with itself."""
    seen: set[str] = set()
    twice, first = 0, ""
    for record in records:
        if isinstance(record, Record):
            value = str(record.fields.get(name))
            if value in seen:
                twice += 1
                first = first or f"{value} in line {record.line}"
            seen.add(value)
        yield record
    if twice:
        request.notes.append(
            f"{source.path.name}: {twice:,} values of {name} stand more than once, the first is {first}."
        )


def _list_files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(entry for entry in path.rglob("*") if entry.is_file())
        else:
            yield path


def _stamp_files(paths: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    found = {}
    for path in _list_files(paths):
        info = check_regular_file(path).stat()
        found[path] = (info.st_size, info.st_mtime_ns)
    return found


def hash_data(paths: Paths, columns: Mapping[str, str] | None = None) -> str:
    """The SHA-256 of the bytes of all files in order, and of the columns: the same data, the same mark."""
    made = hashlib.sha256(json.dumps(sorted((columns or {}).items())).encode())
    for path in _list_files([Path(path) for path in paths]):
        made.update(hash_file(path))
    return made.hexdigest()


def write_rejects(rejects: Sequence[DataError], path: str | Path) -> None:
    """One line of JSON for each bad record: where it stands, what is wrong and what to do."""
    fields = ("file", "line", "column", "value", "problem", "hint")
    with Path(path).open("w", encoding="utf-8") as file:
        for error in rejects:
            shown = {name: getattr(error, name) for name in fields}
            file.write(json.dumps(shown, ensure_ascii=False, default=repr) + "\n")
