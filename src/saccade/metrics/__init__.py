"""Metrics: each takes the gold first and the predictions second, and returns a `Score` with a confidence interval."""

from saccade.metrics.cider import DocumentFrequencies, cider, count_document_frequencies
from saccade.metrics.class_scores import (
    ClassScore,
    average_class_scores,
    class_scores,
    multi_label_class_scores,
    span_class_scores,
)
from saccade.metrics.compare import Comparison, compare_scores
from saccade.metrics.correlation import pearson, spearman
from saccade.metrics.error_rates import Edits, character_error_rate, count_edits, word_error_rate
from saccade.metrics.labels import (
    ConfusionMatrix,
    accuracy,
    best_f1_threshold,
    confusion_matrix,
    f1,
    f1_threshold,
    macro_f1,
    mcc,
    micro_f1,
    multi_label_scores,
)
from saccade.metrics.numeric import bits_per_byte, mae, mse, perplexity, r2
from saccade.metrics.rouge import rouge, rouge_tokenizer
from saccade.metrics.score import IndicatorTable, Interval, Score, bootstrap, measure, resample_indices
from saccade.metrics.spans import Span, SpanCounts, count_spans, extract_spans, span_f1
from saccade.metrics.squad import answer_f1, answer_match, best_threshold, squad
from saccade.metrics.texts import bleu, bleu_tokenizer, check_bleu_tokenizer, chrf, exact_match, normalize_answer

__all__ = [
    "ClassScore",
    "Comparison",
    "ConfusionMatrix",
    "DocumentFrequencies",
    "Edits",
    "IndicatorTable",
    "Interval",
    "Score",
    "Span",
    "SpanCounts",
    "accuracy",
    "answer_f1",
    "answer_match",
    "average_class_scores",
    "best_f1_threshold",
    "best_threshold",
    "bits_per_byte",
    "bleu",
    "bleu_tokenizer",
    "bootstrap",
    "character_error_rate",
    "check_bleu_tokenizer",
    "chrf",
    "cider",
    "class_scores",
    "compare_scores",
    "confusion_matrix",
    "count_document_frequencies",
    "count_edits",
    "count_spans",
    "exact_match",
    "extract_spans",
    "f1",
    "f1_threshold",
    "macro_f1",
    "mae",
    "mcc",
    "measure",
    "micro_f1",
    "mse",
    "multi_label_class_scores",
    "multi_label_scores",
    "normalize_answer",
    "pearson",
    "perplexity",
    "r2",
    "resample_indices",
    "rouge",
    "rouge_tokenizer",
    "span_class_scores",
    "span_f1",
    "spearman",
    "squad",
    "word_error_rate",
]
