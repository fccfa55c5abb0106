"""What a task is: how examples become batches, what is lost on them, what is answered, and how good the answers are.

A task knows nothing of families. It says what it needs of a model (`Needs`), and meets it in a head and in `Batch`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from torch import Tensor

from saccade.data import Batch, Example, Role, Text
from saccade.decoding.beam import Hypothesis
from saccade.decoding.ways import Ways
from saccade.errors import DataError, ModelError, UsageError
from saccade.models.model import Model
from saccade.tasks.metrics import Score
from saccade.tasks.needs import Needs
from saccade.text.tokenizer import LIMIT


@dataclass(frozen=True)
class Item:
    """One example as numbers: what is read, what should be written, what should be said, and what that costs in tokens."""

    example: Example
    source: np.ndarray  # ids (L,), or pixels (channels, rows, columns)
    target: np.ndarray | None = None  # ids (T,)
    gold: Any = None
    segments: np.ndarray | None = None
    words: tuple[int, ...] = ()  # the token that speaks for each word

    @property
    def lengths(self) -> tuple[int, int]:
        """Tokens of the source and of the target; a picture counts as one."""
        read = len(self.source) if self.source.ndim == 1 else 1
        return read, 0 if self.target is None else len(self.target)


@dataclass(frozen=True)
class Wrong:
    """A wrong answer as a person sees it: some words by column, and how sure the model was; 0 where that is not known."""

    row: dict[str, str]
    sure: float = 0.0


@dataclass(frozen=True)
class Choices:
    """What a task would choose where the user did not: a family, its sizes, and how to train."""

    family: str
    model: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)


class Task:
    """One line of TASKS. `config` holds numbers and names; what is learnt of the data (labels) is set by `fit`."""

    name: ClassVar[str]
    said: ClassVar[str]  # one line for a person
    Config: ClassVar[type]
    needs: Needs  # what a model has to read and to generate, and the head that answers are read off
    frame: str = "none"  # what a tokenizer trained for it puts around a text
    extra: tuple[str, ...] = ()  # further special tokens of a tokenizer trained for it
    sample: str  # the built-in data it runs on when there is no file
    running: bool = False  # running text, whose last tenth is held out, not one line in ten
    many = False  # several labels at once
    lone = False  # a step cannot be shared by processes, nor read in parts
    tracks_dev_loss = True  # evaluations in training measure the loss too, which decides between models of equal scores
    watched: ClassVar[tuple[str, ...]] = ()  # what `task.metric` may name, where there is a choice
    exchanged: ClassVar[tuple[str, ...]] = ()  # the roles whose words `task.augment swap` exchanges
    cuts: bool = True  # a text longer than task.length loses its end; otherwise it is read in pieces
    named: Mapping[str, str] = MappingProxyType({})  # the columns that the user named, role by role
    noticed: tuple[str, ...] = ()  # what `fit` saw in the data, in lines for a person

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

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        """What it asks of a record; without its gold a record can still be answered."""
        raise NotImplementedError

    def fit(self, examples: Sequence[Example]) -> None:
        """Learn what has to be known of the data before a model is built: for most tasks, nothing."""

    def usual(self) -> str:
        """The family it takes where nobody names one."""
        raise NotImplementedError

    def choices(self, examples: Sequence[Example], pretrained: bool) -> Choices:
        """Sizes and rates that suit the data, for a new model or for one that has been trained before."""
        raise NotImplementedError

    def teach(self, model: Model, examples: Sequence[Example]) -> None:
        """Give a new model what it needs of the data before it learns: for most tasks, nothing."""

    def equip(self, model: Model) -> None:
        """Give a model, new or loaded, what it has only while it learns: for most tasks, nothing."""

    def onward(self, model: Model, done: int, horizon: int) -> None:
        """Hear how far training is, before each step; what changes with time is a function of it: for most, nothing."""

    def texts(self, examples: Iterable[Example]) -> Iterator[str]:
        """The texts that a tokenizer is trained on."""
        raise NotImplementedError

    def items(self, examples: Sequence[Example], model: Model) -> list[Item]:
        """Examples as numbers."""
        raise NotImplementedError

    def batch(self, items: Sequence[Item]) -> Batch:
        """Items side by side, padded."""
        raise NotImplementedError

    def count(self, batch: Batch) -> int:
        """By what a summed loss is divided: examples, words or tokens."""
        raise NotImplementedError

    def loss(self, model: Model, batch: Batch) -> Tensor:
        """The loss, summed."""
        raise NotImplementedError

    def answer(self, model: Model, batch: Batch) -> list[Any]:
        """An answer for each row, as plain values that JSON can hold."""
        raise NotImplementedError

    def written(self, ways: Ways, batch: Batch) -> list[list[Hypothesis]]:
        """What a model writes for each row in a way that the user chose, the best first; `answer` writes the likeliest."""
        raise UsageError(f"{self.name} does not write, so there is no way to write to choose; leave those flags out.")

    def gathered(self, answers: Sequence[Any], items: Sequence[Item]) -> list[Any]:
        """An answer for each example, where an example may have been several items."""
        return list(answers)

    def tune(self, answers: Sequence[Any], examples: Sequence[Example]) -> None:
        """Set `tuned` to what is chosen on held-out data, by the answers to them: for most tasks, nothing."""

    def score(self, answers: Sequence[Any], examples: Sequence[Example]) -> list[Score]:
        """How good the answers are; the first score is the one that training watches."""
        raise NotImplementedError

    def scoring_settings(self, model: Model) -> dict[str, int]:
        """What a score depends on beside the model and the data, such as the window of a perplexity: for most tasks, nothing."""
        return {}

    def hidden(self, examples: Sequence[Example]) -> list[bool]:
        """Of each example whether its gold is kept back, as that of some test sets is: for most tasks, never."""
        return [False] * len(examples)

    def shown(self, answer: Any, example: Example) -> dict[str, Any]:
        """An answer as a person or a program gets it."""
        return answer

    def wrong(self, answer: Any, example: Example) -> Wrong | None:
        """What a report says of a wrong answer; None where it is right, or where there is no right and wrong."""
        return None

    def confused(self, answer: Any, example: Example) -> tuple[str, str] | None:
        """The right class and the one that was answered, where an answer is one of a few classes."""
        return None

    def told(self, shown: dict[str, Any]) -> str:
        """The same in one line."""
        raise NotImplementedError


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
