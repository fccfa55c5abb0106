"""ABC: tunes in letters. A record is one tune, from its X: to the empty line that ends it, and it keeps its lines."""

import re
from collections.abc import Iterator

from saccade.data.read.base import TEXT_KINDS, ReadRequest, Record
from saccade.data.read.open_text import NumberedLine, SourceFile, read_lines
from saccade.errors import DataError

TUNE_START = re.compile(r"X:\s*\d")
HEADER_FIELD = re.compile(r"[A-Za-z+]:")


def matches(source: SourceFile, request: ReadRequest) -> bool:
    """One text is asked for, and there is a line X: with a number and later one with K:, the key."""
    if len(request.roles) != 1 or request.roles[0].kind not in TEXT_KINDS:
        return False
    found = source.sample_lines()
    first = next((i for i, line in enumerate(found) if TUNE_START.match(line)), None)
    if first is None:
        return source.suffix == ".abc"
    early = all(not line.strip() or line.startswith("%") or HEADER_FIELD.match(line) for line in found[:first])
    return (early or source.suffix == ".abc") and any(line.startswith("K:") for line in found[first:])


def read_abc(source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    """Each tune without remarks (%) and with an empty line at its end; text between the tunes is left out."""
    role, said = request.roles[0].name, f"{source.path.name}: ABC, a record for each tune"
    request.notes.append(f"{said}; remarks and what stands between tunes are left out.")
    tunes = 0
    for tune in _split_tunes(read_lines(source)):
        tunes += 1
        yield _parse_tune(source, role, tune)
    if not tunes:
        hint = "begin each tune with a line X: and a number"
        raise DataError(
            "there is no tune in it", file=source.path, line=1, value=source.sample_lines()[0][:50], hint=hint
        )


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
    kept: list[str] = []
    for _, text in tune:
        if isinstance(text, DataError):
            return text
        if not text.startswith("%"):
            kept.append(text.rstrip())
    at = next((i for i, text in enumerate(kept) if text.startswith("K:")), None)
    if at is None:
        hint = "end the head of the tune with a line such as K:G; no empty line may stand before it"
        return DataError("a tune without its key", file=source.path, line=start, value=kept[0], hint=hint)
    if not any(not HEADER_FIELD.match(text) for text in kept[at + 1 :]):
        hint = "write the notes below the key, or remove the tune"
        return DataError("a tune without notes", file=source.path, line=start, value=kept[0], hint=hint)
    return Record(start, {role: "\n".join(kept) + "\n\n"})
