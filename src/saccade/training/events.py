"""What a run tells while it runs, where it is, and the reasons for which it cannot go on."""

import math
from dataclasses import dataclass
from pathlib import Path

from saccade.tasks.metrics import Score
from saccade.training.loop import Step


@dataclass(frozen=True)
class Said:
    """Something a person should know."""

    text: str


@dataclass(frozen=True)
class Looked:
    """How good the model is on held-out data at a step."""

    step: int
    scores: list[Score]
    best: bool


@dataclass(frozen=True)
class Saved:
    step: int
    path: Path


@dataclass(frozen=True)
class Result:
    """How a run ended: why, after how many steps, and how good its best model is on all held-out data."""

    why: str
    steps: int
    scores: dict[str, list[Score]]  # by split
    signal: int | None = None


class Refused(ValueError):
    """A run that cannot go on with what was asked for."""


class Asked(Exception):
    """A signal came while held-out data were being answered; the answers so far are dropped."""


@dataclass
class Progress:
    """Where a run is, as a checkpoint's facts tell it."""

    best: float | None = None
    since: int = 0  # looks since the best
    looked: int = 0  # the step of the last look
    minutes: float = 0.0
    skipped: int = 0  # steps left out, as their loss was not finite
    horizon: int = 0  # steps of a schedule that was fitted to its time; 0: it was not
    planned: int = 0  # its steps as they were settled, before slow ones shortened it
    fitted: float = 0.0  # the minutes that it was fitted to

    def better(self, score: Score) -> bool:
        if math.isnan(score.value):
            return False
        return self.best is None or (score.value > self.best if score.better == "higher" else score.value < self.best)


Event = Step | Said | Looked | Saved | Result
