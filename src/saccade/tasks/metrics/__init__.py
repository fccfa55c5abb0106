"""How good answers are: each metric takes the gold first and the answers second, and gives a `Score` with its interval."""

from saccade.tasks.metrics.labels import (
    Confusion,
    accuracy,
    confusion,
    macro_f1,
    many_labels,
    mcc,
    micro_f1,
)
from saccade.tasks.metrics.numbers import bits_per_byte, mse, perplexity, r2
from saccade.tasks.metrics.score import Interval, Score, Tally, bootstrap, measure, resamples
from saccade.tasks.metrics.spans import Counts, Span, span_counts, span_f1, spans
from saccade.tasks.metrics.texts import bleu, chrf, exact_match, plain

__all__ = [
    "Confusion",
    "Counts",
    "Interval",
    "Score",
    "Span",
    "Tally",
    "accuracy",
    "bits_per_byte",
    "bleu",
    "bootstrap",
    "chrf",
    "confusion",
    "exact_match",
    "macro_f1",
    "many_labels",
    "mcc",
    "measure",
    "micro_f1",
    "mse",
    "perplexity",
    "plain",
    "r2",
    "resamples",
    "span_counts",
    "span_f1",
    "spans",
]
