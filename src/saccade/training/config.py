"""Training hyperparameters: the table [train] of a run."""

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.data.held_out import HeldOut

# settings that may change when a run resumes: they only decide when to stop or save, and on which device to train
CHANGEABLE_ON_RESUME = (
    "max_steps",
    "max_minutes",
    "save_minutes",
    "save_every",
    "patience",
    "device",
    "on_nan",
    "fsdp",
)


@dataclass(frozen=True)
class Config:
    seed: int = 0
    """Random seed of the initial weights, the order of examples and dropout."""
    epochs: int = 10
    """Length of the learning-rate schedule in epochs (passes over the training data)."""
    batch_tokens: int = 4096
    """Batch size in tokens per step, padding included."""
    batch_size: int = 0
    """Batch size: maximum number of examples per step; 0 lets `batch_tokens` alone decide."""
    micro_batches: int = 1
    """Gradient accumulation: number of micro-batches per step. Less memory, same gradient; `batch_tokens` stays the total."""
    optimizer: str = "adamw"
    """Optimizer: adamw, or muon, which orthogonalizes the updates of the matrices inside the layers."""
    lr: float = 1e-3
    """Peak learning rate, reached at the end of warmup."""
    schedule: str = "linear"
    """Learning-rate schedule after warmup: linear, cosine, inverse_sqrt or constant."""
    warmup: float = 0.1
    """Learning-rate warmup: fraction of all steps, or a number of steps if 1 or more; 0 disables it."""
    weight_decay: float = 0.01
    """Weight decay of matrices, not of biases and norms; 0 disables it."""
    clip_grad_norm: float = 1.0
    """Gradient clipping: maximum gradient norm; 0 disables it."""
    layer_decay: float = 1.0
    """Layer-wise learning-rate decay: learning rate of a layer relative to the layer above; 1.0 disables it."""
    freeze_layers: int = 0
    """Freeze the embeddings and this many layers from the bottom; 0 freezes nothing, -1 the whole body."""
    ema: float = 0.0
    """EMA decay of the weights, such as 0.999; 0 disables the EMA."""
    patience: int = 0
    """Early stopping: stop after this many evaluations without improvement; 0 disables it."""
    eval_every: int = 0
    """Evaluation interval in steps; 0 evaluates once per epoch."""
    max_eval_examples: int = 1000
    """Maximum number of held-out examples per evaluation; the final evaluation uses all of them."""
    test_size: float = 0.1
    """Fraction of the records held out as test, unless dev or test would have fewer than 200 records; 0 holds out dev only."""
    group_by: str | None = field(default=None, metadata={"metavar": "COLUMN"})
    """Group column, such as author: records with the same value stay in one split; default: by equal inputs."""
    fold: str | None = field(default=None, metadata={"metavar": "K/N"})
    """Fold that is the test set of this run, such as 2/5 for the second of five; default: no cross-validation."""
    max_steps: int = 0
    """Stop after this many steps; 0 runs to the end of the schedule."""
    max_minutes: float = 0.0
    """Time limit of training in minutes; 0 sets no limit."""
    fit_schedule: bool = False
    """Fit the schedule to `max_minutes`: plan as many steps as fit in the time at the measured speed."""
    save_minutes: float = 2.0
    """Checkpoint interval in minutes; 0 saves by `save_every` alone."""
    save_every: int = 0
    """Checkpoint interval in steps; 0 saves by `save_minutes` alone."""
    device: str = "auto"
    """Device to train on: cuda, mps, cpu, or auto (the best available)."""
    precision: str = "float32"
    """Mixed precision of matrix products: float32 (off), bfloat16, or auto (bfloat16 where the hardware supports it)."""
    on_nan: str = "stop"
    """Non-finite loss (NaN or infinity): stop the run (stop), or skip up to three such steps (skip)."""
    fsdp: bool = False
    """Fully sharded data parallel (FSDP2): each process holds a shard of the model instead of a copy."""

    def __post_init__(self) -> None:
        from saccade.training.optim.schedule import SCHEDULES

        positive = {"epochs", "batch_tokens", "micro_batches", "lr", "max_eval_examples"}
        for item in fields(self):
            value = getattr(self, item.name)
            if (
                isinstance(value, int | float)
                and item.name != "freeze_layers"
                and (value < 0 or not math.isfinite(value) or (value == 0 and item.name in positive))
            ):
                raise UsageError(
                    f"train.{item.name} is {value}; it must be {'above 0' if item.name in positive else '0 or more'}."
                )
        for name, known in (
            ("optimizer", ("adamw", "muon")),
            ("schedule", tuple(SCHEDULES)),
            ("precision", ("float32", "bfloat16", "auto")),
            ("device", DEVICES),
            ("on_nan", ("stop", "skip")),
        ):
            if getattr(self, name) not in known:
                raise UsageError(f"train.{name} is {getattr(self, name)!r}; known are {', '.join(known)}.")
        if self.optimizer == "muon" and self.fsdp:
            raise UsageError(
                "train.optimizer muon needs whole matrices, but train.fsdp shards them; drop one of the two."
            )
        if self.fit_schedule and not self.max_minutes:
            raise UsageError(
                "train.fit_schedule fits the schedule to train.max_minutes, which is 0; set train.max_minutes, such as 10."
            )
        if not 0 <= self.ema < 1:
            raise UsageError(f"train.ema is {self.ema}; the EMA decay must be below 1, such as 0.999.")
        _ = self.held_out  # raises an error for invalid settings

    @property
    def held_out(self) -> "HeldOut":
        """What is held out of the training data where no dev or test file is given."""
        from saccade.data.held_out import HeldOut  # imports torch, which the help of a command does not need

        return HeldOut(self.test_size, self.group_by or "", self.fold or "")


DEVICES = ("auto", "cuda", "mps", "cpu")


def is_auto(table: str, name: str, value: object) -> bool:
    """Whether the value of a setting means that the machine decides, so that the config of the run holds another value.

    >>> is_auto("train", "precision", "auto"), is_auto("train", "precision", "float32"), is_auto("task", "tokenizer", "auto")
    (True, False, False)
    """
    return (table, name, value) == ("train", "precision", "auto")
