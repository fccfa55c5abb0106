"""What a run tells while it runs, where it is, and the reasons for which it cannot go on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from saccade.errors import UsageError
from saccade.metrics import Score
from saccade.metrics.score import SCORE_COLUMNS
from saccade.notebook import html_table
from saccade.training.loop import TrainStep


@dataclass(frozen=True)
class Message:
    """Something a person should know."""

    text: str


@dataclass(frozen=True)
class DevEvaluation:
    """How good the model is on held-out data at a step."""

    step: int
    scores: list[Score]
    best: bool


@dataclass(frozen=True)
class CheckpointSaved:
    step: int
    path: Path


@dataclass(frozen=True)
class RunResult:
    """How a run ended: why, after how many steps, and how good its best model is on all held-out data."""

    stop_reason: str
    steps: int
    scores: dict[str, list[Score]]  # by split
    signal: int | None = None
    notes: tuple[str, ...] = ()  # what a reader of the scores should know

    def __str__(self) -> str:
        lines = [f"{split:<5} {score}" for split, scores in self.scores.items() for score in scores]
        return "\n".join([f"ended after {self.steps:,} steps by {self.stop_reason}", *lines, *self.notes])

    def _repr_html_(self) -> str:
        rows = [(split, *score.cells()) for split, scores in self.scores.items() for score in scores]
        caption = " ".join([f"ended after {self.steps:,} steps by {self.stop_reason}.", *self.notes])
        return html_table(["split", *SCORE_COLUMNS], rows, caption=caption)


class RunRefused(UsageError):
    """A run that cannot go on with what was asked for."""


class StopRequested(Exception):
    """A signal came while held-out data were being answered; the answers so far are dropped."""


@dataclass
class RunProgress:
    """Where a run is, as a checkpoint's facts tell it."""

    best_metric: float | None = None
    evals_since_best: int = 0  # looks since the best
    last_eval_step: int = 0  # the step of the last look
    minutes: float = 0.0
    skipped_steps: int = 0  # steps left out, as their loss was not finite
    fitted_steps: int = 0  # steps of a schedule that was fitted to its time; 0: it was not
    planned_steps: int = 0  # its steps as they were settled, before slow ones shortened it
    fitted_minutes: float = 0.0  # the minutes that it was fitted to
    best_step: int = 0  # the step of the model that is kept
    best_loss: float | None = None  # its loss on held-out data, where a task measures that
    best_scores: dict[str, float] = field(default_factory=dict)  # all its scores
    rival_note: str = ""  # a later evaluation that was better by every other score, in words
    replan_count: int = 0  # the parts of that time after which it was planned anew, so far

    def record_eval(self, step: int, scores: Sequence[Score], loss: float | None) -> bool:
        """Count an evaluation; whether its model is the one to keep.

        That is the one with the best first score; of equal ones the one with the lower loss, and of these the later one.
        """
        first, *others = scores
        ahead = self.best_metric is None or _is_better(first, self.best_metric)
        level = first.value == self.best_metric and not _is_higher(loss, self.best_loss)
        self.last_eval_step, self.evals_since_best = (
            step,
            0 if ahead and not math.isnan(first.value) else self.evals_since_best + 1,
        )
        if math.isnan(first.value) or not (ahead or level):
            if others and all(_is_better(score, self.best_scores.get(score.name, math.nan)) for score in others):
                told = ", ".join(f"{score.name} {score.value:.4g}" for score in others)
                kept = ", ".join(f"{self.best_scores[score.name]:.4g}" for score in others)
                self.rival_note = f"step {step:,} had {told}, where the model that is kept had {kept}"
            return False
        self.best_metric, self.best_step, self.best_loss, self.rival_note = first.value, step, loss, ""
        self.best_scores = {score.name: score.value for score in scores}
        return True


def _is_better(score: Score, other: float) -> bool:
    return score.value > other if score.better == "higher" else score.value < other


def _is_higher(loss: float | None, other: float | None) -> bool:
    return loss is not None and other is not None and loss > other


Event = TrainStep | Message | DevEvaluation | CheckpointSaved | RunResult
