"""Presentation: how a task and its answers are named and shown, to people and to other programs."""

from dataclasses import dataclass
from typing import Any, ClassVar

from saccade.data import Example, Role
from saccade.tasks.interface.predictions import Prediction


@dataclass(frozen=True)
class ErrorRow:
    """A wrong answer as a person sees it: some words by column, and how sure the model was; 0 where that is not known."""

    cells: dict[str, str]
    confidence: float = 0.0


@dataclass(frozen=True)
class Prompt:
    """How a language model is asked that was not trained for a task: the roles, the answer's last, and a template."""

    roles: tuple[Role, ...]
    template: str


class TaskPresentation:
    description: ClassVar[str]  # one line for a person
    verb: ClassVar[str] = "predict"  # the command that asks a model of it
    hub_pipeline: str = ""  # what the hub calls it; "" where it has no name for it
    prompt: ClassVar[Prompt | None] = None  # how a language model is asked; None where it cannot be
    takes_two_texts: ClassVar[bool] = False
    reads_sentences: bool = False  # a sentence is something that a model for it can be given
    record_format: str = ""  # what it writes instead of sentences, such as tunes or molecules
    scores_sentences: bool = False  # a model for it says how likely a sentence is
    no_prediction_reason: str = "this input is not an example of the task that the model was trained for"

    def to_prediction(self, answer: Any, example: Example) -> Prediction:
        """The answer to an example as a typed record, for people and for other programs."""
        raise NotImplementedError

    def error_row(self, answer: Any, example: Example) -> ErrorRow | None:
        """What a report says of a wrong answer; None where it is right, or where there is no right and wrong."""
        return None

    def confusion_pair(self, answer: Any, example: Example) -> tuple[str, str] | None:
        """The right class and the one that was answered, where an answer is one of a few classes."""
        return None
