"""Inputs of `predict` in Python: texts, images, recordings, records, tables or files, read as examples of a task."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image

from saccade.data import Example, read_table
from saccade.data.read.media_files import MEDIA, find_media_kind
from saccade.data.tables import is_table, table_index
from saccade.errors import UsageError
from saccade.tasks.base import Task
from saccade.tasks.runs.read_data import resolve_columns, stream_task_examples, without_gold


def as_paths(files: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    """One file or several as paths.

    >>> as_paths("a.csv"), as_paths([Path("a.csv"), "b.csv"])
    (('a.csv',), ('a.csv', 'b.csv'))
    """
    return (str(files),) if isinstance(files, str | Path) else tuple(map(str, files))


@dataclass(frozen=True)
class PredictionInput:
    """The examples to predict for, whether the caller passed a single one, and the index of a pandas object."""

    examples: Iterator[Example]
    is_single: bool = False
    is_lazy: bool = False  # the input is an iterator, which is read while predictions are made
    index: Any = None


def read_prediction_input(
    task: Task, data: Any, columns: Mapping[str, str] | None = None, notes: list[str] | None = None
) -> PredictionInput:
    """Read the input of `predict` as examples of a task.

    A string is one text (for a task with images or recordings, the path of one file); a `pathlib.Path` is a data file; a
    dictionary is one record; a DataFrame, an Arrow table or a list of dictionaries has one row per example; any other iterable
    has one item per example, where a tuple of texts is one example of a task with several inputs.
    """
    roles = task.input_roles()
    kind = roles[0].kind
    if isinstance(data, Mapping):
        return PredictionInput(_read_rows(task, [data], columns, notes), is_single=True)
    if (
        isinstance(data, str)
        or _is_image(data)
        or (isinstance(data, bytes) and kind in MEDIA)
        or (isinstance(data, Path) and kind in MEDIA and find_media_kind(data.name) == kind)
        or (isinstance(data, np.ndarray) and kind == "audio" and data.ndim == 1)
    ):
        return PredictionInput(iter([_make_example(task, data)]), is_single=True)
    if isinstance(data, tuple) and len(roles) > 1 and _are_texts(cast(tuple[Any, ...], data), len(roles)):
        return PredictionInput(iter([_make_example(task, data)]), is_single=True)
    if kind == "numbers" and _is_number_row(data):
        return PredictionInput(iter([_make_example(task, data)]), is_single=True)
    if isinstance(data, os.PathLike):
        path = os.fspath(cast(os.PathLike[str], data))
        return PredictionInput(
            stream_task_examples(task, [path], task.input_roles([path]), without_gold(task, columns), notes)
        )
    if is_table(data):
        return PredictionInput(_read_rows(task, data, columns, notes), index=table_index(data))
    if not isinstance(data, Iterable):
        raise UsageError(
            f"predict takes texts, records, a table or a file; got {type(data).__name__}. Pass a string, a list of strings, "
            "a DataFrame or a pathlib.Path."
        )
    return _read_items(task, cast(Iterable[Any], data), columns, notes)


def _read_items(
    task: Task, data: Iterable[Any], columns: Mapping[str, str] | None, notes: list[str] | None
) -> PredictionInput:
    """Read a list, a Series, an array or an iterator with one item per example."""
    is_lazy, index = isinstance(data, Iterator), table_index(data)
    for name in ("to_list", "tolist", "to_pylist"):  # a pandas or polars Series, a NumPy or Arrow array
        if hasattr(data, name):
            data = getattr(data, name)()
            break
    items = iter(data)
    first = next(items, None)
    if first is None:
        return PredictionInput(iter(()), is_lazy=is_lazy, index=index)
    items = chain([first], items)
    if isinstance(first, Mapping):
        return PredictionInput(_read_rows(task, items, columns, notes), is_lazy=is_lazy)
    examples = (_make_example(task, item, number) for number, item in enumerate(items, 1))
    return PredictionInput(examples, is_lazy=is_lazy, index=index)


def _read_rows(task: Task, rows: Any, columns: Mapping[str, str] | None, notes: list[str] | None) -> Iterator[Example]:
    roles = task.input_roles()
    resolved = resolve_columns(task, roles, without_gold(task, columns))
    return read_table(rows, roles, columns=resolved, name="data", notes=notes)


def _make_example(task: Task, item: Any, number: int = 1) -> Example:
    """Make one example from a text, several texts, an image, a recording or a row of numbers."""
    roles = task.input_roles()
    if roles[0].kind in MEDIA:
        value = (
            np.asarray(item) if isinstance(item, Image.Image) else os.fspath(item) if isinstance(item, Path) else item
        )
        return Example({roles[0].name: value}, "data", number)
    if roles[0].kind == "numbers":
        return Example({roles[0].name: [float(value) for value in np.ravel(item).tolist()]}, "data", number)
    texts: Any = (item,) if isinstance(item, str) else item
    if not _are_texts(texts, len(roles)):
        names = " and ".join(role.name for role in roles)
        expected = "one string per example" if len(roles) == 1 else "a tuple of strings per example, or dictionaries"
        raise UsageError(f"Item {number} is {item!r:.60}; {task.name} reads {names}. Pass {expected}.")
    if not task.predicts_per_example:  # language modeling, pretraining: the text is the example itself, not a prompt
        return Example(dict(zip((role.name for role in roles), texts, strict=True)), "data", number)
    return Example(task.make_record(*texts), "data", number)


def _are_texts(values: Any, count: int) -> bool:
    """Whether a value is a sequence of this many strings."""
    if not isinstance(values, Sequence):
        return False
    items = cast(Sequence[Any], values)
    return len(items) == count and all(isinstance(text, str) for text in items)


def _is_image(data: Any) -> bool:
    array: Any = data
    if isinstance(data, Image.Image):
        return True
    return isinstance(data, np.ndarray) and array.dtype == np.uint8 and array.ndim in (2, 3)


def _is_number_row(data: Any) -> bool:
    values: Any = data
    if isinstance(data, int | float):
        return True
    return isinstance(data, Sequence | np.ndarray) and len(values) > 0 and all(np.isscalar(value) for value in values)
