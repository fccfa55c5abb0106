"""What a task is: how examples become batches, what is lost on them, what is answered, and how good the answers are.

A task knows nothing of families. It says what it needs of a model (`Needs`), and meets it in a head and in `Batch`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from saccade.data import Example, Text
from saccade.errors import DataError, ModelError, UsageError
from saccade.models.model import Model
from saccade.tasks.interface.answering import TaskAnswers
from saccade.tasks.interface.data import TaskData
from saccade.tasks.interface.encoding import Item, TaskEncoding
from saccade.tasks.interface.learning import Baseline, Choices, TaskLearning
from saccade.tasks.interface.presenting import Prompt, TaskPresentation, Wrong
from saccade.tasks.needs import Needs
from saccade.text.tokenizer import LIMIT

__all__ = ["Baseline", "Choices", "Item", "Prompt", "Task", "Wrong", "encoded", "need_tokenizer", "sources"]


class Task(TaskData, TaskEncoding, TaskLearning, TaskAnswers, TaskPresentation):
    """One line of TASKS. `config` holds numbers and names; what is learnt of the data (labels) is set by `fit`."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()  # what else people call it
    Config: ClassVar[type]
    needs: Needs  # what a model has to read and to generate, and the head that answers are read off

    def __init__(self, config: Any = None, labels: Sequence[str] = ()):
        self.config = config or self.Config()
        metric = getattr(self.config, "metric", "")
        if self.watched and metric not in self.watched:
            raise UsageError(f"task.metric is {metric!r}; known are {', '.join(self.watched)}.")
        self.labels = tuple(labels)
        self.tuned: dict[str, Any] = {}  # settings that `tune` chose; a finished run is opened with them

    @property
    def title(self) -> str:
        """What it is called in a sentence."""
        return self.name

    @classmethod
    def from_head(cls, model: Model) -> Self | None:
        """The task of a model that came without a run, if its head, or what it generates, is for this task."""
        made = cls(labels=model.labels)
        return made if made.suits(model) else None

    def suits(self, model: Model) -> bool:
        """Whether a model has the head, or generates what, the task needs."""
        return model.kind == self.needs.head and self.needs.met_by(model.family, model.config)

    def stored_settings(self, model: Model) -> dict[str, Any]:
        """Settings of the task that a stored model decides, where its run does not say them."""
        return {}

    def meet(self, model: Model) -> None:
        """Take from a model that was opened what has to be known of it: for most tasks, nothing."""

    def suited_to(self, values: dict[str, Any]) -> "Task | None":
        """The task of a record for the same head; None where there is nothing to answer."""
        return self if self.parse_input(values) is not None else None


def sources(items: Sequence[Item]) -> Text:
    """What the items read, padded."""
    segments = [item.segments.tolist() for item in items if item.segments is not None]
    return Text.of([item.source.tolist() for item in items], segments=segments or None)


def encoded(
    texts: Sequence[str], model: Model, length: int, *, target: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray, Any]]:
    """Ids, segments and all else of each text, cut at `length` tokens or at what the model reads."""
    tokenizer = need_tokenizer(model)
    if target:
        tokenizer = tokenizer.target
    limit = min(length, model.limit or length)
    for found in tokenizer.encode_each(texts, truncate=limit):
        yield np.array(found.ids, np.int32), np.array(found.segments, np.int8), found


def check_length(text: str, example: Example, column: str) -> None:
    """Refuse a text that is too long to be tokenized as a whole, where a task reads all of it."""
    if len(text) > LIMIT:
        raise DataError(
            f"the text has {len(text):,} characters; at most {LIMIT:,} are read as one text",
            file=example.file,
            line=example.line if example.file else 0,
            column=column,
            value=text,
            cure="divide it into several records",
        )


def need_tokenizer(model: Model) -> Any:
    if model.tokenizer is None:
        raise ModelError("This model came without a tokenizer; load it from a directory that has tokenizer files.")
    return model.tokenizer
