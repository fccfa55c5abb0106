"""Inputs of prediction commands: the run to open, and texts from the command line, standard input or files."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from saccade.cli.prediction_flags import Inputs
from saccade.data import Example, Role
from saccade.data.read import parse_columns
from saccade.data.read.open_text import UTF8_BOM, find_similar_directory, open_text, read_lines
from saccade.errors import DataError, ModelError, UsageError
from saccade.tasks.base import Task
from saccade.tasks.registry import task_class
from saccade.tasks.runs.read_data import stream_task_examples, without_gold
from saccade.tasks.runs.run import Run
from saccade.tasks.tag import split_words

STDIN_NAME = "standard input"


def open_run_for_task(run: str, task_name: str | None = None) -> Run:
    """Open a run; errors suggest a similar path if it does not exist, and the right command if its task is another."""
    with suggest_near_runs(run):
        opened = Run(run, task_name)
        task = opened.task
    if task_name is None or task.name == task_class(task_name).name:
        return opened
    wanted = task_class(task_name)
    raise ModelError(
        f"{run} was trained for the task {task.name} ({task.description}); use saccade {task.verb} {run}. "
        f"saccade {wanted.verb} needs a model for {task_name} ({wanted.description}); saccade train {task_name} trains one."
    )


@contextmanager
def suggest_near_runs(run: str) -> Iterator[None]:
    """Add the nearest existing path to an error about a run that does not exist."""
    try:
        yield
    except ValueError as error:
        if Path(run).exists() or not str(error).startswith(f"{run}: "):
            raise  # the run exists; the error is another one
        raise ModelError(_describe_missing_run(run, str(error).removeprefix(f"{run}: "))) from error


def _describe_missing_run(run: str, error: str) -> str:
    """No such directory, the nearest existing one, and then the error of loading it as a hub name."""
    path, problem = Path(run), f"{run}: there is no such directory"
    near = find_similar_directory(path)
    if near is not None:
        problem += f"; did you mean {near}?"
    elif str(path.parent) != "." and not path.parent.is_dir():
        problem += f", and no {path.parent} either."
    else:
        problem += "."
    return problem if error.startswith("there is no such directory") else f"{problem} As a hub name: {error}"


def read_examples(task: Task, texts: Sequence[str], data: Sequence[str], columns: str) -> list[Example]:
    """Read the input examples, without gold values."""
    return list(iter_examples(task, Inputs(texts, data, columns)))


def iter_examples(task: Task, inputs: Inputs) -> Iterator[Example]:
    """Yield the input examples as they are read, so that a pipe is processed line by line."""
    texts = inputs.texts
    if inputs.data:
        if texts:
            raise UsageError("Texts and --data are both given; use one of them.")
        yield from _stream_examples(task, inputs)
        return
    role, *more = task.input_roles()
    if more:
        yield from _group_texts([role.name, *(other.name for other in more)], texts)
        return
    rows = _warn_if_empty(([line] for line in texts or read_stdin_lines()), "Text" if texts else "Line")
    for number, (line,) in enumerate(rows, 1):
        yield _make_example(role, line, number)


def _stream_examples(task: Task, inputs: Inputs) -> Iterator[Example]:
    """Yield the examples of files, and print the notes about their format once, as soon as they are known."""
    notes: list[str] = []
    printed_count = 0
    examples = stream_task_examples(
        task,
        inputs.data,
        task.input_roles(inputs.data),
        without_gold(task, parse_columns(inputs.columns)),
        notes,
        on_bad_record=inputs.flags.on_bad_record,
        max_bad_fraction=inputs.flags.max_bad_fraction,
        rejects=inputs.rejects,
    )
    try:
        for example in examples:
            printed_count = print_notes(notes, printed_count)
            yield example
    finally:
        print_notes(notes, printed_count)


def print_notes(notes: Sequence[str], printed_count: int = 0) -> int:
    """Print the notes about data files after the first `printed_count` to standard error; returns the number printed so far."""
    for line in notes[printed_count:]:
        print(line, file=sys.stderr)
    return len(notes)


def _warn_if_empty(rows: Iterable[list[str]], row_name: str) -> Iterator[list[str]]:
    """Yield the rows unchanged, and warn once about an empty text, because a model gives a prediction for it, too."""
    warned = False
    for number, row in enumerate(rows, 1):
        if not warned and not all(map(str.strip, row)):
            warned = True
            print(f"{row_name} {number} is empty; predictions for empty texts are meaningless.", file=sys.stderr)
        yield row


def _group_texts(role_names: Sequence[str], texts: Sequence[str]) -> Iterator[Example]:
    """Group the texts of one example: consecutive arguments, or a line of standard input separated by tabs."""
    size, expected = len(role_names), ", ".join(role_names[:-1]) + f" and {role_names[-1]}"
    if len(texts) % size:
        raise UsageError(
            f"Got {len(texts)} texts, but each example takes {size}: {expected}. The last text is {texts[-1]!r}."
        )
    groups = (list(texts[i : i + size]) for i in range(0, len(texts), size))
    lines = (line.split("\t") for line in read_stdin_lines())
    rows = _warn_if_empty(groups, "Example") if texts else _warn_if_empty(lines, "Line")
    for number, row in enumerate(rows, 1):
        if len(row) != size:
            problem = f"{len(row)} texts instead of {size}: {expected}"
            hint = "write them on one line, separated by tabs"
            raise DataError(problem, file=STDIN_NAME, line=number, value="\t".join(row), hint=hint)
        yield Example(dict(zip(role_names, row, strict=True)), "", number)


def read_stdin_lines() -> Iterator[str]:
    """The lines of standard input, without line ends (LF or CRLF) and without a byte order mark."""
    if sys.stdin.isatty():
        print("Type one text per line; Ctrl-D ends the input.", file=sys.stderr)
    number = 0
    try:
        for line in sys.stdin:
            number += 1
            line.encode()  # in some locales Python decodes invalid UTF-8 to surrogates
            text = line.removesuffix("\n").removesuffix("\r")
            yield text.removeprefix(UTF8_BOM.decode()) if number == 1 else text
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        text, start = error.object, error.start
        ahead = 1 + text[:start].count(b"\n") if isinstance(text, bytes) else 0  # a block is decoded before its lines
        excerpt = text[max(0, start - 10) : start + 10]
        value = excerpt if isinstance(excerpt, bytes) else excerpt.encode("utf-8", "surrogateescape")
        hint = "save it as UTF-8, for example with iconv"
        raise DataError("not UTF-8", file=STDIN_NAME, line=number + ahead, value=value, hint=hint) from None


def read_input_lines(file: str) -> Iterator[str]:
    """The lines of a text file, or of standard input if the file is -, without line ends."""
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
