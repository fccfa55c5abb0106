"""Learning: what is chosen where nobody says, what is lost on a batch, and what the training data can be joined by."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from saccade.data import Batch, Example
from saccade.models.model import Model


@dataclass(frozen=True)
class Defaults:
    """What a task would choose where the user did not: a family, its sizes, and how to train."""

    family: str
    model: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Baseline:
    """A rule that answers without a model, such as the most frequent label: what it does, and its answer to an example."""

    description: str
    answer: Callable[[Example], Any]


class TaskLearning:
    needs_unsplit_batch = False  # a step cannot be shared by processes, nor read in parts
    tracks_dev_loss = True  # evaluations in training measure the loss too, which decides between models of equal scores
    min_examples: ClassVar[int] = 0  # from which on a new model does much better than a baseline, with many words
    augment_roles: ClassVar[tuple[str, ...]] = ()  # the roles whose words `task.augment counterfactual` exchanges
    no_augment_reason: ClassVar[str] = (
        ""  # why there is no `task.augment counterfactual`: the gold of a copy would be wrong, or unknown
    )

    def default_family(self) -> str:
        """The family it takes where nobody names one."""
        raise NotImplementedError

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        """Sizes and rates that suit the data, for a new model or for one that has been trained before."""
        raise NotImplementedError

    def prepare_model(self, model: Model, examples: Sequence[Example]) -> None:
        """Give a new model what it needs of the data before it learns: for most tasks, nothing."""

    def attach_training_modules(self, model: Model) -> None:
        """Give a model, new or loaded, what it has only while it learns: for most tasks, nothing."""

    def before_step(self, model: Model, step: int, total_steps: int) -> None:
        """Hear how far training is, before each step; what changes with time is a function of it: for most, nothing."""

    def count_targets(self, batch: Batch) -> int:
        """By what a summed loss is divided: examples, words or tokens."""
        raise NotImplementedError

    def loss(self, model: Model, batch: Batch) -> Tensor:
        """The loss, summed."""
        raise NotImplementedError

    def baseline(self, train: Sequence[Example]) -> Baseline | None:
        """The best rule that reads no text, by the counts of the training examples; None where there is no such rule."""
        return None
