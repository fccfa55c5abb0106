"""`read` and `stream`: files to examples, all at once or one by one."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from saccade.data.item import Example, Role, Table
from saccade.data.read import folder, idx, lines
from saccade.data.read.columns import IDS, MISSING, Choice, choose, look_up
from saccade.data.read.formats import find_format
from saccade.data.read.record import Ask, Record, plain_name
from saccade.data.read.source import Source, file_digest, open_source, regular
from saccade.data.read.spans import cut, words_and_tags
from saccade.data.read.squad import placed
from saccade.data.read.stretches import STRETCH, stretches
from saccade.data.read.tags import in_bio
from saccade.data.read.units import Unit, units
from saccade.data.read.values import KINDS, LISTS, MAX_WORD, Place, is_nothing, too_long
from saccade.errors import DataError

SAMPLE = 200  # records looked at to choose the columns
Paths = Sequence[str | Path]


def read(
    paths: Paths,
    roles: Sequence[Role],
    *,
    columns: Mapping[str, str] | None = None,
    on_bad: str = "error",
    max_bad: float = 0.01,
) -> Table:
    """All records of one split; with `on_bad="skip"` the bad ones are kept apart, up to a share of `max_bad`."""
    said: list[str] = []
    bad: list[DataError] = []
    files = [Path(path) for path in paths]
    before = _stamps(files)
    found = list(stream(files, roles, columns=columns, on_bad=on_bad, max_bad=max_bad, said=said, bad=bad))
    mark = digest(files, columns)
    changed = [path for path, stamp in _stamps(files).items() if stamp != before.get(path)]
    if changed:
        raise DataError("the file changed while it was read", file=changed[0], cure="read it again when it is written")
    return Table(found, said, bad, mark)


def stream(
    paths: Paths,
    roles: Sequence[Role],
    *,
    columns: Mapping[str, str] | None = None,
    on_bad: str = "error",
    max_bad: float = 0.01,
    said: list[str] | None = None,
    bad: list[DataError] | None = None,
) -> Iterator[Example]:
    """The same one by one, for text larger than memory; what is said and what is bad go into the lists handed in."""
    if on_bad not in ("error", "skip"):
        raise ValueError(f"A bad record is an 'error' or a 'skip'; got {on_bad!r}.")
    if not paths or not roles:
        raise ValueError("At least one file and one role are needed.")
    ask = Ask(tuple(roles), columns or {}, [] if said is None else said)
    bad = [] if bad is None else bad
    good = 0
    found = chain.from_iterable(_unit(unit, ask) for unit in units([Path(path) for path in paths], ask))
    for item in in_bio(found, ask) if ask.has("tags") else found:
        if isinstance(item, Example):
            good += 1
            yield item
        elif on_bad == "error":
            raise item
        else:
            bad.append(item)
    if bad and len(bad) > max_bad * (good + len(bad)):
        what = f"{len(bad):,} of {good + len(bad):,} records are bad, more than {max_bad:.1%}; the first: {bad[0].what}"
        cure = f"{bad[0].cure}; or allow more of them with --max-bad"
        raise DataError(what, file=bad[0].file, line=bad[0].line, column=bad[0].column, value=bad[0].value, cure=cure)
    if not good:
        cure = "give a file with at least one record below the header"
        raise DataError("there are no records", file=paths[0], line=1, value="", cure=cure)


def _unit(unit: Unit, ask: Ask) -> Iterator[Example | DataError]:
    """The examples of one file, pair or folder."""
    direct = Choice({role.name: [role.name] for role in ask.roles})
    if unit[0].is_dir():
        for path, record in folder.folder(unit[0], ask):
            yield _example(path, record, ask, direct)
        return
    source = open_source(unit[0])
    if len(unit) == 2:
        other = open_source(unit[1])
        pairs = idx.pair(source, other, ask) if idx.looks(source) else lines.aligned(source, other, ask)
        yield from (_example(source.path, record, ask, direct) for record in pairs)
        return
    form = find_format(source, ask)
    records = form.records(source, ask)
    choice = direct
    if form.columns:
        first = list(islice(records, SAMPLE))
        good = [record for record in first if isinstance(record, Record)]
        if good:
            choice = choose(source, ask, good)
            ask.said.append(f"{source.path.name}: {choice.said()}.")
        ids = [name for name in (good[0].fields if good else ()) if plain_name(name) in IDS]
        records = chain(first, records)
        records = _ids_watched(source, ids[0], records, ask) if ids else records
    elif form.name == "plain text" and ask.has("words"):
        choice = Choice({}, ask.roles[0].name)
    for record in records:
        yield from _in_stretches(_example(source.path, record, ask, choice), ask)


def _example(path: Path, record: Record | DataError, ask: Ask, choice: Choice) -> Example | DataError:
    if isinstance(record, DataError):
        return record
    try:
        values = _cut_words(path, record, choice) if choice.text else _values(path, record, ask, choice)
    except DataError as error:
        return error
    return Example(values, str(path), record.line, record.column)


def _in_stretches(example: Example | DataError, ask: Ask) -> Iterator[Example | DataError]:
    """A line of running text as one example or, where it is very long, as several, so that no step has to hold it whole."""
    name = ask.roles[0].name
    if isinstance(example, DataError) or not ask.has("line") or len(example[name]) <= STRETCH:
        yield example
        return
    text, first = example[name], max(1, example.column)
    for start, end in stretches(text):
        values = {**example.values, name: text[start:end]}
        yield Example(values, example.file, example.line, first + start)


def _values(path: Path, record: Record, ask: Ask, choice: Choice) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for role in ask.roles:
        names = choice.columns[role.name]
        if not role.needed and _lacks(record, names[0], role):
            continue
        found = [_field(path, record, name) for name in names]
        if role.kind != "numbers":
            if not record.ends:
                values[role.name] = found[0]
                continue
            parse = LISTS[role.lists] if role.lists else KINDS[role.kind]
            values[role.name] = parse(found[0], Place(path, record.line, names[0], ask.said))
            continue
        if len(found) == 1 and isinstance(found[0], list):
            found, names = found[0], names * len(found[0])
        pairs = zip(names, found, strict=True)
        values[role.name] = [KINDS["number"](value, Place(path, record.line, name)) for name, value in pairs]
    if ask.paired:
        _agree(path, record, values, ask)
    return values


def _lacks(record: Record, name: str, role: Role) -> bool:
    found = look_up(record.fields, name)
    return found is MISSING or is_nothing(found, role.kind)


def _field(path: Path, record: Record, name: str) -> Any:
    found = look_up(record.fields, name)
    if found is MISSING:
        there, cure = ", ".join(map(str, record.fields)), f"add {name!r} to this record"
        raise DataError(
            f"this record has no {name}; it has {there}", file=path, line=record.line, column=name, value="", cure=cure
        )
    return found


def _agree(path: Path, record: Record, values: dict[str, Any], ask: Ask) -> None:
    """What one role says must fit another: a tag for each word, an answer where it is said to be."""
    for tags in ask.of("tags"):
        words = values[ask.of("words")[0].name] if ask.has("words") else values[tags.name]
        if len(words) != len(values[tags.name]):
            what = f"{len(words)} words and {len(values[tags.name])} tags"
            value, cure = values[tags.name], "give each word one tag"
            raise DataError(what, file=path, line=record.line, column=tags.name, value=value, cure=cure)
    for role in ask.of("answers"):
        place = Place(path, record.line, role.name)
        values[role.name] = placed(values[role.name], str(values.get("context", "")), record.fields, place)


def _cut_words(path: Path, record: Record, choice: Choice) -> dict[str, Any]:
    text = KINDS["text"](_field(path, record, choice.text), Place(path, record.line, choice.text))
    if choice.spans:
        place = Place(path, record.line, choice.spans)
        found = words_and_tags(text, _field(path, record, choice.spans), place)
    else:
        offsets = cut(text)
        found = {"words": [text[a:b] for a, b in offsets], "text": text, "offsets": offsets}
    longest = max(found["words"], key=len, default="")
    if choice.spans and len(longest) > MAX_WORD:
        raise too_long(
            longest, Place(path, record.line, choice.text), f"the word at character {text.find(longest) + 1:,}"
        )
    if not found["words"]:
        raise Place(path, record.line, choice.text).bad("no word in the text", text, "fill it in or remove the record")
    return found


def _ids_watched(
    source: Source, name: str, records: Iterator[Record | DataError], ask: Ask
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
        ask.said.append(f"{source.path.name}: {twice:,} values of {name} stand more than once, the first is {first}.")


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(entry for entry in path.rglob("*") if entry.is_file())
        else:
            yield path


def _stamps(paths: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    found = {}
    for path in _files(paths):
        info = regular(path).stat()
        found[path] = (info.st_size, info.st_mtime_ns)
    return found


def digest(paths: Paths, columns: Mapping[str, str] | None = None) -> str:
    """The SHA-256 of the bytes of all files in order, and of the columns: the same data, the same mark."""
    made = hashlib.sha256(json.dumps(sorted((columns or {}).items())).encode())
    for path in _files([Path(path) for path in paths]):
        made.update(file_digest(path))
    return made.hexdigest()


def write_rejects(bad: Sequence[DataError], path: str | Path) -> None:
    """One line of JSON for each bad record: where it stands, what is wrong and what to do."""
    fields = ("file", "line", "column", "value", "what", "cure")
    with Path(path).open("w", encoding="utf-8") as file:
        for error in bad:
            shown = {name: getattr(error, name) for name in fields}
            file.write(json.dumps(shown, ensure_ascii=False, default=repr) + "\n")
