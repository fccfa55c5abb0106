"""The task `pretrain`: self-supervised pretraining of a model to fine-tune, with the objective named in its settings."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor

from saccade.data import Batch, Example, Role
from saccade.errors import UsageError
from saccade.metrics import Score
from saccade.models.model import Model
from saccade.suggest import suggest
from saccade.tasks.base import Defaults, Item, Task
from saccade.tasks.interface.predictions import Prediction
from saccade.tasks.pretrain.bart_denoising import BartDenoising
from saccade.tasks.pretrain.causal_lm import CausalLM
from saccade.tasks.pretrain.config import Config
from saccade.tasks.pretrain.electra import ReplacedTokenDetection
from saccade.tasks.pretrain.masked_image import MaskedImage
from saccade.tasks.pretrain.masked_lm import MaskedLM
from saccade.tasks.pretrain.span_corruption import SpanCorruption

OBJECTIVES: list[type[Task]] = [
    CausalLM,
    MaskedLM,
    SpanCorruption,
    BartDenoising,
    ReplacedTokenDetection,
    MaskedImage,
]


class Pretrain(Task):
    """Delegates to its objective, which is a task itself."""

    name = "pretrain"
    predicts_per_example = False  # the targets are masked at random
    no_augment_reason = "its effect on fine-tuned models has not been measured"
    description = "self-supervised pretraining on unlabeled data: masked or causal LM, span corruption, denoising"
    Config = Config
    sample = "docs"
    is_text_stream = True
    tracks_dev_loss = False  # its metric is the loss

    def __init__(self, config: Any = None, labels: Sequence[str] = ()):
        super().__init__(config, labels)
        self.objective = objective_class(self.config.objective)(self.config)
        self.needs, self.token_template, self.extra_special_tokens = (
            self.objective.needs,
            self.objective.token_template,
            self.objective.extra_special_tokens,
        )
        self.sample, self.is_text_stream = self.objective.sample, self.objective.is_text_stream
        self.hub_pipeline, self.no_prediction_reason = self.objective.hub_pipeline, self.objective.no_prediction_reason
        self.reads_sentences, self.scores_sentences = self.objective.reads_sentences, self.objective.scores_sentences

    @property
    def title(self) -> str:
        return f"pretrain with the objective {self.objective.name}"

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return self.objective.roles(paths)

    def make_record(self, *texts: str) -> dict[str, Any]:
        return dict(zip(("source", "target"), texts, strict=False))

    def fit(self, examples: Sequence[Example]) -> None:
        self.objective.fit(examples)

    def default_family(self) -> str:
        return self.objective.default_family()

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        return self.objective.defaults(examples, pretrained)

    def prepare_model(self, model: Model, examples: Sequence[Example]) -> None:
        self.objective.prepare_model(model, examples)

    def attach_training_modules(self, model: Model) -> None:
        self.objective.attach_training_modules(model)

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return self.objective.tokenizer_texts(examples)

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        return self.objective.encode(examples, model)

    def batch(self, items: Sequence[Item]) -> Batch:
        return self.objective.batch(items)

    def count_targets(self, batch: Batch) -> int:
        return self.objective.count_targets(batch)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        return self.objective.loss(model, batch)

    def answer(self, model: Model, batch: Batch) -> list[Any]:
        return self.objective.answer(model, batch)

    def merge_answers(self, answers: Sequence[Any], items: Sequence[Item]) -> list[Any]:
        return self.objective.merge_answers(answers, items)

    def score(self, answers: Sequence[Any], examples: Sequence[Example]) -> list[Score]:
        return self.objective.score(answers, examples)

    def scoring_settings(self, model: Model) -> dict[str, int]:
        return self.objective.scoring_settings(model)

    def to_prediction(self, answer: Any, example: Example) -> Prediction:
        return self.objective.to_prediction(answer, example)


def objective_class(name: str) -> type[Task]:
    """The objective with this name; an unknown name raises an error that suggests the nearest."""
    for entry in OBJECTIVES:
        if entry.name == name:
            return entry
    known = [entry.name for entry in OBJECTIVES]
    raise UsageError(f"There is no objective {name!r}; {suggest(name, known)}")
