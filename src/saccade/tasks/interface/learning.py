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
    """A simple method, fitted to training examples: how messages describe it, and its answers, as `task.score` takes them."""

    description: str
    predict: Callable[[Sequence[Example]], list[Any]]

    @classmethod
    def from_rule(cls, description: str, answer: Callable[[Example], Any]) -> "Baseline":
        """A baseline that answers each example by itself."""
        return cls(description, lambda examples: [answer(example) for example in examples])


@dataclass(frozen=True)
class BaselineMethod:
    """A simple method that a model has to beat; `fit` takes the training examples and the dev examples, for its choices."""

    name: str
    fit: Callable[[Sequence[Example], Sequence[Example]], Baseline]
    needs_training: bool = True  # False: it only counts or copies, and is measured even for a short run


class TaskLearning:
    needs_unsplit_batch = False  # no data parallelism or gradient accumulation: a step needs its whole batch
    tracks_dev_loss = True  # evaluation during training also measures the dev loss, which breaks ties between scores
    min_examples: ClassVar[int] = (
        0  # training examples that a model trained from scratch needs to beat the baseline clearly
    )
    baseline_metric: ClassVar[str] = ""  # the score by which a model is compared with baselines; "" is the first
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

    def baselines(self) -> Sequence[BaselineMethod]:
        """The simple methods that a model is compared with, the fastest first."""
        return ()
