"""Predictions of a task: how a model answers a batch, how answers are scored, and how two answers are compared."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from saccade.data import Batch, Example
from saccade.data.counterfactual import Counterfactual
from saccade.decoding.beam import Hypothesis
from saccade.decoding.generator import TextGenerator
from saccade.errors import UsageError
from saccade.metrics import ClassScore, Score
from saccade.models.model import Model
from saccade.tasks.interface.encoding import Item


class TaskAnswers:
    name: ClassVar[str]
    multi_label = False  # multi-label classification
    metric_names: ClassVar[tuple[str, ...]] = ()  # values of `task.metric`, for tasks with a choice of metrics
    predicts_number = False  # regression: answers are compared by their difference
    has_right_answers = False  # answers are right or wrong, and a counterfactual does not change which
    compares_label_rates = False  # answers are labels, whose rates can be compared between examples and counterfactuals
    counterfactual_roles: ClassVar[tuple[str, ...]] = ()  # roles whose words are swapped in a counterfactual
    preserved_gold_roles: ClassVar[tuple[str, ...]] = ()  # gold roles that stay valid in a counterfactual

    def answer(self, model: Model, batch: Batch) -> list[Any]:
        """The prediction for each row of a batch, as JSON-serializable values."""
        raise NotImplementedError

    def generate(self, generator: TextGenerator, batch: Batch) -> list[list[Hypothesis]]:
        """Generated hypotheses for each row, best first, with the decoding settings of the generator."""
        raise UsageError(f"{self.name} does not generate text; leave out the decoding flags.")

    def merge_answers(self, answers: Sequence[Any], items: Sequence[Item]) -> list[Any]:
        """One answer per example, from the answers to its items; an example may have several, such as windows."""
        return list(answers)

    def tune(self, answers: Sequence[Any], examples: Sequence[Example]) -> None:
        """Set `tuned_settings`, such as a threshold, by the answers to held-out data; most tasks have none."""

    def describe_tuning(self) -> str:
        """What `tune` chose, as a sentence for the log and the report; "" for most tasks."""
        return ""

    @property
    def label_thresholds(self) -> Mapping[str, float]:
        """The decision threshold of each label (multi-label), which is saved with the model; empty for other tasks."""
        return {}

    def score(self, answers: Sequence[Any], examples: Sequence[Example]) -> list[Score]:
        """The scores of answers; the first is the metric that selects the best checkpoint."""
        raise NotImplementedError

    def class_scores(self, answers: Sequence[Any], examples: Sequence[Example]) -> list[ClassScore]:
        """Precision, recall and F1 of each class; empty for tasks whose predictions are not classes."""
        return []

    def scoring_settings(self, model: Model) -> dict[str, int]:
        """Settings that a score depends on, such as the window size of a perplexity; most tasks have none."""
        return {}

    def to_comparable(self, answer: Any, example: Example) -> Any:
        """An answer as a value that can be compared with the answer to another example."""
        return answer

    def map_to_counterfactual(self, value: Any, counterfactual: Counterfactual) -> Any:
        """A comparable answer mapped to the counterfactual example; offsets into its text are shifted."""
        return value
