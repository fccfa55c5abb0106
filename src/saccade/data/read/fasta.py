"""FASTA: sequences of proteins or nucleic acids under lines that begin with >; a record is one sequence on one line."""

import re
from collections.abc import Iterator

from saccade.data.read.record import TEXTUAL, Ask, Record
from saccade.data.read.source import Source, lines
from saccade.errors import DataError

SUFFIXES = (".fasta", ".fa", ".faa", ".fna", ".ffn", ".fas")
LETTERS = re.compile(r"[A-Za-z*.-]+")
SEEN = 50  # lines that have to be letters where the name does not say FASTA


def looks(source: Source, ask: Ask) -> bool:
    """One text is asked for, the first line begins with >, and below it are letters without a space: no quoted mail."""
    if len(ask.roles) != 1 or ask.roles[0].kind not in TEXTUAL:
        return False
    if source.suffix in SUFFIXES:
        return True
    found = [line for line in source.sample() if line.strip()]
    below = [line.strip() for line in found[:SEEN] if not line.startswith((">", ";"))]
    return bool(found) and found[0].startswith(">") and bool(below) and all(map(LETTERS.fullmatch, below))


def fasta(source: Source, ask: Ask) -> Iterator[Record | DataError]:
    """Each sequence joined to one line, in capitals; the names are left out."""
    role = ask.roles[0].name
    ask.said.append(f"{source.path.name}: FASTA, a record for each sequence; their names are left out.")
    name, start, parts = "", 0, list[str]()
    bad: DataError | None = None
    for number, text in lines(source):
        if isinstance(text, str) and text.startswith((">", ";")):
            if text.startswith(";"):
                continue  # a remark, as old files have them
            if start:
                yield bad or _record(source, role, name, start, parts)
            name, start, parts, bad = text[1:].strip(), number, [], None
        elif isinstance(text, DataError):
            bad = bad or text
        elif text.strip():
            if not start:
                cure = "begin the file with a line such as >name"
                raise DataError("a sequence without a name", file=source.path, line=number, value=text[:50], cure=cure)
            bad = bad or _misspelt(source, number, text)
            parts.append("".join(text.split()))
    yield bad or _record(source, role, name, start, parts)


def _misspelt(source: Source, number: int, text: str) -> DataError | None:
    joined = "".join(text.split())
    wrong = LETTERS.sub("", joined)
    if not wrong:
        return None
    at = text.index(wrong[0]) + 1
    cure = "write one letter for each residue, with no figures between"
    return DataError(
        "no letter of a sequence",
        file=source.path,
        line=number,
        column=f"(character {at})",
        value=wrong[:20],
        cure=cure,
    )


def _record(source: Source, role: str, name: str, start: int, parts: list[str]) -> Record | DataError:
    text = "".join(parts).upper().rstrip("*")  # a star ends a translated gene
    if not text:
        cure = "give the sequence below it, or remove the name"
        return DataError("a name without a sequence", file=source.path, line=start, value=f">{name}", cure=cure)
    return Record(start, {role: text})
