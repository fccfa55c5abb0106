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
from saccade.tasks.interface.learning import Baseline, Defaults, TaskLearning
from saccade.tasks.interface.presenting import ErrorRow, Prompt, TaskPresentation
from saccade.tasks.needs import Needs
from saccade.text.tokenizer import MAX_TEXT_CHARACTERS

__all__ = [
    "Baseline",
    "Defaults",
    "ErrorRow",
    "Item",
    "Prompt",
    "Task",
    "encode_texts",
    "pad_sources",
    "require_tokenizer",
]


class Task(TaskData, TaskEncoding, TaskLearning, TaskAnswers, TaskPresentation):
    """One line of TASKS. `config` holds numbers and names; what is learnt of the data (labels) is set by `fit`."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()  # what else people call it
    Config: ClassVar[type]
    needs: Needs  # what a model has to read and to generate, and the head that answers are read off

    def __init__(self, config: Any = None, labels: Sequence[str] = ()):
        self.config = config or self.Config()
        metric = getattr(self.config, "metric", "")
        if self.metric_names and metric not in self.metric_names:
            raise UsageError(f"task.metric is {metric!r}; known are {', '.join(self.metric_names)}.")
        self.labels = tuple(labels)
        self.tuned_settings: dict[str, Any] = {}  # settings that `tune` chose; a finished run is opened with them

    @property
    def title(self) -> str:
        """What it is called in a sentence."""
        return self.name

    @classmethod
    def from_head(cls, model: Model) -> Self | None:
        """The task of a model that came without a run, if its head, or what it generates, is for this task."""
        made = cls(labels=model.labels)
        return made if made.accepts_model(model) else None

    def accepts_model(self, model: Model) -> bool:
        """Whether a model has the head, or generates what, the task needs."""
        return model.head_name == self.needs.head and self.needs.is_satisfied_by(model.family, model.config)

    def settings_from_model(self, model: Model) -> dict[str, Any]:
        """Settings of the task that a stored model decides, where its run does not say them."""
        return {}

    def configure_from_model(self, model: Model) -> None:
        """Take from a model that was opened what has to be known of it: for most tasks, nothing."""

    def task_for_record(self, record: dict[str, Any]) -> "Task | None":
        """The task of a record for the same head; None where there is nothing to answer."""
        return self if self.parse_input(record) is not None else None


def pad_sources(items: Sequence[Item]) -> Text:
    """What the items read, padded."""
    segments = [item.segment_ids.tolist() for item in items if item.segment_ids is not None]
    return Text.pad([item.source.tolist() for item in items], segment_ids=segments or None)


def encode_texts(
    texts: Sequence[str], model: Model, max_tokens: int, *, target: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray, Any]]:
    """Ids, segments and all else of each text, cut at `length` tokens or at what the model reads."""
    tokenizer = require_tokenizer(model)
    if target:
        tokenizer = tokenizer.target
    limit = min(max_tokens, model.max_positions or max_tokens)
    for found in tokenizer.encode_iter(texts, max_tokens=limit):
        yield np.array(found.ids, np.int32), np.array(found.segment_ids, np.int8), found


def check_text_length(text: str, example: Example, column: str) -> None:
    """Refuse a text that is too long to be tokenized as a whole, where a task reads all of it."""
    if len(text) > MAX_TEXT_CHARACTERS:
        raise DataError(
            f"the text has {len(text):,} characters; at most {MAX_TEXT_CHARACTERS:,} are read as one text",
            file=example.file,
            line=example.line if example.file else 0,
            column=column,
            value=text,
            hint="divide it into several records",
        )


def require_tokenizer(model: Model) -> Any:
    if model.tokenizer is None:
        raise ModelError("This model came without a tokenizer; load it from a directory that has tokenizer files.")
    return model.tokenizer
