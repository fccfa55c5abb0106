"""How a model is trained, as numbers and names: the table [train] of a run."""

import math
from dataclasses import dataclass, fields

from saccade.errors import UsageError

# what may change when a run goes on: these only say when to stop, to look, to save or to print, and where the work is done
FREE = ("max_steps", "max_time", "save_minutes", "save_every", "patience", "device", "on_nan", "shard")


@dataclass(frozen=True)
class Config:
    seed: int = 0
    epochs: int = 10  # how long the schedule is, in passes through the data
    tokens: int = 4096  # in one step, padding counted
    rows: int = 0  # the most examples in one step; 0: as many as the tokens allow
    parts: int = 1  # in which a step is read, one after the other: less memory, the same result
    optimizer: str = "adamw"  # or muon: the matrices inside the layers move as far in every direction
    rate: float = 1e-3  # the highest learning rate
    schedule: str = "linear"  # after the warm-up: linear, cosine, inverse_sqrt or constant
    warmup: float = 0.1  # of all steps, or a number of steps from 1 up
    decay: float = 0.01  # of the weights
    clip: float = 1.0  # the longest gradient; 0: any
    layer_rate: float = 1.0  # each layer learns so much of the rate of the one above it
    freeze: int = 0  # so many layers from below stay as they are, and the words; -1: the whole body
    average: float = 0.0  # how much of the mean of the weights stays at each step, such as 0.999; 0: no mean
    patience: int = 0  # stop after so many looks at the held-out data without a better score; 0: never
    look_every: int = 0  # steps between looks at the held-out data; 0: once an epoch
    look_at: int = 1000  # the most held-out examples of one look; the last look is at all of them
    max_steps: int = 0  # stop after so many steps; 0: at the end of the schedule
    max_time: float = 0.0  # stop after so many minutes; 0: never
    fit: bool = False  # fit the schedule to max_time: as many steps as it holds, by their measured pace
    save_minutes: float = 2.0  # between checkpoints
    save_every: int = 0  # steps between checkpoints; 0: by the clock alone
    device: str = "auto"  # cuda, mps or cpu
    precision: str = "float32"  # of products: or bfloat16, or auto: that where the machine has instructions for it
    on_nan: str = "stop"  # at a loss that is not finite; or skip: leave the step out, at most three times in a run
    shard: bool = False  # of several processes each keeps a part of the model, not a copy (FSDP2)

    def __post_init__(self) -> None:
        from saccade.training.schedule import SCHEDULES

        positive = {"epochs", "tokens", "parts", "rate", "look_at"}
        for item in fields(self):
            value = getattr(self, item.name)
            if (
                isinstance(value, int | float)
                and item.name != "freeze"
                and (value < 0 or not math.isfinite(value) or (value == 0 and item.name in positive))
            ):
                raise UsageError(
                    f"train.{item.name} is {value}; it has to be {'above 0' if item.name in positive else '0 or more'}."
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
        if self.optimizer == "muon" and self.shard:
            raise UsageError("train.optimizer muon needs whole matrices, and train.shard cuts them: leave one out.")
        if self.fit and not self.max_time:
            raise UsageError("train.fit fits the schedule to train.max_time, which is 0: give it minutes, such as 10.")
        if not 0 <= self.average < 1:
            raise UsageError(f"train.average is {self.average}; a share below 1 is needed, such as 0.999.")


DEVICES = ("auto", "cuda", "mps", "cpu")


def left_open(table: str, name: str, value: object) -> bool:
    """Whether a setting is left to the machine, so that a run of it has another value.

    >>> left_open("train", "precision", "auto"), left_open("train", "precision", "float32"), left_open("task", "pieces", "auto")
    (True, False, False)
    """
    return (table, name, value) == ("train", "precision", "auto")
