"""What a command asks a model: texts on the command line, from standard input, or from files."""

import sys
from collections.abc import Iterator, Sequence

from saccade.data import Example, Role
from saccade.data.read import parse_columns, read
from saccade.tasks.tag import split_words
from saccade.tasks.task import Task

GOLD = ("label", "labels", "target", "tags", "y")


def examples_of(task: Task, texts: Sequence[str], data: Sequence[str], columns: str) -> list[Example]:
    """The questions, without their answers."""
    if data:
        if texts:
            raise ValueError("Texts and --data are two ways to ask; use one of them.")
        asked = [role for role in task.roles(data) if role.name not in GOLD]
        return read(data, asked, columns=parse_columns(columns) if columns else None).examples
    role = next(role for role in task.roles([]) if role.name not in GOLD)
    lines = texts or [line.rstrip("\n") for line in _typed()]
    return [_example(role, line, number) for number, line in enumerate(lines, 1)]


def _typed() -> Iterator[str]:
    if sys.stdin.isatty():
        print("One text a line; Ctrl-D ends.", file=sys.stderr)
    yield from sys.stdin


def _example(role: Role, text: str, line: int) -> Example:
    if role.kind == "words":
        words, offsets = split_words(text)
        return Example({"words": words, "offsets": offsets, "text": text}, "", line)
    return Example({role.name: text}, "", line)
