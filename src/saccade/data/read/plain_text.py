"""Plain text: a record for each line, or running text; and two aligned files of parallel sentences."""

from collections.abc import Iterator
from itertools import zip_longest

from saccade.data.read.base import ReadRequest, Record
from saccade.data.read.open_text import SourceFile, read_line_parts, read_lines
from saccade.errors import DataError


def read_plain_text(source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    """Each line as the value of the single role; empty lines are kept only in running text."""
    if len(request.roles) != 1:
        wanted = " and ".join(role.name for role in request.roles)
        shown = source.sample_lines()[0]
        hint = f"give a CSV, TSV or JSONL file with a column for each of {wanted}; is a tab or a comma missing"
        problem = f"this is plain text with one column, but {wanted} are needed"
        raise DataError(problem, file=source.path, line=1, value=shown, hint=hint)
    role = request.roles[0]
    request.notes.append(
        f"{source.path.name}: plain text, {'running text' if role.kind == 'line' else 'a record for each line'}."
    )
    if role.kind == "line":
        for line, column, text, ends in read_line_parts(source):
            yield text if isinstance(text, DataError) else Record(line, {role.name: text}, column, ends)
        return
    for line, text in read_lines(source):
        if isinstance(text, DataError):
            yield text
        elif text.strip():
            yield Record(line, {role.name: text})


def read_aligned_lines(first: SourceFile, second: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    """Pairs of line n of one file with line n of the other."""
    source, target = (role.name for role in request.find_roles("text", "line")[:2])
    request.notes.append(f"{first.path.name} and {second.path.name}: aligned lines, {source} and {target}.")
    for (n, left), (m, right) in zip_longest(read_lines(first), read_lines(second), fillvalue=(0, "")):
        if (not n or not m) and request.is_preview:
            return  # the first megabytes of the two files have different numbers of lines
        if not n or not m:
            short, long, at = (first, second, m) if not n else (second, first, n)
            total = sum(1 for _ in read_lines(long))
            raise DataError(
                f"has {at - 1:,} lines while {long.path.name} has {total:,}",
                file=short.path,
                line=at,
                column=source if short is first else target,
                value="",
                hint="aligned files need the same number of lines; were empty lines dropped from one of them",
            )
        error = left if isinstance(left, DataError) else right if isinstance(right, DataError) else None
        if error is not None:
            yield error
        elif isinstance(left, str) and isinstance(right, str) and (left.strip() or right.strip()):
            yield _make_pair(n, {source: left, target: right}, {source: first, target: second})


def _make_pair(line: int, fields: dict[str, str], files: dict[str, SourceFile]) -> Record | DataError:
    for name, text in fields.items():
        if not text.strip():
            other = next(text for text in fields.values() if text.strip())
            problem = f"this line is empty; the other file has {other.strip()[:40]!r}"
            hint = "fill it in, or remove the line from both files"
            return DataError(problem, file=files[name].path, line=line, column=name, value=text.strip("\n"), hint=hint)
    return Record(line, fields)
