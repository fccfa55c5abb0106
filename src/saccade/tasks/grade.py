"""Text regression: a number for each text, such as the stars of a review, the grade of an essay or a price."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import Literal, Self

import torch
from torch import Tensor

from saccade import metrics
from saccade.data import Batch, Example, Role
from saccade.data.example import GRADE, TEXT
from saccade.data.infer_task import are_numbers
from saccade.errors import DataError
from saccade.metrics import Score
from saccade.models.capabilities import Modality
from saccade.models.model import Model
from saccade.tasks.base import BaselineMethod, Defaults, ErrorRow, Item, Task, encode_texts, pad_sources
from saccade.tasks.baselines.text_features import number_baselines
from saccade.tasks.interface.predictions import NumberPrediction
from saccade.tasks.needs import Needs

MAX_CLASSES = 12  # a file with at most this many distinct integers is inferred to have classes
MIN_REPEATS = 5  # mean number of examples per distinct integer for it to be a grade, not an identifier
OUTPUT_NAME = "score"  # label of the single output of the head; identifies the task of a model loaded without a run


@dataclass(frozen=True)
class Config:
    max_tokens: int = 256
    """Maximum number of tokens per text; longer texts are truncated."""
    tokenizer: str = "auto"
    """Kind of tokenizer to train: bpe, wordpiece, unigram, words, characters or bytes; auto chooses by the data."""
    metric: str = "pearson"
    """Metric that selects the best checkpoint: pearson, spearman, mse or mae."""
    target_mean: float = 0.0
    """Mean of the target values, measured on the training data."""
    target_std: float = 1.0
    """Standard deviation of the target values, measured on the training data."""
    augment: Literal["none", "counterfactual"] = "none"
    """Data augmentation: counterfactual adds copies of training examples about the other group; none disables it."""


class Grade(Task):
    name = "grade"
    aliases = ("score",)
    description = "text regression: a number for each text, such as stars, a grade or a price"
    Config = Config
    needs = Needs(Modality.TEXT, head="label")

    # data
    sample = "ratings"
    gold_roles = ("score",)
    min_examples = 500
    augment_roles = counterfactual_roles = ("text",)
    preserved_gold_roles = ("score",)

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (TEXT, GRADE)

    @classmethod
    def matches(cls, examples: Sequence[Example]) -> bool:
        """Whether the gold is for regression: some numbers are not integers, or there are too many values for classes."""
        values = {float(example["score"]) for example in examples}
        all_integers = all(value == int(value) for value in values)
        measured = not all_integers or (len(values) * MIN_REPEATS <= len(examples) and len(values) > MAX_CLASSES)
        return measured and not are_numbers(examples, "text")

    def fit(self, examples: Sequence[Example]) -> None:
        values = [float(example["score"]) for example in examples]
        mean, std = (fmean(values), pstdev(values)) if values else (0.0, 0.0)
        if not std > 1e-12 * max(1.0, abs(mean)):
            problem = f"all {len(values)} texts have the number {values[0]:g}" if values else "there are no texts"
            raise DataError(f"{problem}, so there is nothing to learn", hint="give texts with at least two numbers")
        self.config = replace(self.config, target_mean=mean, target_std=std)
        self.labels = (OUTPUT_NAME,)
        self.notes = (f"the numbers range from {min(values):g} to {max(values):g}, mean {mean:.3g}",)

    # encoding
    token_template = "bos_eos"

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return (example["text"] for example in examples)

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        encodings = encode_texts([example["text"] for example in examples], model, self.config.max_tokens)
        return [
            Item(example, ids, gold=self._encode_gold(example), segment_ids=segments)
            for example, (ids, segments, _) in zip(examples, encodings, strict=True)
        ]

    def batch(self, items: Sequence[Item]) -> Batch:
        known = all(item.gold is not None for item in items)
        gold = torch.tensor([item.gold for item in items]) if known else None
        return Batch(pad_sources(items), gold=gold, items=list(items))

    # learning
    metric_names = ("pearson", "spearman", "mse", "mae")

    def default_family(self) -> str:
        return "transformer_encoder"

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        if pretrained:
            return Defaults("", train={"lr": 1e-4, "batch_tokens": 1024, "epochs": 4})
        sizes = {"width": 128, "layers": 2, "ffn_width": 256}
        return Defaults(self.default_family(), sizes, {"lr": 1e-3, "batch_tokens": 2048, "epochs": 10})

    def count_targets(self, batch: Batch) -> int:
        return len(batch.items)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        """The summed squared error of the standardized targets."""
        assert batch.gold is not None
        return (model(batch).squeeze(-1) - batch.gold).square().sum()

    def baselines(self) -> Sequence[BaselineMethod]:
        return number_baselines(lambda example: (example["text"],), lambda example: float(example["score"]))

    # answering
    predicts_number = True

    def answer(self, model: Model, batch: Batch) -> list[dict[str, float]]:
        outputs = model(batch).float().squeeze(-1)
        return [{"score": self.config.target_mean + self.config.target_std * value} for value in outputs.tolist()]

    def score(self, answers: Sequence[dict[str, float]], examples: Sequence[Example]) -> list[Score]:
        targets, values = [float(example["score"]) for example in examples], [answer["score"] for answer in answers]
        scores = [measure(targets, values) for measure in (metrics.pearson, metrics.spearman, metrics.mse, metrics.mae)]
        return sorted(scores, key=lambda score: score.name != self.config.metric)

    def to_comparable(self, answer: dict[str, float], example: Example) -> float:
        return answer["score"]

    # presenting
    verb = "grade"
    hub_pipeline = "text-classification"
    reads_sentences = has_mistakes = True

    @classmethod
    def from_head(cls, model: Model) -> Self | None:
        """The task for a head whose single output is named "score"; any other name means a cross-encoder for pairs."""
        return super().from_head(model) if model.labels == (OUTPUT_NAME,) else None

    def accepts_model(self, model: Model) -> bool:
        return super().accepts_model(model) and len(model.labels) == 1 and not model.multi_label

    def error_row(self, answer: dict[str, float], example: Example) -> ErrorRow | None:
        return ErrorRow.from_numbers({"text": example["text"]}, float(example["score"]), answer["score"])

    def to_prediction(self, answer: dict[str, float], example: Example) -> NumberPrediction:
        return NumberPrediction(answer["score"])

    def _encode_gold(self, example: Example) -> float | None:
        known = "score" in example
        return (float(example["score"]) - self.config.target_mean) / self.config.target_std if known else None
