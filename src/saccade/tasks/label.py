"""A label for a text or a picture: sentiment, topic, spam; one of several, or any number of them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade import metrics
from saccade.data import Batch, Example, Image, Role
from saccade.data.example import IMAGE, LABEL, LABELS, TEXT
from saccade.data.infer_task import are_numbers, has_images
from saccade.errors import DataError, UsageError
from saccade.metrics import Score
from saccade.models.capabilities import ImageShape, Modality
from saccade.models.model import Model
from saccade.tasks.base import Baseline, Defaults, ErrorRow, Item, Prompt, Task, encode_texts, pad_sources
from saccade.tasks.interface.predictions import LabelPrediction, MultiLabelPrediction
from saccade.tasks.needs import Needs
from saccade.tasks.unlabeled import is_unlabeled
from saccade.vision.augment import get_augmentation
from saccade.vision.pixels import lazy_pixels, load_pixels

MAX_IMAGE_SIZE = 112  # of the pictures that a new model reads, at most
MAX_IMAGES_EXAMINED = 16  # pictures looked at to choose their shape


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
    augment: Literal["none", "flip", "crop", "flip_crop", "counterfactual"] = "none"
    """Data augmentation: flip, crop or flip_crop (images), or counterfactual copies about the other group (texts)."""


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
    description = "text or image classification: one label or several, such as sentiment or topic"
    Config = Config
    needs = Needs((Modality.TEXT, Modality.IMAGE), head="label")
    token_template = "bos_eos"
    sample = "topics"

    def __init__(self, config: Any = None, labels: Sequence[str] = ()):
        super().__init__(config, labels)
        self.multi_label = self.config.multi_label
        self.has_right_answers = self.compares_label_rates = not self.multi_label
        self.hub_pipeline, self.reads_sentences = "text-classification", True
        self.reads_images: bool | None = None  # a picture, not a text; None until data or a model say
        self.augment_images = get_augmentation(
            "none" if self.config.augment == "counterfactual" else self.config.augment
        )

    @classmethod
    def from_head(cls, model: Model) -> Self | None:
        made = cls(Config(multi_label=model.multi_label), model.labels)
        if not made.accepts_model(model) or is_pair_model(model):
            return None
        made.configure_from_model(model)
        return made

    def accepts_model(self, model: Model) -> bool:
        """A head with one output predicts a number, unless each label is predicted by itself."""
        return super().accepts_model(model) and (len(model.labels) != 1 or model.multi_label)

    def settings_from_model(self, model: Model) -> dict[str, Any]:
        return {"multi_label": model.multi_label}

    def configure_from_model(self, model: Model) -> None:
        self._set_modality(images=model.capabilities.input is Modality.IMAGE)

    def _set_modality(self, *, images: bool) -> None:
        """Settle what is labelled: texts or images."""
        self.reads_images = images
        self.hub_pipeline = "image-classification" if images else "text-classification"
        self.reads_sentences = not images
        self.needs = replace(self.needs, input=Modality.IMAGE if images else Modality.TEXT)

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        if paths and self.reads_images is None:
            self._set_modality(images=has_images(paths, self.column_names))
        return (IMAGE if self.reads_images else TEXT, LABELS if self.multi_label else LABEL)

    @classmethod
    def matches(cls, examples: Sequence[Example]) -> bool:
        labels = {example["label"] for example in examples}
        few = len(labels) <= len(examples) / 4 if len(examples) >= 20 else not any(" " in label for label in labels)
        return few and _have_short_labels(examples) and not are_numbers(examples, "text")

    def task_for_record(self, record: dict[str, Any]) -> Task | None:
        """Itself; of two texts, for which a head may be as well, the task of pairs."""
        if "second" not in record:
            return super().task_for_record(record)
        from saccade.tasks.pair import Pair  # which asks here what heads of pairs look like

        return Pair(labels=self.labels)

    def make_record(self, *texts: str) -> dict[str, Any]:
        return dict(zip(("first", "second"), texts, strict=False)) if len(texts) > 1 else super().make_record(*texts)

    def fit(self, examples: Sequence[Example]) -> None:
        found = Counter(label for example in examples for label in self._gold_labels(example))
        self.labels = tuple(sorted(found, key=_label_sort_key))
        self._set_modality(images=bool(examples) and "image" in examples[0])
        if len(self.labels) < (1 if self.multi_label else 2):
            what = (
                f"all {len(examples)} examples have the label {self.labels[0]!r}"
                if self.labels
                else "there are no labels"
            )
            raise DataError(f"{what}, so there is nothing to learn", hint="give examples of at least two labels")

    def default_family(self) -> str:
        return "vit" if self.reads_images else "transformer_encoder"

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        if self.reads_images:
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
        if pretrained:
            return Defaults("", train={"lr": 1e-4, "batch_tokens": 1024, "epochs": 3})
        return Defaults(
            self.default_family(),
            {"width": 128, "layers": 2, "ffn_width": 256},
            {"lr": 1e-3, "batch_tokens": 2048, "epochs": 10},
        )

    def baseline(self, train: Sequence[Example]) -> Baseline | None:
        return None if self.multi_label or not train else majority_class_baseline(train, self.labels)

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return (example["text"] for example in examples if "text" in example)

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        number = {label: i for i, label in enumerate(self.labels)}
        golds = [self._encode_gold(example, number) for example in examples]
        if examples and "image" in examples[0]:
            rows = zip(examples, load_images(examples, model), golds, strict=True)
            return [Item(example, picture, gold=gold) for example, picture, gold in rows]
        read = encode_texts([example["text"] for example in examples], model, self.config.max_tokens)
        return [
            Item(example, ids, gold=gold, segment_ids=segments)
            for example, gold, (ids, segments, _) in zip(examples, golds, read, strict=True)
        ]

    def batch(self, items: Sequence[Item]) -> Batch:
        gold = None
        if all(item.gold is not None for item in items):
            gold = torch.tensor([item.gold for item in items])
        if items and items[0].source.ndim > 1:
            stacked = torch.from_numpy(np.stack([np.asarray(item.source) for item in items]))
            return Batch(Image(stacked.float().div_(127.5).sub_(1.0)), gold=gold, items=list(items))
        return Batch(pad_sources(items), gold=gold, items=list(items))

    def count_targets(self, batch: Batch) -> int:
        return len(batch.items) * (len(self.labels) if self.multi_label else 1)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        if isinstance(batch.source, Image) and model.training:
            batch = replace(batch, source=Image(self.augment_images(batch.source.pixels)))
        scores, gold = model(batch), batch.gold
        assert gold is not None
        if self.multi_label:
            return F.binary_cross_entropy_with_logits(scores, gold.to(scores.dtype), reduction="sum")
        return F.cross_entropy(scores, gold, reduction="sum", label_smoothing=self.config.label_smoothing)

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any]]:
        scores = model(batch).float()
        shares = (scores.sigmoid() if self.multi_label else scores.softmax(-1)).tolist()
        answers = []
        for row in shares:
            ranked = sorted(zip(self.labels, row, strict=True), key=lambda pair: -pair[1])
            chosen = [label for label, share in ranked if share >= 0.5] if self.multi_label else [ranked[0][0]]
            answers.append(
                {
                    "labels" if self.multi_label else "label": chosen if self.multi_label else chosen[0],
                    "scores": dict(ranked),
                }
            )
        return answers

    def score(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> list[Score]:
        if self.multi_label:
            said = [answer["labels"] for answer in answers]
            return metrics.multi_label_scores([example["labels"] for example in examples], said)
        gold, said = [example["label"] for example in examples], [answer["label"] for answer in answers]
        found = [metrics.accuracy(gold, said), metrics.macro_f1(gold, said), metrics.mcc(gold, said)]
        return sorted(found, key=lambda score: score.name != self.config.metric)

    def unlabeled_mask(self, examples: Sequence[Example]) -> list[bool]:
        return [
            is_unlabeled(example.values.get("labels" if self.multi_label else "label"), self.labels)
            for example in examples
        ]

    def confusion_pair(self, answer: dict[str, Any], example: Example) -> tuple[str, str] | None:
        return None if self.multi_label else (example["label"], answer["label"])

    def error_row(self, answer: dict[str, Any], example: Example) -> ErrorRow | None:
        classes = self.confusion_pair(answer, example)
        if classes is None or classes[0] == classes[1]:
            return None
        sure = answer["scores"][answer["label"]]
        row = {"text": example.values.get("text", f"{example.file}:{example.line}")}
        return ErrorRow(row | {"gold": classes[0], "answer": classes[1], "sure": f"{sure:.0%}"}, sure)

    def to_comparable(self, answer: dict[str, Any], example: Example) -> Any:
        return tuple(sorted(answer["labels"])) if self.multi_label else answer["label"]

    def to_prediction(self, answer: dict[str, Any], example: Example) -> LabelPrediction | MultiLabelPrediction:
        if self.multi_label:
            return MultiLabelPrediction(tuple(answer["labels"]), answer["scores"])
        return LabelPrediction.from_scores(answer["label"], answer["scores"])

    def _gold_labels(self, example: Example) -> list[str]:
        return example["labels"] if self.multi_label else [example["label"]]

    def _encode_gold(self, example: Example, label_ids: dict[str, int]) -> Any:
        """The label as a number, or a row of noughts and ones; None where an example has none to learn from."""
        if ("labels" if self.multi_label else "label") not in example:
            return None
        unknown = [label for label in self._gold_labels(example) if label not in label_ids]
        if unknown and not self.multi_label:
            return -100  # a label that the training data do not have: never right, and nothing to learn
        if self.multi_label:
            return [float(label in self._gold_labels(example)) for label in self.labels]
        return label_ids[example["label"]]


def _have_short_labels(examples: Sequence[Example]) -> bool:
    """Labels of a word or two, or texts twice as long: two sentences side by side, however often they repeat, are no label."""
    said = sum(len(example["label"].split()) for example in examples)
    read = sum(len(example["text"].split()) for example in examples if "text" in example)
    return said <= 2 * len(examples) or 2 * said <= read


def image_shape(model: Model) -> ImageShape:
    """(channels, rows, columns) of the images that a model reads, None where it takes any; a model of texts is refused."""
    shape = model.capabilities.image_shape
    if shape is None:
        raise UsageError(
            f"The data are images, and {model.family.name} {model.capabilities.describe()}. Choose a family that reads images, "
            "such as vit for labels or captioner_transformer for captions."
        )
    return shape


def majority_class_baseline(train: Sequence[Example], labels: Sequence[str]) -> Baseline:
    """The rule that always answers the label which most training examples have."""
    common, _ = Counter(str(example["label"]) for example in train).most_common(1)[0]
    scores = {label: float(label == common) for label in labels}
    return Baseline(f"always answering {common!r}", lambda example: {"label": common, "scores": scores})


def is_pair_model(model: Model) -> bool:
    """Whether a head is for two texts: one output, which is a number, or a class by the name of entailment."""
    return (len(model.labels) == 1 and not model.multi_label) or any(
        "entail" in label.lower() for label in model.labels
    )


def load_images(examples: Sequence[Example], model: Model) -> list[np.ndarray]:
    """The pictures of examples in the shape that a model reads; of very many, what is read when it is made an array."""
    found = cast(list[np.ndarray], lazy_pixels([example["image"] for example in examples], image_shape(model)))
    sizes = dict.fromkeys(array.shape[1:] for array in found)
    if len(sizes) > 1:
        one, other = (f"{rows} x {columns}" for rows, columns in list(sizes)[:2])
        hint = "scale them to one size, or choose a model that does, such as vit"
        raise DataError(f"pictures of {one} and of {other} pixels, where {model.family.name} needs one size", hint=hint)
    return found


def _typical_image_shape(examples: Sequence[Example]) -> tuple[int, int]:
    """Channels and side of a square that suit most of some pictures."""
    shapes = [
        load_pixels(example["image"]).shape for example in examples[:: max(1, len(examples) // MAX_IMAGES_EXAMINED)]
    ]
    sides = sorted(min(rows, columns) for _, rows, columns in shapes)
    return max(channels for channels, _, _ in shapes), min(MAX_IMAGE_SIZE, sides[len(sides) // 2])


def _label_sort_key(label: str) -> tuple[bool, float, str]:
    """1, 2, 10, and then words in the order of the alphabet."""
    try:
        return False, float(label), label
    except ValueError:
        return True, 0.0, label
