"""Which model a command asks, and what: texts on the command line, from standard input, or from files."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from saccade.cli.settings import Wrong
from saccade.data import Example, Role
from saccade.data.read import parse_columns
from saccade.data.read.source import MARK, lines, near_directory, open_text
from saccade.errors import DataError, ModelError, UsageError
from saccade.models.model import Model
from saccade.tasks.opening import open_run
from saccade.tasks.reading import stream_for
from saccade.tasks.table import task_class
from saccade.tasks.tag import split_words
from saccade.tasks.task import Task

STANDARD = "standard input"


def opened(run: str, wanted: str | None = None, changes: Mapping[str, Any] | None = None) -> tuple[Task, Model]:
    """A model and its task; what is not there is said with what is near, and what does something else with what it does."""
    with named(run):
        task, model = open_run(run, changes=changes)
    if wanted is None or task.name == task_class(wanted).name:
        return task, model
    asked = task_class(wanted).verb
    raise ModelError(
        f"{run} was made for another task, {task.name} ({task.said}): ask it with saccade {task.verb} {run}. "
        f"saccade {asked} needs a model made for {wanted} ({task_class(wanted).said}); saccade train {wanted} makes one."
    )


@contextmanager
def named(run: str) -> Iterator[None]:
    """Whatever is said of a run that is not there, says also what is near."""
    try:
        yield
    except ValueError as error:
        if Path(run).exists() or not str(error).startswith(f"{run}: "):
            raise  # found, and wrong in another way
        raise ModelError(_absent(run, str(error).removeprefix(f"{run}: "))) from error


def _absent(run: str, error: str) -> str:
    """That there is no such directory, what is near, and only then what came of taking it for a name on the hub."""
    path, what = Path(run), f"{run}: there is no such directory"
    near = near_directory(path)
    if near is not None:
        what += f"; did you mean {near}?"
    elif str(path.parent) != "." and not path.parent.is_dir():
        what += f", nor is there {path.parent}."
    else:
        what += "."
    return what if error.startswith("there is no such directory") else f"{what} As a name on the hub: {error}"


def examples_of(task: Task, texts: Sequence[str], data: Sequence[str], columns: str) -> list[Example]:
    """The questions, without their answers."""
    return list(each_example(task, texts, data, columns))


def each_example(task: Task, texts: Sequence[str], data: Sequence[str], columns: str) -> Iterator[Example]:
    """The same one by one, as they are read: of a pipe, the first before the last is written."""
    if data:
        if texts:
            raise UsageError("Texts and --data are two ways to ask; use one of them.")
        asked = task.question_roles(data)
        named = {role: column for role, column in parse_columns(columns).items() if role not in task.gold_roles}
        yield from _read(task, data, asked, named)
        return
    role, *more = task.question_roles()
    if more:
        yield from _together([role.name, *(other.name for other in more)], texts)
        return
    rows = _watched(([line] for line in texts or typed()), "Text" if texts else "Line")
    for number, (line,) in enumerate(rows, 1):
        yield _example(role, line, number)


def _read(task: Task, data: Sequence[str], roles: Sequence[Role], columns: Mapping[str, str]) -> Iterator[Example]:
    """The records of files; what was recognised in them is said once, as soon as it is known."""
    said: list[str] = []
    told = 0
    try:
        for example in stream_for(task, data, roles, columns, said):
            told = tell(said, told)
            yield example
    finally:
        tell(said, told)


def tell(said: Sequence[str], told: int = 0) -> int:
    """Say on standard error what readers recognised, but for lines that were told; gives how many now are."""
    for line in said[told:]:
        print(line, file=sys.stderr)
    return len(said)


def _watched(rows: Iterable[list[str]], place: str) -> Iterator[list[str]]:
    """The same texts; of the first that is empty it is said, since a model answers it all the same."""
    said = False
    for number, row in enumerate(rows, 1):
        if not said and not all(map(str.strip, row)):
            said = True
            print(f"{place} {number} is empty, and the answer to an empty text means nothing.", file=sys.stderr)
        yield row


def _together(names: Sequence[str], texts: Sequence[str]) -> Iterator[Example]:
    """Texts that belong together: so many arguments at a time, or a line with tabs between them."""
    size, wanted = len(names), ", ".join(names[:-1]) + f" and {names[-1]}"
    if len(texts) % size:
        raise Wrong(f"{len(texts)} texts came, and each question takes {size}: {wanted}. The last is {texts[-1]!r}.")
    rows = (list(texts[i : i + size]) for i in range(0, len(texts), size))
    rows = _watched(rows, "Question") if texts else _watched((line.split("\t") for line in typed()), "Line")
    for number, row in enumerate(rows, 1):
        if len(row) != size:
            what = f"{len(row)} texts where {size} are needed: {wanted}"
            cure = "write them on one line with a tab between them"
            raise DataError(what, file=STANDARD, line=number, value="\t".join(row), cure=cure)
        yield Example(dict(zip(names, row, strict=True)), "", number)


def typed() -> Iterator[str]:
    """The lines of standard input, as those of a file: without their ends, of either kind, and without a byte order mark."""
    if sys.stdin.isatty():
        print("One text a line; Ctrl-D ends.", file=sys.stderr)
    number = 0
    try:
        for line in sys.stdin:
            number += 1
            line.encode()  # in some locales Python reads on over what is no UTF-8
            text = line.removesuffix("\n").removesuffix("\r")
            yield text.removeprefix(MARK.decode()) if number == 1 else text
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
