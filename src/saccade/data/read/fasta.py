"""FASTA files: sequences of proteins or nucleic acids below name lines that begin with >; a record is one sequence."""

import re
from collections.abc import Iterator

from saccade.data.read.base import TEXT_KINDS, ReadRequest, Record
from saccade.data.read.open_text import SourceFile, read_lines
from saccade.errors import DataError

SUFFIXES = (".fasta", ".fa", ".faa", ".fna", ".ffn", ".fas")
SEQUENCE_LETTERS = re.compile(r"[A-Za-z*.-]+")
MAX_LINES_SAMPLED = 50  # lines that have to consist of letters if the suffix is not one of FASTA


def matches(source: SourceFile, request: ReadRequest) -> bool:
    """Whether a single text is requested, the first line begins with >, and below it are lines of letters without spaces."""
    if len(request.roles) != 1 or request.roles[0].kind not in TEXT_KINDS:
        return False
    if source.suffix in SUFFIXES:
        return True
    lines = [line for line in source.sample_lines() if line.strip()]
    sequences = [line.strip() for line in lines[:MAX_LINES_SAMPLED] if not line.startswith((">", ";"))]
    return (
        bool(lines) and lines[0].startswith(">") and bool(sequences) and all(map(SEQUENCE_LETTERS.fullmatch, sequences))
    )


def read_fasta(source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    """Each sequence on one line, in uppercase; the names are ignored."""
    role = request.roles[0].name
    request.notes.append(f"{source.path.name}: FASTA, a record for each sequence; the names are ignored.")
    name, start, parts = "", 0, list[str]()
    bad: DataError | None = None
    for number, text in read_lines(source):
        if isinstance(text, str) and text.startswith((">", ";")):
            if text.startswith(";"):
                continue  # a comment in old files
            if start:
                yield bad or _make_record(source, role, name, start, parts)
            name, start, parts, bad = text[1:].strip(), number, [], None
        elif isinstance(text, DataError):
            bad = bad or text
        elif text.strip():
            if not start:
                hint = "begin the file with a line such as >name"
                raise DataError("a sequence without a name", file=source.path, line=number, value=text[:50], hint=hint)
            bad = bad or _find_bad_letter(source, number, text)
            parts.append("".join(text.split()))
    yield bad or _make_record(source, role, name, start, parts)


def _find_bad_letter(source: SourceFile, line: int, text: str) -> DataError | None:
    joined = "".join(text.split())
    wrong = SEQUENCE_LETTERS.sub("", joined)
    if not wrong:
        return None
    at = text.index(wrong[0]) + 1
    hint = "write one letter per residue, without digits"
    return DataError(
        "not a letter of a sequence",
        file=source.path,
        line=line,
        column=f"(character {at})",
        value=wrong[:20],
        hint=hint,
    )


def _make_record(source: SourceFile, role: str, name: str, line: int, sequence_lines: list[str]) -> Record | DataError:
    text = "".join(sequence_lines).upper().rstrip("*")  # a stop codon
    if not text:
        hint = "write the sequence below it, or remove the name"
        return DataError("a name without a sequence", file=source.path, line=line, value=f">{name}", hint=hint)
    return Record(line, {role: text})
