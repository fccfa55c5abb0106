"""Kernel regression and classification of feature vectors (Nadaraya-Watson): a weighted mean over the training points.

The model stores the training points and learns only the kernel width that best predicts each of them from all the others
(leave-one-out).
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
from saccade.tasks.base import Defaults, ErrorRow, Item, Task
from saccade.tasks.interface.predictions import LabelPrediction, NumberPrediction
from saccade.tasks.needs import Needs


@dataclass(frozen=True)
class Config:
    classification: bool = False
    """Classification: treat the targets as classes, even if they look like numbers."""


class Regress(Task):
    name = "regress"
    gold_roles = ("y", "label")
    no_augment_reason = "its inputs are numbers"
    hub_pipeline = "tabular-regression"
    description = "kernel regression (Nadaraya-Watson): a number or a class for a row of numbers"
    Config = Config
    needs = Needs(Modality.FEATURES)
    has_mistakes = True
    sample = "curve"
    tracks_dev_loss = False  # its loss is the leave-one-out error of the training points

    @property
    def predicts_number(self) -> bool:  # type: ignore[override]
        return not self.config.classification

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (X, LABEL if self.config.classification else Y)

    def fit(self, examples: Sequence[Example]) -> None:
        if len({len(example["x"]) for example in examples}) != 1:
            raise DataError("the rows have different numbers of columns", hint="name the columns with --columns x=1,2")
        if self.config.classification:
            self.labels = tuple(sorted({example["label"] for example in examples}))

    def default_family(self) -> str:
        return "kernel_regression"

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        features = len(examples[0]["x"]) if examples else 1
        sizes = {"points": len(examples), "features": features, "outputs": max(1, len(self.labels))}
        batch_tokens = max(1, len(examples) * features)  # each step computes the loss of all points
        rates = {
            "lr": 0.05,
            "epochs": 60,
            "batch_tokens": batch_tokens,
            "weight_decay": 0.0,
            "warmup": 0.0,
            "eval_every": 20,
        }
        return Defaults(self.default_family(), sizes, rates)

    def prepare_model(self, model: Model, examples: Sequence[Example]) -> None:
        body = model.body
        assert isinstance(body, KernelRegression), "regress needs the family kernel_regression"
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
        """The leave-one-out squared error, summed over all training points in every step."""
        body = model.body
        assert isinstance(body, KernelRegression), "regress needs the family kernel_regression"
        return (body.leave_one_out() - body.values).square().sum()

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any]]:
        rows = model(batch).tolist()
        if not self.config.classification:
            return [{"y": row[0]} for row in rows]
        ranked = [sorted(zip(self.labels, row, strict=True), key=lambda pair: -pair[1]) for row in rows]
        return [{"label": ranking[0][0], "scores": dict(ranking)} for ranking in ranked]

    def score(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> list[Score]:
        if self.config.classification:
            return [metrics.accuracy([e["label"] for e in examples], [a["label"] for a in answers])]
        gold, predictions = [example["y"] for example in examples], [answer["y"] for answer in answers]
        return [metrics.r2(gold, predictions), metrics.mse(gold, predictions)]

    def error_row(self, answer: dict[str, Any], example: Example) -> ErrorRow | None:
        row = {"x": ", ".join(f"{value:g}" for value in example["x"])}
        if not self.config.classification:
            return ErrorRow.from_numbers(row, float(example["y"]), answer["y"])
        gold, label = example["label"], answer["label"]
        row |= {"gold": gold, "answer": label}
        return None if gold == label else ErrorRow.from_probability(row, answer["scores"][label])

    def to_prediction(self, answer: dict[str, Any], example: Example) -> LabelPrediction | NumberPrediction:
        if self.config.classification:
            return LabelPrediction.from_scores(answer["label"], answer["scores"])
        return NumberPrediction(answer["y"])

    def _encode_gold(self, example: Example) -> list[float]:
        if self.config.classification:
            return [float(label == example["label"]) for label in self.labels]
        return [example["y"]]
