"""What a command asks a model: texts on the command line, from standard input, or from files."""

import sys
from collections.abc import Iterator, Sequence

from saccade.cli.settings import Wrong
from saccade.data import DataError, Example, Role
from saccade.data.read import parse_columns, stream
from saccade.data.read.source import lines, open_text
from saccade.tasks.tag import split_words
from saccade.tasks.task import Task

PICTURES = {"caption": ("caption",), "paint": ("image",)}  # one asks by a picture what the other asks for
STANDARD = "standard input"
GOLD = ("label", "labels", "target", "tags", "y", "answers")


def examples_of(task: Task, texts: Sequence[str], data: Sequence[str], columns: str) -> list[Example]:
    """The questions, without their answers."""
    return list(each_example(task, texts, data, columns))


def each_example(task: Task, texts: Sequence[str], data: Sequence[str], columns: str) -> Iterator[Example]:
    """The same one by one, as they are read: of a pipe, the first before the last is written."""
    gold = PICTURES.get(task.name, GOLD)
    if data:
        if texts:
            raise ValueError("Texts and --data are two ways to ask; use one of them.")
        asked = [role for role in task.roles(data) if role.name not in gold]
        named = {role: column for role, column in parse_columns(columns).items() if role not in gold}
        yield from stream(data, asked, columns=named)
        return
    role, *more = (role for role in task.roles([]) if role.name not in gold)
    if more:
        yield from _together([role.name, *(other.name for other in more)], texts)
        return
    for number, line in enumerate(texts or typed(), 1):
        yield _example(role, line, number)


def _together(names: Sequence[str], texts: Sequence[str]) -> Iterator[Example]:
    """Texts that belong together: so many arguments at a time, or a line with tabs between them."""
    size, wanted = len(names), ", ".join(names[:-1]) + f" and {names[-1]}"
    if len(texts) % size:
        raise Wrong(f"{len(texts)} texts came, and each question takes {size}: {wanted}. The last is {texts[-1]!r}.")
    rows = (list(texts[i : i + size]) for i in range(0, len(texts), size))
    for number, row in enumerate(rows if texts else (line.split("\t") for line in typed()), 1):
        if len(row) != size:
            what = f"{len(row)} texts where {size} are needed: {wanted}"
            cure = "write them on one line with a tab between them"
            raise DataError(what, file=STANDARD, line=number, value="\t".join(row), cure=cure)
        yield Example(dict(zip(names, row, strict=True)), "", number)


def typed() -> Iterator[str]:
    """The lines of standard input, without their ends."""
    if sys.stdin.isatty():
        print("One text a line; Ctrl-D ends.", file=sys.stderr)
    number = 0
    try:
        for line in sys.stdin:
            number += 1
            line.encode()  # in some locales Python reads on over what is no UTF-8
            yield line.rstrip("\n")
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        found, at = error.object, error.start
        ahead = 1 + found[:at].count(b"\n") if isinstance(found, bytes) else 0  # bytes are read before their lines are
        around = found[max(0, at - 10) : at + 10]
        value = around if isinstance(around, bytes) else around.encode("utf-8", "surrogateescape")
        cure = "save it as UTF-8, for example with iconv"
        raise DataError("not UTF-8", file=STANDARD, line=number + ahead, value=value, cure=cure) from None


def lines_of(file: str) -> Iterator[str]:
    """The lines of a text file without their ends, or of standard input where the file is -."""
    if file == "-":
        yield from typed()
        return
    for _, line in lines(open_text(file)):
        if isinstance(line, DataError):
            raise line
        yield line.removesuffix("\n")


def _example(role: Role, text: str, line: int) -> Example:
    if role.kind == "words":
        words, offsets = split_words(text)
        return Example({"words": words, "offsets": offsets, "text": text}, "", line)
    return Example({role.name: text}, "", line)
