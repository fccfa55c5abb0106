"""Temperature scaling: one number, fitted on dev, by which all logits are divided, so that probabilities say how often a label is
right (Guo et al. 2017, arXiv 1706.04599). The most probable label stays the same.

The temperature is divided into the weights of the output layer, so that every use and every export of the model is calibrated.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from saccade.models.model import Model

BINS = 15  # of the expected calibration error, equally wide
MIN_EXAMPLES = 100  # fewer cannot determine a temperature
TEMPERATURE_RANGE = (0.05, 20.0)

MAX_LOGIT = 80.0  # of a probability that was rounded to 0


@dataclass(frozen=True)
class CalibrationCurve:
    """How often predictions are right by their confidence: count, mean confidence and accuracy of each of 15 bins."""

    counts: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def expected_calibration_error(self) -> float:
        """The mean difference between confidence and accuracy, weighted by the predictions in a bin."""
        return float((self.counts * abs(self.accuracy - self.confidence)).sum() / max(1, self.counts.sum()))


@dataclass(frozen=True)
class Calibration:
    """A temperature fitted on the dev set, with the reliability of its probabilities before and after."""

    temperature: float
    examples: int
    before: CalibrationCurve
    after: CalibrationCurve

    def __str__(self) -> str:
        before, after = (one.expected_calibration_error for one in (self.before, self.after))
        return (
            f"Probabilities are calibrated with temperature {self.temperature:.3g}, fitted on {self.examples:,} dev examples: "
            f"expected calibration error {before:.3f} before, {after:.3f} after."
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "temperature": self.temperature,
            "examples": self.examples,
            "expected_calibration_error": {
                "before": self.before.expected_calibration_error,
                "after": self.after.expected_calibration_error,
            },
        }


def calibrate_classes(probabilities: np.ndarray, gold: np.ndarray) -> Calibration | None:
    """Calibration of (N, K) probabilities of classes against (N,) class indices; None if it cannot be determined."""
    logits = np.log(np.maximum(probabilities.astype(np.float64), math.exp(-MAX_LOGIT)))
    rows = np.arange(len(gold))

    def mean_nll(temperature: float) -> float:
        scaled = logits / temperature
        return float((np.logaddexp.reduce(scaled, axis=1) - scaled[rows, gold]).mean())

    def curve(temperature: float) -> CalibrationCurve:
        scaled = logits / temperature
        shares = np.exp(scaled - np.logaddexp.reduce(scaled, axis=1, keepdims=True))
        return measure_calibration(shares.max(1), shares.argmax(1) == gold)

    return _calibrate(mean_nll, curve, len(gold), has_mistakes=bool((logits.argmax(1) != gold).any()))


def calibrate_answers(
    answers: Sequence[dict[str, Any]], gold: Sequence[str], labels: Sequence[str]
) -> Calibration | None:
    """Calibration of answers with a probability for each label; gold labels that are not in training are left out."""
    known = [(answer["scores"], label) for answer, label in zip(answers, gold, strict=True) if label in labels]
    if not known:
        return None
    probabilities = np.array([[scores[label] for label in labels] for scores, _ in known])
    return calibrate_classes(probabilities, np.array([labels.index(label) for _, label in known]))


def calibrate_multi_label(probabilities: np.ndarray, gold: np.ndarray) -> Calibration | None:
    """Calibration of (N, K) probabilities of independent labels against (N, K) zeros and ones."""
    inside = np.clip(probabilities.astype(np.float64), 1e-7, 1 - 1e-7)  # float32 cannot tell more from 1
    logits, signs = np.log(inside / (1 - inside)), 2.0 * gold - 1.0

    def mean_nll(temperature: float) -> float:
        return float(np.logaddexp(0.0, -signs * logits / temperature).mean())

    def curve(temperature: float) -> CalibrationCurve:
        confidence = 1 / (1 + np.exp(-abs(logits) / temperature))
        return measure_calibration(confidence.ravel(), ((logits >= 0) == (gold > 0.5)).ravel())

    return _calibrate(mean_nll, curve, len(gold), has_mistakes=bool(((logits >= 0) != (gold > 0.5)).any()))


def _calibrate(
    mean_nll: Callable[[float], float],
    curve: Callable[[float], CalibrationCurve],
    examples: int,
    *,
    has_mistakes: bool,
) -> Calibration | None:
    """None for too few examples, and for predictions without a mistake, whose best temperature would be 0."""
    if examples < MIN_EXAMPLES or not has_mistakes:
        return None
    temperature = fit_temperature(mean_nll)
    return Calibration(temperature, examples, curve(1.0), curve(temperature))


def fit_temperature(mean_nll: Callable[[float], float]) -> float:
    """The temperature with the lowest negative log-likelihood, by golden-section search on its logarithm.

    The negative log-likelihood is convex in the inverse temperature, so it has one minimum.
    """
    low, high = map(math.log, TEMPERATURE_RANGE)
    while high - low > 1e-6:
        step = (math.sqrt(5) - 1) / 2 * (high - low)
        if mean_nll(math.exp(high - step)) < mean_nll(math.exp(low + step)):
            high = low + step
        else:
            low = high - step
    return math.exp((low + high) / 2)


def measure_calibration(confidence: np.ndarray, correct: np.ndarray) -> CalibrationCurve:
    """Count, mean confidence and accuracy of the predictions in each of 15 equally wide bins of confidence."""
    index = np.minimum((confidence * BINS).astype(int), BINS - 1)
    counts = np.bincount(index, minlength=BINS)
    means = [np.bincount(index, values, BINS) / np.maximum(1, counts) for values in (confidence, correct)]
    return CalibrationCurve(counts, *means)


@contextmanager
def scaled_logits(model: Model, temperature: float) -> Iterator[None]:
    """Divide the logits of a model by a temperature, in the weights of its output layer, for the time of the context."""
    layer = cast(nn.Linear, model.get_submodule("head.score"))
    originals = {parameter: parameter.detach().clone() for parameter in layer.parameters()}
    try:
        with torch.no_grad():
            for parameter in originals:
                parameter.div_(temperature)
        yield
    finally:
        with torch.no_grad():
            for parameter, original in originals.items():
                parameter.copy_(original)
