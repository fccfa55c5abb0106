"""How good answers are: each metric takes the gold first and the answers second, and gives a `Score` with its interval."""

from saccade.tasks.metrics.cider import Frequencies, cider, frequencies
from saccade.tasks.metrics.correlation import pearson, spearman
from saccade.tasks.metrics.labels import (
    Confusion,
    accuracy,
    confusion,
    f1,
    f1_threshold,
    macro_f1,
    many_labels,
    mcc,
    micro_f1,
)
from saccade.tasks.metrics.numbers import bits_per_byte, mae, mse, perplexity, r2
from saccade.tasks.metrics.rouge import rouge, suited
from saccade.tasks.metrics.score import Interval, Score, Tally, bootstrap, measure, resamples
from saccade.tasks.metrics.spans import Counts, Span, span_counts, span_f1, spans
from saccade.tasks.metrics.squad import answer_f1, answer_match, best_threshold, squad
from saccade.tasks.metrics.texts import bleu, bleu_tokenizer, check_bleu_tokenizer, chrf, exact_match, plain

__all__ = [
    "Confusion",
    "Counts",
    "Frequencies",
    "Interval",
    "Score",
    "Span",
    "Tally",
    "accuracy",
    "answer_f1",
    "answer_match",
    "best_threshold",
    "bits_per_byte",
    "bleu",
    "bleu_tokenizer",
    "bootstrap",
    "check_bleu_tokenizer",
    "chrf",
    "cider",
    "confusion",
    "exact_match",
    "f1",
    "f1_threshold",
    "frequencies",
    "macro_f1",
    "mae",
    "many_labels",
    "mcc",
    "measure",
    "micro_f1",
    "mse",
    "pearson",
    "perplexity",
    "plain",
    "r2",
    "resamples",
    "rouge",
    "span_counts",
    "span_f1",
    "spans",
    "spearman",
    "squad",
    "suited",
]
