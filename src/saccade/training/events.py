"""Events of a training run (messages, evaluations, checkpoints, the result), its progress, and the error for a refused run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saccade.errors import UsageError
from saccade.metrics import Score
from saccade.metrics.score import SCORE_COLUMNS
from saccade.notebook import html_table
from saccade.tasks.classification.calibration import Calibration
from saccade.training.loop import TrainStep


@dataclass(frozen=True)
class Message:
    """A line of text for the user."""

    text: str


@dataclass(frozen=True)
class DevEvaluation:
    """The scores on the dev set after a step, and whether they are the best so far."""

    step: int
    scores: list[Score]
    best: bool


@dataclass(frozen=True)
class CheckpointSaved:
    """A checkpoint was written."""

    step: int
    path: Path


@dataclass(frozen=True)
class BaselineResult:
    """The scores of a simple method on a split, and how messages describe it."""

    method: str
    description: str
    scores: list[Score]

    def __str__(self) -> str:
        return f"baseline {self.scores[0]}: {self.description}"

    def as_dict(self) -> dict[str, Any]:
        """The result as plain values that JSON can hold; `name` and `value` are those of the main score."""
        main = {"name": self.scores[0].name, "value": self.scores[0].value}
        return {**vars(self), **main, "scores": [vars(score) for score in self.scores]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "BaselineResult":
        return cls(values["method"], values["description"], [Score(**score) for score in values["scores"]])


@dataclass(frozen=True)
class RunResult:
    """The outcome of a run: why it stopped, after how many steps, and the scores of its best model on all held-out data."""

    stop_reason: str
    steps: int
    scores: dict[str, list[Score]]  # by split
    signal: int | None = None
    notes: tuple[str, ...] = ()  # remarks on the scores
    warnings: tuple[str, ...] = ()  # that the model is no better than a baseline
    baselines: dict[str, BaselineResult] = field(default_factory=dict)  # the best baseline, by split
    evaluations: int = 0  # evaluations on dev, of which the best chose the checkpoint
    calibration: Calibration | None = None  # of the probabilities, fitted on dev

    def score_lines(self) -> list[str]:
        """A line for each score, and one for the baseline of each split."""
        return [
            f"{split:<5} {line}"
            for split, scores in self.scores.items()
            for line in [*scores, *filter(None, [self.baselines.get(split)])]
        ]

    def __str__(self) -> str:
        title = f"finished after {self.steps:,} steps ({self.stop_reason})"
        return "\n".join([title, *self.score_lines(), *self.notes])

    def _repr_html_(self) -> str:
        rows = [(split, *score.cells()) for split, scores in self.scores.items() for score in scores]
        rows += [(f"{split}, {one.method}", *one.scores[0].cells()) for split, one in self.baselines.items()]
        caption = " ".join([f"finished after {self.steps:,} steps ({self.stop_reason}).", *self.notes])
        return html_table(["split", *SCORE_COLUMNS], rows, caption=caption)


class RunRefused(UsageError):
    """The run cannot start or resume with the given settings or data."""


class StopRequested(Exception):
    """A signal arrived during an evaluation, whose predictions so far are dropped."""


@dataclass
class RunProgress:
    """The progress of a run, as it is saved in every checkpoint."""

    best_metric: float | None = None
    evals_since_best: int = 0  # evaluations since the best one, for early stopping
    last_eval_step: int = 0
    minutes: float = 0.0
    skipped_steps: int = 0  # steps skipped because of a non-finite loss
    fitted_steps: int = 0  # steps of the schedule after fitting it to the time limit; 0 = not fitted
    planned_steps: int = 0  # steps of the fitted schedule as planned, before slow steps shortened it
    fitted_minutes: float = 0.0  # the time limit that the schedule was fitted to
    best_step: int = 0  # the step of the best model
    best_loss: float | None = None  # dev loss of the best model, for tasks that track it
    best_scores: dict[str, float] = field(default_factory=dict)  # all scores of the best model
    rival_note: str = ""  # describes a later evaluation that was better by every score but the first
    replan_count: int = 0  # how many times the schedule has been planned so far

    def record_eval(self, step: int, scores: Sequence[Score], loss: float | None) -> bool:
        """Record an evaluation; returns whether its model becomes the best model.

        The best model has the best first score; ties go to the lower dev loss, then to the later step.
        """
        first, *others = scores
        is_better = self.best_metric is None or _is_better(first, self.best_metric)
        is_tie = first.value == self.best_metric and not _is_higher(loss, self.best_loss)
        is_nan = math.isnan(first.value)
        self.last_eval_step = step
        self.evals_since_best = 0 if is_better and not is_nan else self.evals_since_best + 1
        if is_nan or not (is_better or is_tie):
            if others and all(_is_better(score, self.best_scores.get(score.name, math.nan)) for score in others):
                rival = ", ".join(f"{score.name} {score.value:.4g}" for score in others)
                best = ", ".join(f"{self.best_scores[score.name]:.4g}" for score in others)
                self.rival_note = f"step {step:,} had {rival}; the best model had {best}"
            return False
        self.best_metric, self.best_step, self.best_loss, self.rival_note = first.value, step, loss, ""
        self.best_scores = {score.name: score.value for score in scores}
        return True


def _is_better(score: Score, other: float) -> bool:
    return score.value > other if score.better == "higher" else score.value < other


def _is_higher(loss: float | None, other: float | None) -> bool:
    return loss is not None and other is not None and loss > other


Event = TrainStep | Message | DevEvaluation | CheckpointSaved | RunResult
