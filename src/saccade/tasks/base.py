"""The base class of tasks: how examples become batches, the training loss, the predictions, and how they are scored.

A task knows nothing of model families. It declares what it needs of a model (`Needs`) and uses only its head and `Batch`.
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
from saccade.tasks.interface.learning import Baseline, BaselineMethod, Defaults, TaskLearning
from saccade.tasks.interface.presenting import ErrorRow, Prompt, TaskPresentation
from saccade.tasks.needs import Needs
from saccade.text.tokenizer import MAX_TEXT_CHARACTERS

__all__ = [
    "Baseline",
    "BaselineMethod",
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
    """A task, an entry of TASKS. `config` holds the settings; what is learned from the data, such as labels, is set by `fit`."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()  # other names that users may type
    Config: ClassVar[type]
    needs: Needs  # input modality, kind of generation and head that a model must have

    def __init__(self, config: Any = None, labels: Sequence[str] = ()):
        self.config: Any = config or self.Config()
        metric = getattr(self.config, "metric", "")
        if self.metric_names and metric not in self.metric_names:
            raise UsageError(f"task.metric is {metric!r}; known are {', '.join(self.metric_names)}.")
        self.labels: tuple[str, ...] = tuple(labels)
        self.tuned_settings: dict[str, Any] = {}  # settings chosen by `tune`; stored with a finished run

    @property
    def title(self) -> str:
        """The name of the task as messages print it."""
        return self.name

    @classmethod
    def from_head(cls, model: Model) -> Self | None:
        """The task for a model loaded without a run; None if the model's head or output does not fit the task."""
        task = cls(labels=model.labels)
        return task if task.accepts_model(model) else None

    def accepts_model(self, model: Model) -> bool:
        """Whether a model has the head and the kind of output that the task needs."""
        return model.head_name == self.needs.head and self.needs.is_satisfied_by(model.family, model.config)

    def settings_from_model(self, model: Model) -> dict[str, Any]:
        """Settings of the task that follow from a stored model, for runs that do not record them."""
        return {}

    def configure_from_model(self, model: Model) -> None:
        """Read from a loaded model what the task must know about it; most tasks need nothing."""

    def task_for_record(self, record: dict[str, Any]) -> "Task | None":
        """The task that predicts a record with the same head; None if the record has no input for it."""
        return self if self.parse_input(record) is not None else None


def pad_sources(items: Sequence[Item]) -> Text:
    """The source tokens of items, padded into one `Text`."""
    segments = [item.segment_ids.tolist() for item in items if item.segment_ids is not None]
    return Text.pad([item.source.tolist() for item in items], segment_ids=segments or None)


def encode_texts(
    texts: Sequence[str], model: Model, max_tokens: int, *, target: bool = False
) -> Iterator[tuple[np.ndarray, np.ndarray, Any]]:
    """Token ids, segment ids and encoding of each text, truncated to `max_tokens` or to the model's maximum positions."""
    tokenizer = require_tokenizer(model)
    if target:
        tokenizer = tokenizer.target
    limit = min(max_tokens, model.max_positions or max_tokens)
    for encoding in tokenizer.encode_iter(texts, max_tokens=limit):
        yield np.array(encoding.ids, np.int32), np.array(encoding.segment_ids, np.int8), encoding


def check_text_length(text: str, example: Example, column: str) -> None:
    """Raise an error for a text that is too long to be tokenized as a whole, for tasks that read all of it."""
    if len(text) > MAX_TEXT_CHARACTERS:
        raise DataError(
            f"the text has {len(text):,} characters; at most {MAX_TEXT_CHARACTERS:,} are supported",
            file=example.file,
            line=example.line if example.file else 0,
            column=column,
            value=text,
            hint="split it into several records",
        )


def require_tokenizer(model: Model) -> Any:
    if model.tokenizer is None:
        raise ModelError("This model has no tokenizer; load it from a directory with tokenizer files.")
    return model.tokenizer
