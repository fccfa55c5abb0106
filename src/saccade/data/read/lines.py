"""Plain text: a record for each line, or running text; and two files whose lines belong together."""

from collections.abc import Iterator
from itertools import zip_longest

from saccade.data.read.record import Ask, Record
from saccade.data.read.source import Source, lines, parts_of_lines
from saccade.errors import DataError


def plain(source: Source, ask: Ask) -> Iterator[Record | DataError]:
    """Each line under the one role asked for; empty lines count only where the text runs on."""
    if len(ask.roles) != 1:
        wanted = " and ".join(role.name for role in ask.roles)
        shown = source.sample()[0]
        cure = f"give a CSV, TSV or JSONL file with a column for each of {wanted}; is a tab or a comma missing"
        raise DataError(
            f"this is plain text, one column, where {wanted} are needed",
            file=source.path,
            line=1,
            value=shown,
            cure=cure,
        )
    role = ask.roles[0]
    ask.said.append(
        f"{source.path.name}: plain text, {'running on' if role.kind == 'line' else 'a record for each line'}."
    )
    if role.kind == "line":
        for line, column, text, ends in parts_of_lines(source):
            yield text if isinstance(text, DataError) else Record(line, {role.name: text}, column, ends)
        return
    for line, text in lines(source):
        if isinstance(text, DataError):
            yield text
        elif text.strip():
            yield Record(line, {role.name: text})


def aligned(first: Source, second: Source, ask: Ask) -> Iterator[Record | DataError]:
    """Line n of one file belongs to line n of the other."""
    one, other = ask.of("text", "line")[:2]
    ask.said.append(f"{first.path.name} and {second.path.name}: aligned lines, {one.name} and {other.name}.")
    for (n, left), (m, right) in zip_longest(lines(first), lines(second), fillvalue=(0, "")):
        if not n or not m:
            short, long, at = (first, second, m) if not n else (second, first, n)
            total = sum(1 for _ in lines(long))
            raise DataError(
                f"has {at - 1:,} lines while {long.path.name} has {total:,}",
                file=short.path,
                line=at,
                column=one.name if short is first else other.name,
                value="",
                cure="aligned files need the same number of lines; were empty lines dropped from one of them",
            )
        bad = left if isinstance(left, DataError) else right if isinstance(right, DataError) else None
        if bad is not None:
            yield bad
        elif isinstance(left, str) and isinstance(right, str) and (left.strip() or right.strip()):
            yield _pair(n, {one.name: left, other.name: right}, {one.name: first, other.name: second})


def _pair(line: int, fields: dict[str, str], files: dict[str, Source]) -> Record | DataError:
    for name, text in fields.items():
        if not text.strip():
            whole = next(text for text in fields.values() if text.strip())
            what = f"this side is empty; the other is {whole.strip()[:40]!r}"
            cure = "fill it in, or remove the line from both files"
            return DataError(what, file=files[name].path, line=line, column=name, value=text.strip("\n"), cure=cure)
    return Record(line, fields)
