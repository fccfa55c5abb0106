"""Classification of texts, images or sounds: one label, such as sentiment, topic or spam, or several labels (multi-label)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade import metrics
from saccade.audio import augment as audio_augment
from saccade.data import Audio, Batch, Example, Image, Role, Source
from saccade.data.example import AUDIO, IMAGE, LABEL, LABELS, TEXT
from saccade.data.infer_task import are_numbers, infer_input_kind
from saccade.data.label_checks import check_label_count
from saccade.data.read.media_files import MEDIA
from saccade.errors import DataError, UsageError
from saccade.metrics import ClassScore, Score
from saccade.models.capabilities import ImageShape, Modality
from saccade.models.model import Model
from saccade.tasks.base import BaselineMethod, Defaults, ErrorRow, Item, Prompt, Task, encode_texts, pad_sources
from saccade.tasks.baselines.pixels import image_baselines
from saccade.tasks.baselines.text_features import label_baselines, majority_class
from saccade.tasks.classification.calibration import Calibration, calibrate_answers, calibrate_multi_label
from saccade.tasks.classification.class_weights import as_tensor, make_class_weights, make_positive_weights
from saccade.tasks.classification.label_values import format_label_values, format_mappings
from saccade.tasks.classification.thresholds import (
    AUTO,
    TunedThresholds,
    parse_given_thresholds,
    parse_thresholds,
    tune_thresholds,
)
from saccade.tasks.interface.predictions import LabelPrediction, MultiLabelPrediction
from saccade.tasks.needs import Needs
from saccade.tasks.speech.spectrograms import augment_audio, load_spectrograms, pad_spectrograms
from saccade.tasks.unlabeled import is_unlabeled
from saccade.vision import augment as image_augment
from saccade.vision.pixels import lazy_pixels, load_pixels

MAX_IMAGE_SIZE = 112  # pixels per side of the largest input of a new model
MAX_IMAGES_EXAMINED = 16  # images examined to choose the input shape


@dataclass(frozen=True)
class Config:
    multi_label: bool = False
    """Multi-label classification: any number of labels per text."""
    max_tokens: int = 256
    """Maximum number of tokens per text; longer texts are truncated."""
    tokenizer: str = "auto"
    """Kind of tokenizer to train: bpe, wordpiece, unigram, words, characters or bytes; auto chooses by the data."""
    label_smoothing: float = 0.0
    """Label smoothing of the cross-entropy loss; 0 disables it."""
    metric: str = "accuracy"
    """Metric that selects the best checkpoint: accuracy, macro_f1 or mcc."""
    augment: Literal[
        "none", "flip", "crop", "flip_crop", "masks", "speed", "noise", "speed_noise_masks", "counterfactual"
    ] = "none"
    """Data augmentation: flip, crop or flip_crop (images); masks, speed, noise or speed_noise_masks (recordings); or
    counterfactual copies about the other group (texts)."""
    class_weights: str = field(default="none", metadata={"metavar": "none|balanced|LABEL=WEIGHT,..."})
    """Class weights of the loss: balanced (inverse class frequencies, as in scikit-learn), weights by label, or none."""
    calibrate: Literal["temperature", "off"] = "temperature"
    """Calibration of the probabilities: temperature scaling, fitted on the dev data if it has 100 examples, or off."""
    thresholds: str = field(default=AUTO, metadata={"metavar": "auto|NUMBER|LABEL=NUMBER,..."})
    """Decision thresholds with multi_label: one number, or numbers by label; auto tunes them on dev for the F1 of each label."""
    max_labels: int = 0
    """Maximum number of labels; training refuses data with more. 0 allows 20, or half the number of training examples if more."""

    def __post_init__(self) -> None:
        format_mappings(self, "class_weights", "thresholds")


@dataclass(frozen=True)
class InputKind:
    """What differs between labeled texts, images and recordings."""

    role: Role
    family: str  # the default family of a new model
    hub_pipeline: str
    augmentations: tuple[str, ...]  # values of `task.augment`


INPUT_KINDS = {
    Modality.TEXT: InputKind(TEXT, "transformer_encoder", "text-classification", ("none", "counterfactual")),
    Modality.IMAGE: InputKind(IMAGE, "vit", "image-classification", tuple(image_augment.AUGMENTATIONS)),
    Modality.AUDIO: InputKind(AUDIO, "speech_encoder", "audio-classification", tuple(audio_augment.AUGMENTATIONS)),
}


class Label(Task):
    name = "label"
    aliases = ("classify",)
    verb = "label"
    gold_roles = ("label", "labels")
    counterfactual_roles, preserved_gold_roles = ("text",), ("label", "labels")
    min_examples = 500
    prompt = Prompt((TEXT, LABEL), "Text: {text}\nLabel: {label}\n\n")
    metric_names = ("accuracy", "macro_f1", "mcc")
    augment_roles = ("text",)
    description = "classification of texts, images or sounds: one label or several, such as sentiment or topic"
    has_mistakes = True
    Config = Config
    needs = Needs(tuple(INPUT_KINDS), head="label")
    token_template = "bos_eos"
    sample = "topics"

    def __init__(self, config: Any = None, labels: Sequence[str] = ()):
        super().__init__(config, labels)
        self.multi_label = self.config.multi_label
        self._tuned: TunedThresholds | None = None
        self.has_right_answers = self.compares_label_rates = not self.multi_label
        self.hub_pipeline, self.reads_sentences = INPUT_KINDS[Modality.TEXT].hub_pipeline, True
        self.modality: Modality | None = None  # None until it is known from the data or a model

    @classmethod
    def from_head(cls, model: Model) -> Self | None:
        task = cls(Config(**_model_settings(model)), model.labels)
        if not task.accepts_model(model) or is_pair_model(model):
            return None
        task.configure_from_model(model)
        return task

    def accepts_model(self, model: Model) -> bool:
        """Whether the head is for labels; a head with one output predicts a number unless it is multi-label."""
        return super().accepts_model(model) and (len(model.labels) != 1 or model.multi_label)

    def settings_from_model(self, model: Model) -> dict[str, Any]:
        return _model_settings(model)

    def configure_from_model(self, model: Model) -> None:
        self._set_modality(model.capabilities.input)
        self._check_thresholds()

    def _check_thresholds(self) -> None:
        """Raise an error for thresholds that do not fit the labels."""
        if self.config.thresholds != AUTO and not self.multi_label:
            raise UsageError(
                "task.thresholds is for several labels per example; set task.multi_label, or leave it out."
            )
        parse_thresholds(self.config.thresholds, self.labels)

    def _set_modality(self, modality: Modality) -> None:
        """Set the kind of input: texts, images or recordings."""
        kind = INPUT_KINDS[modality]
        if self.config.augment not in (*kind.augmentations, "counterfactual"):  # which `augment_examples` explains
            raise UsageError(
                f"task.augment {self.config.augment} does not apply to {modality}; choose one of {', '.join(kind.augmentations)}."
            )
        self.modality = modality
        self.hub_pipeline, self.reads_sentences = kind.hub_pipeline, modality is Modality.TEXT
        self.needs = replace(self.needs, input=modality)

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        if paths and self.modality is None:
            self._set_modality(_modality_of(infer_input_kind(paths, self.column_names)))
        return (INPUT_KINDS[self.modality or Modality.TEXT].role, LABELS if self.multi_label else LABEL)

    @classmethod
    def matches(cls, examples: Sequence[Example]) -> bool:
        labels = {example["label"] for example in examples}
        few = len(labels) <= len(examples) / 4 if len(examples) >= 20 else not any(" " in label for label in labels)
        return few and _have_short_labels(examples) and not are_numbers(examples, "text")

    def task_for_record(self, record: dict[str, Any]) -> Task | None:
        """The task itself, or `pair` for a record with two texts, as one head serves both."""
        if "second" not in record:
            return super().task_for_record(record)
        from saccade.tasks.pair import Pair  # imports this module

        return Pair(labels=self.labels)

    def make_record(self, *texts: str) -> dict[str, Any]:
        return dict(zip(("first", "second"), texts, strict=False)) if len(texts) > 1 else super().make_record(*texts)

    def fit(self, examples: Sequence[Example]) -> None:
        counts = Counter(label for example in examples for label in self._gold_labels(example))
        self.labels = tuple(sorted(counts, key=_label_sort_key))
        self._set_modality(_modality_of(next((name for name in MEDIA if examples and name in examples[0]), "text")))
        if len(self.labels) < (1 if self.multi_label else 2):
            count = len(examples)
            problem = (
                f"all {count} examples have the label {self.labels[0]!r}" if self.labels else "there are no labels"
            )
            raise DataError(f"{problem}, so there is nothing to learn", hint="give examples of at least two labels")
        column = "labels" if self.multi_label else "label"
        check_label_count(counts, self.config.max_labels, examples, column, number_task="grade")
        self._check_thresholds()
        if self.multi_label:
            self.class_weights = make_positive_weights(self.config.class_weights, self.labels, counts, len(examples))
        else:
            self.class_weights = make_class_weights(self.config.class_weights, self.labels, counts)

    def default_family(self) -> str:
        return INPUT_KINDS[self.modality or Modality.TEXT].family

    @property
    def has_texts(self) -> bool:
        return self.modality in (None, Modality.TEXT)

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        if self.modality is Modality.IMAGE:
            channels, side = _typical_image_shape(examples)
            patch = max(2, side // 7)
            size = -(-side // patch) * patch
            sizes: dict[str, Any] = {"channels": channels, "image_height": size, "patch_size": patch, "dropout": 0.0}
            sizes |= {"width": 128, "layers": 4, "heads": 4, "ffn_width": 256}
            return Defaults(
                self.default_family(),
                sizes,
                {"lr": 1e-3, "batch_size": 64, "batch_tokens": 64, "epochs": 12, "weight_decay": 0.05},
            )
        if self.modality is Modality.AUDIO:
            sizes = {"width": 96, "layers": 3, "heads": 4, "ffn_width": 256, "stride": 4}
            return Defaults(
                self.default_family(), sizes, {"lr": 1e-3, "batch_size": 32, "batch_tokens": 8192, "epochs": 15}
            )
        if pretrained:
            return Defaults("", train={"lr": 1e-4, "batch_tokens": 1024, "epochs": 3})
        return Defaults(
            self.default_family(),
            {"width": 128, "layers": 2, "ffn_width": 256},
            {"lr": 1e-3, "batch_tokens": 2048, "epochs": 10},
        )

    def baselines(self) -> Sequence[BaselineMethod]:
        if self.multi_label:
            return ()
        if self.modality is Modality.IMAGE:
            return image_baselines(self.labels)
        if self.modality is Modality.AUDIO:
            return (majority_class(self.labels),)
        return label_baselines(lambda example: (example["text"],), self.labels)

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return (example["text"] for example in examples if "text" in example)

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        label_ids = {label: i for i, label in enumerate(self.labels)}
        golds = [self._encode_gold(example, label_ids) for example in examples]
        kind = next((name for name in MEDIA if examples and name in examples[0]), None)
        if kind is not None:
            load_sources = load_images if kind == "image" else load_spectrograms
            rows = zip(examples, load_sources(examples, model), golds, strict=True)
            return [Item(example, source, gold=gold) for example, source, gold in rows]
        encodings = encode_texts([example["text"] for example in examples], model, self.config.max_tokens)
        return [
            Item(example, ids, gold=gold, segment_ids=segments)
            for example, gold, (ids, segments, _) in zip(examples, golds, encodings, strict=True)
        ]

    def batch(self, items: Sequence[Item]) -> Batch:
        gold = None
        if all(item.gold is not None for item in items):
            gold = torch.tensor([item.gold for item in items])
        if items and items[0].source.ndim == 2:
            return Batch(pad_spectrograms(items), gold=gold, items=list(items))
        if items and items[0].source.ndim == 3:
            stacked = torch.from_numpy(np.stack([np.asarray(item.source) for item in items]))
            return Batch(Image(stacked.float().div_(127.5).sub_(1.0)), gold=gold, items=list(items))
        return Batch(pad_sources(items), gold=gold, items=list(items))

    def count_targets(self, batch: Batch) -> int:
        return len(batch.items) * (len(self.labels) if self.multi_label else 1)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        if model.training:
            batch = replace(batch, source=self._augment(batch.source, model))
        logits, gold = model(batch), batch.gold
        assert gold is not None
        if self.multi_label:
            return F.binary_cross_entropy_with_logits(
                logits, gold.to(logits.dtype), reduction="sum", pos_weight=as_tensor(self.class_weights, logits)
            )
        weights = as_tensor(self.class_weights, logits)
        return F.cross_entropy(logits, gold, weights, reduction="sum", label_smoothing=self.config.label_smoothing)

    def _augment(self, source: Source, model: Model) -> Source:
        if isinstance(source, Image):
            return Image(image_augment.get_augmentation(self.config.augment)(source.pixels))
        if isinstance(source, Audio) and model.capabilities.mel is not None:
            return augment_audio(source, self.config.augment, model.capabilities.mel)
        return source

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any]]:
        logits = model(batch).float()
        probabilities = (logits.sigmoid() if self.multi_label else logits.softmax(-1)).tolist()
        answers = []
        for row in probabilities:
            scores = dict(sorted(zip(self.labels, row, strict=True), key=lambda pair: -pair[1]))
            if self.multi_label:
                answers.append({"labels": self._choose_labels(scores), "scores": scores})
            else:
                answers.append({"label": next(iter(scores)), "scores": scores})
        return answers

    def calibrate(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> Calibration | None:
        if self.config.calibrate == "off":
            return None
        if not self.multi_label:
            return calibrate_answers(answers, [example["label"] for example in examples], self.labels)
        return calibrate_multi_label(*self._as_arrays(answers, examples))

    def tune(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> None:
        """Choose the decision thresholds of the labels that `task.thresholds` does not name."""
        self.tuned_settings, self._tuned = {}, None
        if not self.multi_label or not answers:
            return
        given = parse_given_thresholds(self.config.thresholds, self.labels)
        if len(given) < len(self.labels):
            self._tuned = tune_thresholds(*self._as_arrays(answers, examples), self.labels).with_given(given)
            self.tuned_settings = {"thresholds": self._tuned.setting}

    def describe_tuning(self) -> str:
        return "" if self._tuned is None else str(self._tuned)

    @property
    def label_thresholds(self) -> Mapping[str, float]:
        if not self.multi_label:
            return {}
        return parse_thresholds(self.tuned_settings.get("thresholds", self.config.thresholds), self.labels)

    def _choose_labels(self, scores: Mapping[str, float]) -> list[str]:
        """The labels whose probability reaches their threshold, most probable first."""
        thresholds = self.label_thresholds
        return [label for label, probability in scores.items() if probability >= thresholds[label]]

    def _as_arrays(
        self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities and gold labels as arrays, (N, K)."""
        probabilities = np.array([[answer["scores"][label] for label in self.labels] for answer in answers])
        return probabilities, np.array([[label in example["labels"] for label in self.labels] for example in examples])

    def score(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> list[Score]:
        if self.multi_label:
            predictions = [self._predicted_labels(answer) for answer in answers]
            return metrics.multi_label_scores([example["labels"] for example in examples], predictions)
        gold, predictions = [example["label"] for example in examples], [answer["label"] for answer in answers]
        scores = [
            metrics.accuracy(gold, predictions),
            metrics.macro_f1(gold, predictions),
            metrics.mcc(gold, predictions),
        ]
        return sorted(scores, key=lambda score: score.name != self.config.metric)

    def class_scores(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> list[ClassScore]:
        if self.multi_label:
            gold, predictions = map(self._gold_labels, examples), map(self._predicted_labels, answers)
            return metrics.multi_label_class_scores(list(gold), list(predictions), self.labels)
        return label_class_scores(self, answers, examples)

    def unlabeled_mask(self, examples: Sequence[Example]) -> list[bool]:
        return [
            is_unlabeled(example.values.get("labels" if self.multi_label else "label"), self.labels)
            for example in examples
        ]

    def confusion_pair(self, answer: dict[str, Any], example: Example) -> tuple[str, str] | None:
        return None if self.multi_label else (example["label"], answer["label"])

    def error_row(self, answer: dict[str, Any], example: Example) -> ErrorRow | None:
        gold, predicted = set(self._gold_labels(example)), set(self._predicted_labels(answer))
        if gold == predicted:
            return None
        confidence = self._mistake_confidence(answer, gold)
        cells = {"text": example.values.get("text", f"{example.file}:{example.line}")}
        cells |= {name: ", ".join(sorted(labels)) for name, labels in (("gold", gold), ("answer", predicted))}
        return ErrorRow.from_probability(cells, confidence)

    def _mistake_confidence(self, answer: dict[str, Any], gold: set[str]) -> float:
        """The probability of the wrong label; of several labels, that of the most confident wrong decision."""
        scores, predicted = answer["scores"], set(self._predicted_labels(answer))
        if not self.multi_label:
            return scores[answer["label"]]
        wrong = gold ^ predicted
        return max(scores[label] if label in predicted else 1 - scores.get(label, 0.0) for label in wrong)

    def to_comparable(self, answer: dict[str, Any], example: Example) -> Any:
        return tuple(sorted(self._predicted_labels(answer))) if self.multi_label else answer["label"]

    def to_prediction(self, answer: dict[str, Any], example: Example) -> LabelPrediction | MultiLabelPrediction:
        if self.multi_label:
            return MultiLabelPrediction(tuple(self._predicted_labels(answer)), answer["scores"])
        return LabelPrediction.from_scores(answer["label"], answer["scores"])

    def _gold_labels(self, example: Example) -> list[str]:
        return example["labels"] if self.multi_label else [example["label"]]

    def _predicted_labels(self, answer: dict[str, Any]) -> list[str]:
        return self._choose_labels(answer["scores"]) if self.multi_label else [answer["label"]]

    def _encode_gold(self, example: Example, label_ids: dict[str, int]) -> Any:
        """The label as an index, or as a row of zeros and ones (multi-label); None if an example has no gold label."""
        if ("labels" if self.multi_label else "label") not in example:
            return None
        unknown = [label for label in self._gold_labels(example) if label not in label_ids]
        if unknown and not self.multi_label:
            return -100  # ignored by the loss: a label that is not in the training data
        if self.multi_label:
            return [float(label in self._gold_labels(example)) for label in self.labels]
        return label_ids[example["label"]]


def _model_settings(model: Model) -> dict[str, Any]:
    """The settings that a stored model has."""
    return {"multi_label": model.multi_label, "thresholds": format_label_values(model.thresholds) or AUTO}


def _have_short_labels(examples: Sequence[Example]) -> bool:
    """Whether labels have at most two words, or half the words of their texts, on average; otherwise they are sentences."""
    label_words = sum(len(example["label"].split()) for example in examples)
    text_words = sum(len(example["text"].split()) for example in examples if "text" in example)
    return label_words <= 2 * len(examples) or 2 * label_words <= text_words


def label_class_scores(task: Task, answers: Sequence[Any], examples: Sequence[Example]) -> list[ClassScore]:
    """The scores of each class by the confusion matrix of a task."""
    confusion = task.confusion_matrix(answers, examples)
    return [] if confusion is None else metrics.class_scores(confusion)


def image_shape(model: Model) -> ImageShape:
    """(channels, rows, columns) of a model's input images, None where any is accepted; a text model raises an error."""
    shape = model.capabilities.image_shape
    if shape is None:
        raise UsageError(
            f"The data are images, and {model.family.name} {model.capabilities.describe()}. Choose a family that reads images, "
            "such as vit for labels or captioner_transformer for captions."
        )
    return shape


def is_pair_model(model: Model) -> bool:
    """Whether a head is for text pairs: one output, which is a number, or a label with "entail" in its name."""
    return (len(model.labels) == 1 and not model.multi_label) or any(
        "entail" in label.lower() for label in model.labels
    )


def load_images(examples: Sequence[Example], model: Model) -> list[np.ndarray]:
    """The images of examples in the model's input shape; images of large datasets are loaded when converted to an array."""
    images = cast(list[np.ndarray], lazy_pixels([example["image"] for example in examples], image_shape(model)))
    sizes = dict.fromkeys(array.shape[1:] for array in images)
    if len(sizes) > 1:
        size, other = (f"{rows} x {columns}" for rows, columns in list(sizes)[:2])
        hint = "resize them to one size, or choose a model that resizes images, such as vit"
        raise DataError(f"got images of {size} and {other} pixels; {model.family.name} needs one size", hint=hint)
    return images


def _modality_of(kind: str) -> Modality:
    """The modality of the role "text", "image" or "audio"."""
    return next(modality for modality, entry in INPUT_KINDS.items() if entry.role.kind == kind)


def _typical_image_shape(examples: Sequence[Example]) -> tuple[int, int]:
    """Channels and side of the square input that suit most of the examined images."""
    shapes = [
        load_pixels(example["image"]).shape for example in examples[:: max(1, len(examples) // MAX_IMAGES_EXAMINED)]
    ]
    sides = sorted(min(rows, columns) for _, rows, columns in shapes)
    return max(channels for channels, _, _ in shapes), min(MAX_IMAGE_SIZE, sides[len(sides) // 2])


def _label_sort_key(label: str) -> tuple[bool, float, str]:
    """Sort key of a label: numbers by value (1, 2, 10), then words alphabetically."""
    try:
        return False, float(label), label
    except ValueError:
        return True, 0.0, label
