"""ABC notation of music: a record is one tune, from its X: field to the empty line that ends it, with its line breaks."""

import re
from collections.abc import Iterator

from saccade.data.read.base import TEXT_KINDS, ReadRequest, Record
from saccade.data.read.open_text import NumberedLine, SourceFile, read_lines
from saccade.errors import DataError

TUNE_START = re.compile(r"X:\s*\d")
HEADER_FIELD = re.compile(r"[A-Za-z+]:")


def matches(source: SourceFile, request: ReadRequest) -> bool:
    """Whether a single text is requested and the file has a line X: with a number, followed by a K: line with the key."""
    if len(request.roles) != 1 or request.roles[0].kind not in TEXT_KINDS:
        return False
    lines = source.sample_lines()
    first = next((i for i, line in enumerate(lines) if TUNE_START.match(line)), None)
    if first is None:
        return source.suffix == ".abc"
    only_header = all(not line.strip() or line.startswith("%") or HEADER_FIELD.match(line) for line in lines[:first])
    return (only_header or source.suffix == ".abc") and any(line.startswith("K:") for line in lines[first:])


def read_abc(source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    """Each tune without comments (%) and with an empty line at its end; text between the tunes is ignored."""
    role = request.roles[0].name
    request.notes.append(
        f"{source.path.name}: ABC, a record for each tune; comments and text between the tunes are ignored."
    )
    count = 0
    for tune in _split_tunes(read_lines(source)):
        count += 1
        yield _parse_tune(source, role, tune)
    if not count:
        hint = "begin each tune with a line X: and a number"
        first_line = source.sample_lines()[0][:50]
        raise DataError("there is no tune in the file", file=source.path, line=1, value=first_line, hint=hint)


def _split_tunes(numbered_lines: Iterator[NumberedLine]) -> Iterator[list[NumberedLine]]:
    tune: list[NumberedLine] = []
    for number, text in numbered_lines:
        begins = isinstance(text, str) and TUNE_START.match(text)
        ends = isinstance(text, str) and not text.strip()
        if tune and (begins or ends):
            yield tune
            tune = []
        if begins or (tune and not ends):
            tune.append((number, text))
    if tune:
        yield tune


def _parse_tune(source: SourceFile, role: str, tune: list[NumberedLine]) -> Record | DataError:
    start = tune[0][0]
    lines: list[str] = []
    for _, text in tune:
        if isinstance(text, DataError):
            return text
        if not text.startswith("%"):
            lines.append(text.rstrip())
    key_index = next((i for i, text in enumerate(lines) if text.startswith("K:")), None)
    if key_index is None:
        hint = "end the header of the tune with a line such as K:G, without an empty line before it"
        return DataError("a tune without a key", file=source.path, line=start, value=lines[0], hint=hint)
    if not any(not HEADER_FIELD.match(text) for text in lines[key_index + 1 :]):
        hint = "write the notes below the key, or remove the tune"
        return DataError("a tune without notes", file=source.path, line=start, value=lines[0], hint=hint)
    return Record(start, {role: "\n".join(lines) + "\n\n"})
