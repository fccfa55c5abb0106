"""A number for a text: stars of a review, the mark of an essay, a price for what an advertisement says."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import Any, Literal

import torch
from torch import Tensor

from saccade.data import Batch, Example, Role
from saccade.data.guess import are_numbers
from saccade.data.item import GRADE, TEXT
from saccade.errors import DataError
from saccade.models.capabilities import Modality
from saccade.models.model import Model
from saccade.tasks import metrics
from saccade.tasks.metrics import Score
from saccade.tasks.needs import Needs
from saccade.tasks.task import Baseline, Choices, Item, Task, encoded, sources

MAX_CLASSES = 12  # whole numbers of which there are no more are read as classes when a file is looked at
MIN_REPEATS = 5  # times that whole numbers come on average; those of which each comes once are no grades


@dataclass(frozen=True)
class Config:
    length: int = 256  # the most tokens that are read of a text
    pieces: str = "auto"  # of a new tokenizer: bpe, wordpiece, unigram, words, characters or bytes
    metric: str = "pearson"  # the metric that selects the checkpoint: pearson, spearman, mse or mae
    mean: float = 0.0  # of the numbers, taken from the training data
    deviation: float = 1.0  # their standard deviation, likewise
    augment: Literal["none", "swap"] = (
        "none"  # swap: counterfactual examples about the other group join the training data
    )


class Grade(Task):
    name = "grade"
    aliases = ("score",)
    said = "a number for a text: stars, a mark, a price"
    Config = Config
    needs = Needs(Modality.TEXT, head="label")

    # data
    sample = "ratings"
    gold_roles = ("score",)
    min_examples = 500
    exchanged = counterfactual_roles = ("text",)
    unchanged_gold = ("score",)

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (TEXT, GRADE)

    @classmethod
    def matches(cls, examples: Sequence[Example]) -> bool:
        """Measured numbers beside texts: some of them are not whole, or there are too many to be classes."""
        values = {float(example["score"]) for example in examples}
        whole = all(value == int(value) for value in values)
        measured = not whole or (len(values) * MIN_REPEATS <= len(examples) and len(values) > MAX_CLASSES)
        return measured and not are_numbers(examples, "text")

    def fit(self, examples: Sequence[Example]) -> None:
        values = [float(example["score"]) for example in examples]
        mean, deviation = (fmean(values), pstdev(values)) if values else (0.0, 0.0)
        if not deviation > 1e-12 * max(1.0, abs(mean)):
            what = f"all {len(values)} texts have the number {values[0]:g}" if values else "there are no texts"
            raise DataError(f"{what}, so there is nothing to learn", cure="give texts with at least two numbers")
        self.config = replace(self.config, mean=mean, deviation=deviation)
        self.labels = ("score",)  # the one output
        self.noticed = (f"the numbers lie between {min(values):g} and {max(values):g}, with a mean of {mean:.3g}",)

    # encoding
    frame = "both"

    def texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return (example["text"] for example in examples)

    def items(self, examples: Sequence[Example], model: Model) -> list[Item]:
        found = encoded([example["text"] for example in examples], model, self.config.length)
        return [
            Item(example, ids, gold=self._gold(example), segments=segments)
            for example, (ids, segments, _) in zip(examples, found, strict=True)
        ]

    def batch(self, items: Sequence[Item]) -> Batch:
        known = all(item.gold is not None for item in items)
        gold = torch.tensor([item.gold for item in items]) if known else None
        return Batch(sources(items), gold=gold, rows=list(items))

    # learning
    watched = ("pearson", "spearman", "mse", "mae")

    def usual(self) -> str:
        return "transformer_reader"

    def choices(self, examples: Sequence[Example], pretrained: bool) -> Choices:
        if pretrained:
            return Choices("", train={"rate": 1e-4, "tokens": 1024, "epochs": 4})
        sizes = {"width": 128, "layers": 2, "inner": 256}
        return Choices(self.usual(), sizes, {"rate": 1e-3, "tokens": 2048, "epochs": 10})

    def count(self, batch: Batch) -> int:
        return len(batch.rows)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        """The squared error, in units of the training data's variance."""
        assert batch.gold is not None
        return (model(batch).squeeze(-1) - batch.gold).square().sum()

    def baseline(self, train: Sequence[Example]) -> Baseline | None:
        mean = fmean(float(example["score"]) for example in train) if train else math.nan
        return Baseline(f"always answering the mean, {mean:.3g},", lambda example: {"score": mean}) if train else None

    # answering
    predicts_number = True

    def answer(self, model: Model, batch: Batch) -> list[dict[str, float]]:
        scores = model(batch).float().squeeze(-1)
        return [{"score": self.config.mean + self.config.deviation * value} for value in scores.tolist()]

    def score(self, answers: Sequence[dict[str, float]], examples: Sequence[Example]) -> list[Score]:
        gold, given = [float(example["score"]) for example in examples], [answer["score"] for answer in answers]
        found = [measure(gold, given) for measure in (metrics.pearson, metrics.spearman, metrics.mse, metrics.mae)]
        return sorted(found, key=lambda score: score.name != self.config.metric)

    def comparable(self, answer: dict[str, float], example: Example) -> float:
        return answer["score"]

    # presenting
    verb = "grade"
    hub_pipeline = "text-classification"
    reads_sentences = True

    @classmethod
    def from_head(cls, model: Model) -> None:
        """None: a head with one output that came without a run is taken for one that compares two texts."""

    def told(self, shown: dict[str, Any]) -> str:
        return f"{shown['score']:.4g}"

    def _gold(self, example: Example) -> float | None:
        known = "score" in example
        return (float(example["score"]) - self.config.mean) / self.config.deviation if known else None
