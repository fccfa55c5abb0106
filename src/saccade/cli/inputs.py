"""Which model a command asks, and what: texts on the command line, from standard input, or from files."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from saccade.data import Example, Role
from saccade.data.read import parse_columns
from saccade.data.read.open_text import UTF8_BOM, find_similar_directory, open_text, read_lines
from saccade.errors import DataError, ModelError, UsageError
from saccade.tasks.base import Task
from saccade.tasks.registry import task_class
from saccade.tasks.runs.read_data import stream_task_examples
from saccade.tasks.runs.run import Run
from saccade.tasks.tag import split_words

STDIN_NAME = "standard input"


def open_run_for_task(run: str, task_name: str | None = None) -> Run:
    """A run; one that is not there is answered with what is near, and one made for another task with that task."""
    with suggest_near_runs(run):
        found = Run(run, task_name)
        task = found.task
    if task_name is None or task.name == task_class(task_name).name:
        return found
    asked = task_class(task_name).verb
    raise ModelError(
        f"{run} was made for another task, {task.name} ({task.description}): ask it with saccade {task.verb} {run}. "
        f"saccade {asked} needs a model made for {task_name} ({task_class(task_name).description}); saccade train {task_name} makes one."
    )


@contextmanager
def suggest_near_runs(run: str) -> Iterator[None]:
    """Whatever is said of a run that is not there, says also what is near."""
    try:
        yield
    except ValueError as error:
        if Path(run).exists() or not str(error).startswith(f"{run}: "):
            raise  # found, and wrong in another way
        raise ModelError(_describe_missing_run(run, str(error).removeprefix(f"{run}: "))) from error


def _describe_missing_run(run: str, error: str) -> str:
    """That there is no such directory, what is near, and only then what came of taking it for a name on the hub."""
    path, what = Path(run), f"{run}: there is no such directory"
    near = find_similar_directory(path)
    if near is not None:
        what += f"; did you mean {near}?"
    elif str(path.parent) != "." and not path.parent.is_dir():
        what += f", nor is there {path.parent}."
    else:
        what += "."
    return what if error.startswith("there is no such directory") else f"{what} As a name on the hub: {error}"


def read_examples(task: Task, texts: Sequence[str], data: Sequence[str], columns: str) -> list[Example]:
    """The questions, without their answers."""
    return list(iter_examples(task, texts, data, columns))


def iter_examples(task: Task, texts: Sequence[str], data: Sequence[str], columns: str) -> Iterator[Example]:
    """The same one by one, as they are read: of a pipe, the first before the last is written."""
    if data:
        if texts:
            raise UsageError("Texts and --data are two ways to ask; use one of them.")
        asked = task.input_roles(data)
        named = {role: column for role, column in parse_columns(columns).items() if role not in task.gold_roles}
        yield from _stream_examples(task, data, asked, named)
        return
    role, *more = task.input_roles()
    if more:
        yield from _group_texts([role.name, *(other.name for other in more)], texts)
        return
    rows = _warn_if_empty(([line] for line in texts or read_stdin_lines()), "Text" if texts else "Line")
    for number, (line,) in enumerate(rows, 1):
        yield _make_example(role, line, number)


def _stream_examples(
    task: Task, data: Sequence[str], roles: Sequence[Role], columns: Mapping[str, str]
) -> Iterator[Example]:
    """The records of files; what was recognised in them is said once, as soon as it is known."""
    said: list[str] = []
    told = 0
    try:
        for example in stream_task_examples(task, data, roles, columns, said):
            told = print_notes(said, told)
            yield example
    finally:
        print_notes(said, told)


def print_notes(notes: Sequence[str], printed_count: int = 0) -> int:
    """Say on standard error what readers recognised, but for lines that were told; gives how many now are."""
    for line in notes[printed_count:]:
        print(line, file=sys.stderr)
    return len(notes)


def _warn_if_empty(rows: Iterable[list[str]], row_name: str) -> Iterator[list[str]]:
    """The same texts; of the first that is empty it is said, since a model answers it all the same."""
    said = False
    for number, row in enumerate(rows, 1):
        if not said and not all(map(str.strip, row)):
            said = True
            print(f"{row_name} {number} is empty, and the answer to an empty text means nothing.", file=sys.stderr)
        yield row


def _group_texts(role_names: Sequence[str], texts: Sequence[str]) -> Iterator[Example]:
    """Texts that belong together: so many arguments at a time, or a line with tabs between them."""
    size, wanted = len(role_names), ", ".join(role_names[:-1]) + f" and {role_names[-1]}"
    if len(texts) % size:
        raise UsageError(
            f"{len(texts)} texts came, and each question takes {size}: {wanted}. The last is {texts[-1]!r}."
        )
    rows = (list(texts[i : i + size]) for i in range(0, len(texts), size))
    rows = (
        _warn_if_empty(rows, "Question")
        if texts
        else _warn_if_empty((line.split("\t") for line in read_stdin_lines()), "Line")
    )
    for number, row in enumerate(rows, 1):
        if len(row) != size:
            what = f"{len(row)} texts where {size} are needed: {wanted}"
            cure = "write them on one line with a tab between them"
            raise DataError(what, file=STDIN_NAME, line=number, value="\t".join(row), hint=cure)
        yield Example(dict(zip(role_names, row, strict=True)), "", number)


def read_stdin_lines() -> Iterator[str]:
    """The lines of standard input, as those of a file: without their ends, of either kind, and without a byte order mark."""
    if sys.stdin.isatty():
        print("One text a line; Ctrl-D ends.", file=sys.stderr)
    number = 0
    try:
        for line in sys.stdin:
            number += 1
            line.encode()  # in some locales Python reads on over what is no UTF-8
            text = line.removesuffix("\n").removesuffix("\r")
            yield text.removeprefix(UTF8_BOM.decode()) if number == 1 else text
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        found, at = error.object, error.start
        ahead = 1 + found[:at].count(b"\n") if isinstance(found, bytes) else 0  # bytes are read before their lines are
        around = found[max(0, at - 10) : at + 10]
        value = around if isinstance(around, bytes) else around.encode("utf-8", "surrogateescape")
        cure = "save it as UTF-8, for example with iconv"
        raise DataError("not UTF-8", file=STDIN_NAME, line=number + ahead, value=value, hint=cure) from None


def read_input_lines(file: str) -> Iterator[str]:
    """The lines of a text file without their ends, or of standard input where the file is -."""
    if file == "-":
        yield from read_stdin_lines()
        return
    for _, line in read_lines(open_text(file)):
        if isinstance(line, DataError):
            raise line
        yield line.removesuffix("\n")


def _make_example(role: Role, text: str, line: int) -> Example:
    if role.kind == "words":
        words, offsets = split_words(text)
        return Example({"words": words, "offsets": offsets, "text": text}, "", line)
    return Example({role.name: text}, "", line)
