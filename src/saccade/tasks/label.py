"""A label for a text or a picture: sentiment, topic, spam; one of several, or any number of them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.data import Batch, Example, Image, Role
from saccade.data.guess import are_numbers, pictured
from saccade.data.item import IMAGE, LABEL, LABELS, TEXT
from saccade.errors import DataError, UsageError
from saccade.models.capabilities import ImageShape, Modality
from saccade.models.model import Model
from saccade.tasks import metrics
from saccade.tasks.hidden import is_hidden
from saccade.tasks.metrics import Score
from saccade.tasks.needs import Needs
from saccade.tasks.task import Baseline, Choices, Item, Prompt, Task, Wrong, encoded, sources
from saccade.vision.augment import augmentation
from saccade.vision.pixels import held, pixels

SIDE = 112  # of the pictures that a new model reads, at most
LOOK = 16  # pictures looked at to choose their shape


@dataclass(frozen=True)
class Config:
    many: bool = False  # any number of labels for each text
    length: int = 256  # the most tokens that are read of a text
    pieces: str = "auto"  # of a new tokenizer: bpe, wordpiece, unigram, words, characters or bytes
    smoothing: float = 0.0  # of the labels
    metric: str = "accuracy"  # what training watches: accuracy, macro_f1 or mcc
    augment: Literal["none", "flip", "crop", "both", "swap"] = "none"  # pictures, by chance; swap: texts, by twins


class Label(Task):
    name = "label"
    aliases = ("classify",)
    verb = "label"
    gold_roles = ("label", "labels")
    counterfactual_roles, unchanged_gold = ("text",), ("label", "labels")
    min_examples = 500
    prompt = Prompt((TEXT, LABEL), "Text: {text}\nLabel: {label}\n\n")
    watched = ("accuracy", "macro_f1", "mcc")
    exchanged = ("text",)
    said = "one label, or several, for a text or a picture: sentiment, topic, kind"
    Config = Config
    needs = Needs((Modality.TEXT, Modality.IMAGE), head="label")
    frame = "both"
    sample = "topics"

    def __init__(self, config: Any = None, labels: Sequence[str] = ()):
        super().__init__(config, labels)
        self.many = self.config.many
        self.has_right_answers = self.counts_labels = not self.many
        self.hub_pipeline, self.reads_sentences = "text-classification", True
        self.seen: bool | None = None  # a picture, not a text; None until data or a model say
        self.altered = augmentation("none" if self.config.augment == "swap" else self.config.augment)

    @classmethod
    def from_head(cls, model: Model) -> Self | None:
        made = cls(Config(many=model.many), model.labels)
        if not made.suits(model) or compares_texts(model):
            return None
        made.meet(model)
        return made

    def stored_settings(self, model: Model) -> dict[str, Any]:
        return {"many": model.many}

    def meet(self, model: Model) -> None:
        self._read(images=model.capabilities.input is Modality.IMAGE)

    def _read(self, *, images: bool) -> None:
        """Settle what is labelled: texts or images."""
        self.seen = images
        self.hub_pipeline = "image-classification" if images else "text-classification"
        self.reads_sentences = not images
        self.needs = replace(self.needs, input=Modality.IMAGE if images else Modality.TEXT)

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        if paths and self.seen is None:
            self._read(images=pictured(paths, self.named))
        return (IMAGE if self.seen else TEXT, LABELS if self.many else LABEL)

    @classmethod
    def matches(cls, examples: Sequence[Example]) -> bool:
        labels = {example["label"] for example in examples}
        few = len(labels) <= len(examples) / 4 if len(examples) >= 20 else not any(" " in label for label in labels)
        return few and _are_brief(examples) and not are_numbers(examples, "text")

    def suited_to(self, values: dict[str, Any]) -> Task | None:
        """Itself; of two texts, for which a head may be as well, the task of pairs."""
        if "second" not in values:
            return super().suited_to(values)
        from saccade.tasks.pair import Pair  # which asks here what heads of pairs look like

        return Pair(labels=self.labels)

    def name_texts(self, *texts: str) -> dict[str, Any]:
        return dict(zip(("first", "second"), texts, strict=False)) if len(texts) > 1 else super().name_texts(*texts)

    def fit(self, examples: Sequence[Example]) -> None:
        found = Counter(label for example in examples for label in self._gold(example))
        self.labels = tuple(sorted(found, key=_numbers_first))
        self._read(images=bool(examples) and "image" in examples[0])
        if len(self.labels) < (1 if self.many else 2):
            what = (
                f"all {len(examples)} examples have the label {self.labels[0]!r}"
                if self.labels
                else "there are no labels"
            )
            raise DataError(f"{what}, so there is nothing to learn", cure="give examples of at least two labels")

    def usual(self) -> str:
        return "vit" if self.seen else "transformer_reader"

    def choices(self, examples: Sequence[Example], pretrained: bool) -> Choices:
        if self.seen:
            channels, side = _usual_shape(examples)
            patch = max(2, side // 7)
            size = -(-side // patch) * patch
            sizes: dict[str, Any] = {"channels": channels, "side": size, "patch": patch, "dropout": 0.0}
            sizes |= {"width": 128, "layers": 4, "heads": 4, "inner": 256}
            return Choices(self.usual(), sizes, {"rate": 1e-3, "rows": 64, "tokens": 64, "epochs": 12, "decay": 0.05})
        if pretrained:
            return Choices("", train={"rate": 1e-4, "tokens": 1024, "epochs": 3})
        return Choices(
            self.usual(), {"width": 128, "layers": 2, "inner": 256}, {"rate": 1e-3, "tokens": 2048, "epochs": 10}
        )

    def baseline(self, train: Sequence[Example]) -> Baseline | None:
        return None if self.many or not train else most_frequent_label(train, self.labels)

    def texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return (example["text"] for example in examples if "text" in example)

    def items(self, examples: Sequence[Example], model: Model) -> list[Item]:
        number = {label: i for i, label in enumerate(self.labels)}
        golds = [self._number(example, number) for example in examples]
        if examples and "image" in examples[0]:
            rows = zip(examples, pictures(examples, model), golds, strict=True)
            return [Item(example, picture, gold=gold) for example, picture, gold in rows]
        read = encoded([example["text"] for example in examples], model, self.config.length)
        return [
            Item(example, ids, gold=gold, segments=segments)
            for example, gold, (ids, segments, _) in zip(examples, golds, read, strict=True)
        ]

    def batch(self, items: Sequence[Item]) -> Batch:
        gold = None
        if all(item.gold is not None for item in items):
            gold = torch.tensor([item.gold for item in items])
        if items and items[0].source.ndim > 1:
            stacked = torch.from_numpy(np.stack([np.asarray(item.source) for item in items]))
            return Batch(Image(stacked.float().div_(127.5).sub_(1.0)), gold=gold, rows=list(items))
        return Batch(sources(items), gold=gold, rows=list(items))

    def count(self, batch: Batch) -> int:
        return len(batch.rows) * (len(self.labels) if self.many else 1)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        if isinstance(batch.source, Image) and model.training:
            batch = replace(batch, source=Image(self.altered(batch.source.pixels)))
        scores, gold = model(batch), batch.gold
        assert gold is not None
        if self.many:
            return F.binary_cross_entropy_with_logits(scores, gold.to(scores.dtype), reduction="sum")
        return F.cross_entropy(scores, gold, reduction="sum", label_smoothing=self.config.smoothing)

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any]]:
        scores = model(batch).float()
        shares = (scores.sigmoid() if self.many else scores.softmax(-1)).tolist()
        answers = []
        for row in shares:
            ranked = sorted(zip(self.labels, row, strict=True), key=lambda pair: -pair[1])
            chosen = [label for label, share in ranked if share >= 0.5] if self.many else [ranked[0][0]]
            answers.append(
                {"labels" if self.many else "label": chosen if self.many else chosen[0], "scores": dict(ranked)}
            )
        return answers

    def score(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> list[Score]:
        if self.many:
            said = [answer["labels"] for answer in answers]
            return metrics.many_labels([example["labels"] for example in examples], said)
        gold, said = [example["label"] for example in examples], [answer["label"] for answer in answers]
        found = [metrics.accuracy(gold, said), metrics.macro_f1(gold, said), metrics.mcc(gold, said)]
        return sorted(found, key=lambda score: score.name != self.config.metric)

    def hidden(self, examples: Sequence[Example]) -> list[bool]:
        return [is_hidden(example.values.get("labels" if self.many else "label"), self.labels) for example in examples]

    def confused(self, answer: dict[str, Any], example: Example) -> tuple[str, str] | None:
        return None if self.many else (example["label"], answer["label"])

    def wrong(self, answer: dict[str, Any], example: Example) -> Wrong | None:
        classes = self.confused(answer, example)
        if classes is None or classes[0] == classes[1]:
            return None
        sure = answer["scores"][answer["label"]]
        row = {"text": example.values.get("text", f"{example.file}:{example.line}")}
        return Wrong(row | {"gold": classes[0], "answer": classes[1], "sure": f"{sure:.0%}"}, sure)

    def comparable(self, answer: dict[str, Any], example: Example) -> Any:
        return tuple(sorted(answer["labels"])) if self.many else answer["label"]

    def told(self, shown: dict[str, Any]) -> str:
        if self.many:
            return ", ".join(f"{label} {shown['scores'][label]:.0%}" for label in shown["labels"]) or "none"
        return f"{shown['label']} {shown['scores'][shown['label']]:.0%}"

    def _gold(self, example: Example) -> list[str]:
        return example["labels"] if self.many else [example["label"]]

    def _number(self, example: Example, number: dict[str, int]) -> Any:
        """The label as a number, or a row of noughts and ones; None where an example has none to learn from."""
        if ("labels" if self.many else "label") not in example:
            return None
        unknown = [label for label in self._gold(example) if label not in number]
        if unknown and not self.many:
            return -100  # a label that the training data do not have: never right, and nothing to learn
        if self.many:
            return [float(label in self._gold(example)) for label in self.labels]
        return number[example["label"]]


def _are_brief(examples: Sequence[Example]) -> bool:
    """Labels of a word or two, or texts twice as long: two sentences side by side, however often they repeat, are no label."""
    said = sum(len(example["label"].split()) for example in examples)
    read = sum(len(example["text"].split()) for example in examples if "text" in example)
    return said <= 2 * len(examples) or 2 * said <= read


def picture_shape(model: Model) -> ImageShape:
    """(channels, rows, columns) of the images that a model reads, None where it takes any; a model of texts is refused."""
    shape = model.capabilities.image_shape
    if shape is None:
        raise UsageError(
            f"The data are images, and {model.family.name} {model.capabilities.describe()}. Choose a family that reads images, "
            "such as vit for labels or captioner_transformer for captions."
        )
    return shape


def most_frequent_label(train: Sequence[Example], labels: Sequence[str]) -> Baseline:
    """The rule that always answers the label which most training examples have."""
    common, _ = Counter(str(example["label"]) for example in train).most_common(1)[0]
    scores = {label: float(label == common) for label in labels}
    return Baseline(f"always answering {common!r}", lambda example: {"label": common, "scores": scores})


def compares_texts(model: Model) -> bool:
    """Whether a head is for two texts: one output, which is a number, or a class by the name of entailment."""
    return (len(model.labels) == 1 and not model.many) or any("entail" in label.lower() for label in model.labels)


def pictures(examples: Sequence[Example], model: Model) -> list[np.ndarray]:
    """The pictures of examples in the shape that a model reads; of very many, what is read when it is made an array."""
    found = cast(list[np.ndarray], held([example["image"] for example in examples], picture_shape(model)))
    sizes = dict.fromkeys(array.shape[1:] for array in found)
    if len(sizes) > 1:
        one, other = (f"{rows} x {columns}" for rows, columns in list(sizes)[:2])
        cure = "scale them to one size, or choose a model that does, such as vit"
        raise DataError(f"pictures of {one} and of {other} pixels, where {model.family.name} needs one size", cure=cure)
    return found


def _usual_shape(examples: Sequence[Example]) -> tuple[int, int]:
    """Channels and side of a square that suit most of some pictures."""
    shapes = [pixels(example["image"]).shape for example in examples[:: max(1, len(examples) // LOOK)]]
    sides = sorted(min(rows, columns) for _, rows, columns in shapes)
    return max(channels for channels, _, _ in shapes), min(SIDE, sides[len(sides) // 2])


def _numbers_first(label: str) -> tuple[bool, float, str]:
    """1, 2, 10, and then words in the order of the alphabet."""
    try:
        return False, float(label), label
    except ValueError:
        return True, 0.0, label
