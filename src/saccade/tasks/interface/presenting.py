"""Presentation of a task: its description, its prompt, and how its predictions are shown to people and programs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from saccade.data import Example, Role
from saccade.metrics import ConfusionMatrix, confusion_matrix
from saccade.tasks.interface.predictions import Prediction

PROBABILITY_CELL = "probability"  # of a wrong prediction, as text


@dataclass(frozen=True)
class ErrorRow:
    """A row of an error table: the cells by column, and by what rows are sorted, the worst first.

    That is the probability of a wrong prediction, or the absolute error of a predicted number. `numbers` are the unrounded
    values of cells.
    """

    cells: dict[str, str]
    confidence: float = 0.0  # 0 if it is unknown, or if the prediction is a number
    absolute_error: float | None = None  # None if the prediction is not a number
    numbers: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_probability(cls, cells: dict[str, str], probability: float) -> "ErrorRow":
        """The row of a wrong prediction with its probability."""
        return cls({**cells, PROBABILITY_CELL: f"{probability:.0%}"}, probability)

    @classmethod
    def from_numbers(cls, inputs: dict[str, str], gold: float, answer: float) -> "ErrorRow | None":
        """The row of a predicted number; None if it is exact."""
        numbers = {"gold": gold, "answer": answer, "absolute_error": abs(answer - gold)}
        cells = {**inputs, **{name: f"{value:.4g}" for name, value in numbers.items()}}
        return None if gold == answer else cls(cells, absolute_error=numbers["absolute_error"], numbers=numbers)

    @property
    def sort_key(self) -> float:
        """The value by which rows are sorted, largest first."""
        return self.confidence if self.absolute_error is None else self.absolute_error


@dataclass(frozen=True)
class Prompt:
    """The few-shot prompt of a task for a language model: the roles, the answer last, and a template."""

    roles: tuple[Role, ...]
    template: str


class TaskPresentation:
    description: ClassVar[str]  # one line
    verb: ClassVar[str] = "predict"  # the command that predicts with a model of the task
    hub_pipeline: str = ""  # pipeline tag on the Hugging Face hub; "" if it has none
    prompt: ClassVar[Prompt | None] = None  # prompt for a language model; None if few-shot prediction is not supported
    takes_two_texts: ClassVar[bool] = False
    reads_sentences: bool = False  # a sentence is a valid input
    record_format: str = ""  # format of the generated records where they are not sentences, such as tunes or molecules
    scores_sentences: bool = False  # a model of the task can measure the likelihood of a sentence
    has_mistakes: bool = (
        False  # an answer is right or wrong, or a number with an error: an evaluation can list the mistakes
    )
    no_prediction_reason: str = "this input is not an example of the task that the model was trained for"

    def to_prediction(self, answer: Any, example: Example) -> Prediction:
        """An answer as a typed record."""
        raise NotImplementedError

    def error_row(self, answer: Any, example: Example) -> ErrorRow | None:
        """The row of a wrong answer in an error report; None if the answer is right or cannot be wrong."""
        return None

    def confusion_matrix(self, answers: Sequence[Any], examples: Sequence[Example]) -> ConfusionMatrix | None:
        """Counts of each gold label and predicted label; None for a task whose predictions are not classes."""
        pairs = [self.confusion_pair(answer, example) for answer, example in zip(answers, examples, strict=True)]
        classes = [pair for pair in pairs if pair is not None]
        return confusion_matrix([gold for gold, _ in classes], [answer for _, answer in classes]) if classes else None

    def confusion_pair(self, answer: Any, example: Example) -> tuple[str, str] | None:
        """The gold and the predicted class, for classification tasks."""
        return None
