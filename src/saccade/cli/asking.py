"""What a command asks a model: texts on the command line, from standard input, or from files."""

import sys
from collections.abc import Iterator, Sequence

from saccade.cli.settings import Wrong
from saccade.data import DataError, Example, Role
from saccade.data.read import parse_columns, read
from saccade.tasks.tag import split_words
from saccade.tasks.task import Task

PICTURES = {"caption": ("caption",), "paint": ("image",)}  # one asks by a picture what the other asks for
GOLD = ("label", "labels", "target", "tags", "y", "answers")


def examples_of(task: Task, texts: Sequence[str], data: Sequence[str], columns: str) -> list[Example]:
    """The questions, without their answers."""
    gold = PICTURES.get(task.name, GOLD)
    if data:
        if texts:
            raise ValueError("Texts and --data are two ways to ask; use one of them.")
        asked = [role for role in task.roles(data) if role.name not in gold]
        named = {role: column for role, column in parse_columns(columns).items() if role not in gold}
        return list(read(data, asked, columns=named).examples)
    role, *more = (role for role in task.roles([]) if role.name not in gold)
    if more:
        return _together([role.name, *(other.name for other in more)], texts)
    lines = texts or [line.rstrip("\n") for line in _typed()]
    return [_example(role, line, number) for number, line in enumerate(lines, 1)]


def _together(names: Sequence[str], texts: Sequence[str]) -> list[Example]:
    """Texts that belong together: so many arguments at a time, or a line with tabs between them."""
    size, wanted = len(names), ", ".join(names[:-1]) + f" and {names[-1]}"
    if len(texts) % size:
        raise Wrong(f"{len(texts)} texts came, and each question takes {size}: {wanted}. The last is {texts[-1]!r}.")
    rows = [list(texts[i : i + size]) for i in range(0, len(texts), size)]
    if not texts:
        rows = [line.rstrip("\n").split("\t") for line in _typed()]
    for number, row in enumerate(rows, 1):
        if len(row) != size:
            what = f"{len(row)} texts where {size} are needed: {wanted}"
            cure = "write them on one line with a tab between them"
            raise DataError(what, file="standard input", line=number, value="\t".join(row), cure=cure)
    return [Example(dict(zip(names, row, strict=True)), "", number) for number, row in enumerate(rows, 1)]


def _typed() -> Iterator[str]:
    if sys.stdin.isatty():
        print("One text a line; Ctrl-D ends.", file=sys.stderr)
    yield from sys.stdin


def _example(role: Role, text: str, line: int) -> Example:
    if role.kind == "words":
        words, offsets = split_words(text)
        return Example({"words": words, "offsets": offsets, "text": text}, "", line)
    return Example({role.name: text}, "", line)
