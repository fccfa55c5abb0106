"""Answers: what a model says of a batch, how good that is, and how two answers are compared."""

from collections.abc import Sequence
from typing import Any, ClassVar

from saccade.data import Batch, Example
from saccade.data.counterfactual import Counterfactual
from saccade.decoding.beam import Hypothesis
from saccade.decoding.generator import TextGenerator
from saccade.errors import UsageError
from saccade.metrics import Score
from saccade.models.model import Model
from saccade.tasks.interface.encoding import Item


class TaskAnswers:
    name: ClassVar[str]
    multi_label = False  # several labels at once
    metric_names: ClassVar[tuple[str, ...]] = ()  # what `task.metric` may name, where there is a choice
    predicts_number = False  # an answer is a number, so two of them differ by more or less
    has_right_answers = False  # an answer is right or wrong, and stays so when words of a group are exchanged
    compares_label_rates = False  # an answer is one of a few labels, which can be counted on both sides of an exchange
    counterfactual_roles: ClassVar[tuple[str, ...]] = ()  # the roles whose words may be exchanged to compare answers
    preserved_gold_roles: ClassVar[tuple[str, ...]] = ()  # the gold that stays true when they are

    def answer(self, model: Model, batch: Batch) -> list[Any]:
        """An answer for each row, as plain values that JSON can hold."""
        raise NotImplementedError

    def generate(self, generator: TextGenerator, batch: Batch) -> list[list[Hypothesis]]:
        """What a model writes for each row in a way that the user chose, the best first; `answer` writes the likeliest."""
        raise UsageError(f"{self.name} does not write, so there is no way to write to choose; leave those flags out.")

    def merge_answers(self, answers: Sequence[Any], items: Sequence[Item]) -> list[Any]:
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

    def to_comparable(self, answer: Any, example: Example) -> Any:
        """What an answer says, as a value that can be compared with that of another example."""
        return answer

    def map_to_counterfactual(self, value: Any, counterfactual: Counterfactual) -> Any:
        """What was said of an example, as it would be said of its counterpart: places in a text move along."""
        return value
