"""Training of a task: default hyperparameters, the loss of a batch, the baseline, and data augmentation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from saccade.data import Batch, Example
from saccade.models.model import Model
from saccade.tasks.classification.calibration import Calibration


@dataclass(frozen=True)
class Defaults:
    """The defaults of a task: a model family, its sizes, and training hyperparameters."""

    family: str
    model: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Baseline:
    """A prediction rule without a model, such as the most frequent label, with a description of it."""

    description: str
    answer: Callable[[Example], Any]


class TaskLearning:
    needs_unsplit_batch = False  # no data parallelism or gradient accumulation: a step needs its whole batch
    tracks_dev_loss = True  # evaluation during training also measures the dev loss, which breaks ties between scores
    min_examples: ClassVar[int] = (
        0  # training examples that a model trained from scratch needs to beat the baseline clearly
    )
    class_weights: Sequence[float] = ()  # weight of each label in the loss, set by `fit`; empty if all weigh the same
    augment_roles: ClassVar[tuple[str, ...]] = ()  # roles whose words `task.augment counterfactual` swaps
    no_augment_reason: ClassVar[str] = ""  # why the task has no `task.augment counterfactual`

    def default_family(self) -> str:
        """The default model family."""
        raise NotImplementedError

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        """Default hyperparameters for the data, to train a model from scratch or to fine-tune a pretrained one."""
        raise NotImplementedError

    def prepare_model(self, model: Model, examples: Sequence[Example]) -> None:
        """Initialize a new model from the training data before training; most tasks need nothing."""

    def attach_training_modules(self, model: Model) -> None:
        """Attach modules that a model has only during training; most tasks have none."""

    def before_step(self, model: Model, step: int, total_steps: int) -> None:
        """Called before each training step, to update what is scheduled by the step number; most tasks need nothing."""

    def count_targets(self, batch: Batch) -> int:
        """The number of targets by which the summed loss is divided: examples, words or tokens."""
        raise NotImplementedError

    def loss(self, model: Model, batch: Batch) -> Tensor:
        """The summed loss of a batch."""
        raise NotImplementedError

    def calibrate(self, answers: Sequence[Any], examples: Sequence[Example]) -> Calibration | None:
        """The calibration of the probabilities by the answers to held-out data; most tasks have none."""
        return None

    def baseline(self, train: Sequence[Example]) -> Baseline | None:
        """The best rule that ignores the input, by counts of the training examples; None if there is none."""
        return None
