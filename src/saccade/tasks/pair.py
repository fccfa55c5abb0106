"""Sentence-pair classification and regression: entailment (NLI), paraphrase, duplicate questions, similarity.

Both texts are encoded together with the tokenizer's pair template (a cross-encoder), so that each token attends to both. If they
are too long, the longer one is truncated first. Target numbers are standardized; the mean and the standard deviation of the
training data become part of the settings, so that a loaded run predicts in the original units.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, pstdev
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade import metrics
from saccade.data import Batch, Example, Role
from saccade.data.example import FIRST, PAIR_LABEL, PAIR_SCORE, SECOND
from saccade.data.infer_task import are_numbers
from saccade.data.label_checks import check_label_count
from saccade.errors import DataError, UsageError
from saccade.metrics import ClassScore, Score
from saccade.models.capabilities import Modality
from saccade.models.model import Model
from saccade.suggest import suggest
from saccade.tasks.base import BaselineMethod, Defaults, ErrorRow, Item, Prompt, Task, pad_sources, require_tokenizer
from saccade.tasks.baselines.text_features import label_baselines, number_baselines
from saccade.tasks.classification.calibration import Calibration, calibrate_answers
from saccade.tasks.classification.class_weights import UNWEIGHTED, as_tensor, make_class_weights
from saccade.tasks.classification.label_values import format_mappings
from saccade.tasks.interface.predictions import LabelPrediction, NumberPrediction, Prediction, ThresholdPrediction
from saccade.tasks.label import is_pair_model, label_class_scores
from saccade.tasks.needs import Needs
from saccade.tasks.unlabeled import is_unlabeled

TARGET_TYPES = ("auto", "label", "number")
LABEL_METRICS = ("accuracy", "macro_f1", "f1")
NUMBER_METRICS = ("pearson", "spearman", "mse")
MAX_CLASSES = 10  # gold with at most this many distinct integers is treated as classes
NEGATIVE_LABELS = ("0", "-1", "no", "false", "negative", "different", "other", "none")


@dataclass(frozen=True)
class Config:
    target_type: str = "auto"
    """Type of the target: label (classification), number (regression), or auto, which chooses by the data."""
    metric: str = "auto"
    """Metric that selects the best checkpoint: accuracy, macro_f1, f1; for numbers pearson, spearman, mse; auto chooses."""
    max_tokens: int = 256
    """Maximum number of tokens of both texts together; longer texts are truncated."""
    tokenizer: str = "auto"
    """Kind of tokenizer to train: bpe, wordpiece, unigram, words, characters or bytes; auto chooses by the data."""
    label_smoothing: float = 0.0
    """Label smoothing of the cross-entropy loss; 0 disables it."""
    threshold: float | None = None
    """Decision threshold: minimum probability of the positive label; default: 0.5, or tuned on the dev set for f1."""
    target_mean: float = 0.0
    """Mean of the target numbers, measured on the training data."""
    target_std: float = 1.0
    """Standard deviation of the target numbers, measured on the training data."""
    augment: Literal["none", "counterfactual", "swap_order"] = "none"
    """Data augmentation: counterfactual adds copies about the other group, swap_order each pair in reverse order."""
    class_weights: str = field(default="none", metadata={"metavar": "none|balanced|LABEL=WEIGHT,..."})
    """Class weights of the loss: balanced (inverse class frequencies, as in scikit-learn), weights by label, or none."""
    calibrate: Literal["temperature", "off"] = "temperature"
    """Calibration of the probabilities: temperature scaling, fitted on the dev data if it has 100 examples, or off."""
    max_labels: int = 0
    """Maximum number of labels; training refuses data with more. 0 allows 20, or half the number of training examples if more."""

    def __post_init__(self) -> None:
        format_mappings(self, "class_weights")


class Pair(Task):
    name = "pair"
    aliases = ("nli", "paraphrase", "similarity")
    gold_roles = ("label",)
    counterfactual_roles, preserved_gold_roles = ("first", "second"), ("label",)
    min_examples = 10_000
    hub_pipeline = "text-classification"
    prompt = Prompt((FIRST, SECOND, PAIR_LABEL), "First: {first}\nSecond: {second}\nLabel: {label}\n\n")
    takes_two_texts = reads_sentences = has_mistakes = True
    no_prediction_reason = "the model compares two texts, and only one was given"
    augment_roles = ("first", "second")
    description = "sentence-pair classification or regression: entailment, paraphrase, similarity"
    Config = Config
    needs = Needs(Modality.TEXT, head="label")
    token_template = "bos_eos"
    sample = "pairs"

    def __init__(self, config: Any = None, labels: Sequence[str] = ()):
        super().__init__(config, labels)
        if self.config.target_type not in TARGET_TYPES:
            raise UsageError(f"task.target_type is {self.config.target_type!r}; known are {', '.join(TARGET_TYPES)}.")
        if self.config.threshold is not None and not 0 < self.config.threshold < 1:
            raise UsageError(f"task.threshold is {self.config.threshold:g}; a probability between 0 and 1 is needed.")
        if self.labels and self.config.target_type == "auto":  # a foreign model: one output is a number
            self.config = replace(self.config, target_type="number" if len(self.labels) == 1 else "label")

    @classmethod
    def from_head(cls, model: Model) -> Self | None:
        return super().from_head(model) if is_pair_model(model) else None

    @property
    def has_right_answers(self) -> bool:  # type: ignore[override]
        return not self.is_regression

    @property
    def predicts_number(self) -> bool:  # type: ignore[override]
        return self.is_regression

    @classmethod
    def matches(cls, examples: Sequence[Example]) -> bool:
        few = len({example["label"] for example in examples}) <= max(3, len(examples) / 4)
        return few and not are_numbers(examples, "first") and not are_numbers(examples, "second")

    def baselines(self) -> Sequence[BaselineMethod]:
        get_texts = lambda example: (example["first"], example["second"])
        if self.is_regression:
            return number_baselines(get_texts, _parse_number)
        return label_baselines(get_texts, self.labels)

    def to_comparable(self, answer: dict[str, Any], example: Example) -> Any:
        return answer["score"] if self.is_regression else answer["label"]

    @property
    def is_regression(self) -> bool:
        """Whether the task is regression: the gold is a number."""
        return self.config.target_type == "number"

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (FIRST, SECOND, PAIR_SCORE if self.is_regression else PAIR_LABEL)

    def fit(self, examples: Sequence[Example]) -> None:
        if self.config.target_type == "auto":
            self.config = replace(self.config, target_type="number" if _has_numeric_gold(examples) else "label")
        known = NUMBER_METRICS if self.is_regression else LABEL_METRICS
        if self.config.metric not in ("auto", *known):
            problem = f"task.metric is {self.config.metric!r} for a gold that is a {self.config.target_type}"
            raise UsageError(f"{problem}; {suggest(self.config.metric, ['auto', *known])}")
        if self.is_regression:
            self._fit_numbers(examples)
        else:
            self._fit_labels(examples)

    def _fit_labels(self, examples: Sequence[Example]) -> None:
        counts = Counter(str(example["label"]) for example in examples)
        self.labels = tuple(sorted(counts, key=_label_sort_key))
        if len(self.labels) < 2:
            count = len(examples)
            problem = f"all {count} pairs have the label {self.labels[0]!r}" if self.labels else "there are no pairs"
            raise DataError(f"{problem}, so there is nothing to learn", hint="give pairs of at least two labels")
        check_label_count(counts, self.config.max_labels, examples, "label")
        self.class_weights = make_class_weights(self.config.class_weights, self.labels, counts)
        if self.config.threshold is not None and len(self.labels) != 2:
            raise UsageError(f"task.threshold needs two labels, got {len(self.labels)}; leave it out.")
        if self.config.metric == "f1" and len(self.labels) != 2:
            raise UsageError(f"task.metric f1 needs two labels, got {len(self.labels)}; use macro_f1.")

    def _fit_numbers(self, examples: Sequence[Example]) -> None:
        if self.config.threshold is not None:
            raise UsageError("task.threshold needs two labels, but the gold is a number; leave it out.")
        if self.config.class_weights != UNWEIGHTED:
            raise UsageError("task.class_weights needs labels, but the gold is a number; leave it out.")
        values = [_parse_number(example) for example in examples]
        mean, std = (fmean(values), pstdev(values)) if values else (0.0, 0.0)
        if not std > 1e-12 * max(1.0, abs(mean)):
            problem = f"all {len(values)} pairs have the number {values[0]:g}" if values else "there are no pairs"
            raise DataError(f"{problem}, so there is nothing to learn", hint="give pairs with at least two numbers")
        self.config = replace(self.config, target_mean=mean, target_std=std)
        self.labels = ("similarity",)  # the only output; that of `grade` is named "score"
        value_range = f"{min(values):g} to {max(values):g}, mean {mean:.3g}"
        self.notes = (f"the gold is a number, {value_range}; --task.target-type label treats the numbers as classes",)

    def default_family(self) -> str:
        return "transformer_encoder"

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        if pretrained:
            return Defaults("", train={"lr": 1e-4, "batch_tokens": 2048, "epochs": 4})
        sizes = {"width": 128, "layers": 3, "ffn_width": 256, "heads": 4}
        return Defaults(self.default_family(), sizes, {"lr": 1e-3, "batch_tokens": 2048, "epochs": 10})

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return (example[name] for example in examples for name in ("first", "second"))

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        tokenizer = require_tokenizer(model)
        limit = min(self.config.max_tokens, model.max_positions or self.config.max_tokens)
        special = sum(tokenizer.encode("", "").special_tokens_mask)
        if limit < special + 2:
            raise UsageError(
                f"{limit} tokens leave no room for two texts beside {special} special tokens; raise --task.max-tokens."
            )
        label_ids = {label: i for i, label in enumerate(self.labels)}
        out: list[Item] = []
        texts = ([example[name] for example in examples] for name in ("first", "second"))
        for example, encoding in zip(examples, tokenizer.encode_iter(*texts, max_tokens=limit), strict=True):
            ids, segments = np.array(encoding.ids, np.int32), np.array(encoding.segment_ids, np.int8)
            out.append(Item(example, ids, gold=self._encode_gold(example, label_ids), segment_ids=segments))
        return out

    def batch(self, items: Sequence[Item]) -> Batch:
        gold = None
        if all(item.gold is not None for item in items):
            gold = torch.tensor([item.gold for item in items])
        return Batch(pad_sources(items), gold=gold, items=list(items))

    def count_targets(self, batch: Batch) -> int:
        return len(batch.items)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        logits, gold = model(batch), batch.gold
        assert gold is not None
        if self.is_regression:
            return (logits.squeeze(-1) - gold).square().sum()
        weights = as_tensor(self.class_weights, logits)
        return F.cross_entropy(logits, gold, weights, reduction="sum", label_smoothing=self.config.label_smoothing)

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any]]:
        logits = model(batch).float()
        if self.is_regression:
            return [{"score": self.config.target_mean + self.config.target_std * row[0]} for row in logits.tolist()]
        ranked = [
            sorted(zip(self.labels, row, strict=True), key=lambda pair: -pair[1]) for row in logits.softmax(-1).tolist()
        ]
        return [{"label": self._choose_label(dict(ranking)), "scores": dict(ranking)} for ranking in ranked]

    def calibrate(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> Calibration | None:
        if self.is_regression or self.config.calibrate == "off":
            return None
        return calibrate_answers(answers, [str(example["label"]) for example in examples], self.labels)

    def tune(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> None:
        """Choose the decision threshold with the highest F1, if F1 is the metric and `task.threshold` is not set."""
        self.tuned_settings = {}
        gold = [str(example["label"]) for example in examples]
        if self.config.metric != "f1" or self.config.threshold is not None or not set(self.labels) <= set(gold):
            return
        positive = find_positive_label(self.labels)
        probabilities = [answer["scores"][positive] for answer in answers]
        threshold = metrics.f1_threshold(probabilities, [label == positive for label in gold])
        if 0 < threshold < 1:  # not if all probabilities are 0 or are not numbers
            self.tuned_settings = {"threshold": threshold}

    @property
    def threshold(self) -> float:
        """The decision threshold: tuned, or from the settings, or 0.5."""
        return self.tuned_settings.get("threshold", 0.5 if self.config.threshold is None else self.config.threshold)

    def _choose_label(self, scores: dict[str, float]) -> str:
        """The most probable label; of two labels, the positive one if its probability reaches the threshold."""
        if len(self.labels) != 2:
            return max(scores, key=lambda label: scores[label])
        positive = find_positive_label(self.labels)
        return (
            positive
            if scores[positive] >= self.threshold
            else next(label for label in self.labels if label != positive)
        )

    def score(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> list[Score]:
        if self.is_regression:
            targets, values = [_parse_number(example) for example in examples], [answer["score"] for answer in answers]
            scores = [metrics.pearson(targets, values), metrics.spearman(targets, values), metrics.mse(targets, values)]
        else:
            gold = [str(example["label"]) for example in examples]
            predictions = [self._choose_label(answer["scores"]) for answer in answers]
            scores = [metrics.accuracy(gold, predictions), metrics.macro_f1(gold, predictions)]
            if len(self.labels) == 2:
                scores.append(metrics.f1(gold, predictions, find_positive_label(self.labels)))
        return sorted(scores, key=lambda score: score.name != self.config.metric)

    def class_scores(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> list[ClassScore]:
        return label_class_scores(self, answers, examples)

    def unlabeled_mask(self, examples: Sequence[Example]) -> list[bool]:
        """Whether each example is unlabeled; as a number, -1 is a gold value unless all values are -1."""
        gold_values = [example.values.get("label") for example in examples]
        if self.is_regression and any(value is not None and float(value) != -1 for value in gold_values):
            return [value is None for value in gold_values]
        return [is_unlabeled(value, () if self.is_regression else self.labels) for value in gold_values]

    def confusion_pair(self, answer: dict[str, Any], example: Example) -> tuple[str, str] | None:
        return None if self.is_regression else (str(example["label"]), self._choose_label(answer["scores"]))

    def error_row(self, answer: dict[str, Any], example: Example) -> ErrorRow | None:
        row = {"first": example["first"], "second": example["second"]}
        if self.is_regression:
            return ErrorRow.from_numbers(row, _parse_number(example), answer["score"])
        classes = self.confusion_pair(answer, example)
        if classes is None or classes[0] == classes[1]:
            return None
        return ErrorRow.from_probability(row | {"gold": classes[0], "answer": classes[1]}, answer["scores"][classes[1]])

    def to_prediction(self, answer: dict[str, Any], example: Example) -> Prediction:
        if self.is_regression:
            return NumberPrediction(answer["score"])
        has_threshold = (
            len(self.labels) == 2 and self.threshold != 0.5
        )  # then the less probable label may be the prediction
        if not has_threshold:
            return LabelPrediction.from_scores(answer["label"], answer["scores"])
        positive = find_positive_label(self.labels)
        return ThresholdPrediction(
            answer["label"], answer["scores"][answer["label"]], answer["scores"], positive, self.threshold
        )

    def _encode_gold(self, example: Example, label_ids: dict[str, int]) -> float | int | None:
        """The target of the head; None if an example has no gold, -100 (ignored) for a label not in the training data."""
        if "label" not in example:
            return None
        if self.is_regression:
            return (_parse_number(example) - self.config.target_mean) / self.config.target_std
        return label_ids.get(str(example["label"]), -100)


def find_positive_label(labels: Sequence[str]) -> str:
    """The positive one of two labels.

    >>> find_positive_label(("0", "1")), find_positive_label(("entailment", "not_entailment"))
    ('1', 'entailment')
    >>> find_positive_label(("different", "same"))
    'same'
    """
    positive = [
        label
        for label in labels
        if label.lower() not in NEGATIVE_LABELS and not label.lower().startswith(("not", "non"))
    ]
    return positive[0] if len(positive) == 1 else labels[-1]


def _parse_number(example: Example) -> float:
    """The gold as a number; anything else raises an error with file and line."""
    try:
        number = float(example["label"])
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise DataError(
            "the gold is not a number",
            file=example.file,
            line=example.line,
            column="label",
            value=example["label"],
            hint="correct it, or treat the gold as classes with --task.target-type label",
        )
    return number


def _has_numeric_gold(examples: Sequence[Example]) -> bool:
    """Whether the gold is for regression: all numbers, some of them not integers or more than MAX_CLASSES distinct ones."""
    try:
        values = {float(example["label"]) for example in examples}
    except ValueError:
        return False
    if not all(map(math.isfinite, values)):
        return False
    return len(values) > MAX_CLASSES or any(number != int(number) for number in values)


def _label_sort_key(label: str) -> tuple[bool, float, str]:
    """Sort key of a label: numbers by value (1, 2, 10), then words alphabetically."""
    try:
        return False, float(label), label
    except ValueError:
        return True, 0.0, label
