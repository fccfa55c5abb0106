"""A number, or a class, for a row of numbers, by kernel pooling: near points answer for far ones.

The model keeps the training points and learns one thing, how far a point's word carries: the width that best predicts each
of them from all the others. A column of answers that are numbers makes a regression, any other a classification.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade import metrics
from saccade.data import Batch, Example, Features, Role
from saccade.data.example import LABEL, X, Y
from saccade.errors import DataError
from saccade.metrics import Score
from saccade.models.capabilities import Modality
from saccade.models.families.kernel_regression import KernelRegression
from saccade.models.model import Model
from saccade.tasks.base import Defaults, Item, Task
from saccade.tasks.interface.predictions import LabelPrediction, NumberPrediction
from saccade.tasks.needs import Needs


@dataclass(frozen=True)
class Config:
    classification: bool = False
    """Classification: treat the targets as classes, even if they look like numbers."""


class Regress(Task):
    name = "regress"
    gold_roles = ("y", "label")
    no_augment_reason = "it reads numbers"
    hub_pipeline = "tabular-regression"
    description = "kernel regression (Nadaraya-Watson): a number or a class for a row of numbers"
    Config = Config
    needs = Needs(Modality.FEATURES)
    sample = "curve"
    tracks_dev_loss = False  # its loss is that of the remembered points

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (X, LABEL if self.config.classification else Y)

    def fit(self, examples: Sequence[Example]) -> None:
        if len({len(example["x"]) for example in examples}) != 1:
            raise DataError("the rows have different numbers of columns", hint="name them with --columns x=1,2")
        if self.config.classification:
            self.labels = tuple(sorted({example["label"] for example in examples}))

    def default_family(self) -> str:
        return "kernel_regression"

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        features = len(examples[0]["x"]) if examples else 1
        sizes = {"points": len(examples), "features": features, "outputs": max(1, len(self.labels))}
        every = max(1, len(examples) * features)  # a step asks for all points
        rates = {"lr": 0.05, "epochs": 60, "batch_tokens": every, "weight_decay": 0.0, "warmup": 0.0, "eval_every": 20}
        return Defaults(self.default_family(), sizes, rates)

    def prepare_model(self, model: Model, examples: Sequence[Example]) -> None:
        body = model.body
        assert isinstance(body, KernelRegression), "regress asks for the family kernel"
        points = torch.tensor([example["x"] for example in examples], dtype=torch.float32)
        body.fit(points, torch.tensor([self._encode_gold(example) for example in examples], dtype=torch.float32))

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return iter(())

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        key = "label" if self.config.classification else "y"
        return [
            Item(
                example, np.array(example["x"], np.float32), gold=self._encode_gold(example) if key in example else None
            )
            for example in examples
        ]

    def batch(self, items: Sequence[Item]) -> Batch:
        values, gold = torch.stack([torch.from_numpy(item.source) for item in items]), None
        if all(item.gold is not None for item in items):
            gold = torch.tensor([item.gold for item in items], dtype=torch.float32)
        return Batch(Features(values), gold=gold, items=list(items))

    def count_targets(self, batch: Batch) -> int:
        return len(batch.items)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        """The squared error of every remembered point, asked from all the others: a step sees all of them."""
        body = model.body
        assert isinstance(body, KernelRegression), "regress asks for the family kernel"
        return (body.leave_one_out() - body.values).square().sum()

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any]]:
        rows = model(batch).tolist()
        if not self.config.classification:
            return [{"y": row[0]} for row in rows]
        ranked = [sorted(zip(self.labels, row, strict=True), key=lambda pair: -pair[1]) for row in rows]
        return [{"label": best[0][0], "scores": dict(best)} for best in ranked]

    def score(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> list[Score]:
        if self.config.classification:
            return [metrics.accuracy([e["label"] for e in examples], [a["label"] for a in answers])]
        gold, said = [example["y"] for example in examples], [answer["y"] for answer in answers]
        return [metrics.r2(gold, said), metrics.mse(gold, said)]

    def to_prediction(self, answer: dict[str, Any], example: Example) -> LabelPrediction | NumberPrediction:
        if self.config.classification:
            return LabelPrediction.from_scores(answer["label"], answer["scores"])
        return NumberPrediction(answer["y"])

    def _encode_gold(self, example: Example) -> list[float]:
        if self.config.classification:
            return [float(label == example["label"]) for label in self.labels]
        return [example["y"]]
