"""The task `pretrain`: a body that other tasks begin from, learnt by the objective that its settings name."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor

from saccade.attention.table import nearest
from saccade.data import Batch, Example, Role
from saccade.errors import UsageError
from saccade.models.model import Model
from saccade.tasks.metrics import Score
from saccade.tasks.pretrain.causal import Causal
from saccade.tasks.pretrain.config import Config
from saccade.tasks.pretrain.denoise import Denoise
from saccade.tasks.pretrain.electra import Replaced
from saccade.tasks.pretrain.masked import Masked
from saccade.tasks.pretrain.patches import Patches
from saccade.tasks.pretrain.spans import Spans
from saccade.tasks.task import Choices, Item, Task

OBJECTIVES: list[type[Task]] = [
    Causal,
    Masked,
    Spans,
    Denoise,
    Replaced,
    Patches,
]


class Pretrain(Task):
    """Hands everything on to its objective, which is a task itself."""

    name = "pretrain"
    answers_questions = False  # what is asked is what chance hides
    no_swap = "what they do to what is learnt for other tasks has not been measured"
    said = "a body for other tasks, learnt from data without labels: masked, causal, spans, denoise"
    Config = Config
    sample = "docs"
    running = True
    tracks_dev_loss = False  # its score is the loss

    def __init__(self, config: Any = None, labels: Sequence[str] = ()):
        super().__init__(config, labels)
        self.doing = objective(self.config.objective)(self.config)
        self.needs, self.frame, self.extra = self.doing.needs, self.doing.frame, self.doing.extra
        self.sample, self.running = self.doing.sample, self.doing.running
        self.hub_pipeline, self.no_look_answer = self.doing.hub_pipeline, self.doing.no_look_answer
        self.reads_sentences, self.scores_sentences = self.doing.reads_sentences, self.doing.scores_sentences

    @property
    def title(self) -> str:
        return f"pretrain with the objective {self.doing.name}"

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return self.doing.roles(paths)

    def name_texts(self, *texts: str) -> dict[str, Any]:
        return dict(zip(("source", "target"), texts, strict=False))

    def fit(self, examples: Sequence[Example]) -> None:
        self.doing.fit(examples)

    def usual(self) -> str:
        return self.doing.usual()

    def choices(self, examples: Sequence[Example], pretrained: bool) -> Choices:
        return self.doing.choices(examples, pretrained)

    def teach(self, model: Model, examples: Sequence[Example]) -> None:
        self.doing.teach(model, examples)

    def equip(self, model: Model) -> None:
        self.doing.equip(model)

    def texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return self.doing.texts(examples)

    def items(self, examples: Sequence[Example], model: Model) -> list[Item]:
        return self.doing.items(examples, model)

    def batch(self, items: Sequence[Item]) -> Batch:
        return self.doing.batch(items)

    def count(self, batch: Batch) -> int:
        return self.doing.count(batch)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        return self.doing.loss(model, batch)

    def answer(self, model: Model, batch: Batch) -> list[Any]:
        return self.doing.answer(model, batch)

    def gathered(self, answers: Sequence[Any], items: Sequence[Item]) -> list[Any]:
        return self.doing.gathered(answers, items)

    def score(self, answers: Sequence[Any], examples: Sequence[Example]) -> list[Score]:
        return self.doing.score(answers, examples)

    def scoring_settings(self, model: Model) -> dict[str, int]:
        return self.doing.scoring_settings(model)

    def shown(self, answer: Any, example: Example) -> dict[str, Any]:
        return self.doing.shown(answer, example)

    def told(self, shown: dict[str, Any]) -> str:
        return self.doing.told(shown)


def objective(name: str) -> type[Task]:
    """The objective of that name, or an error with the nearest."""
    for entry in OBJECTIVES:
        if entry.name == name:
            return entry
    known = [entry.name for entry in OBJECTIVES]
    raise UsageError(f"There is no objective {name!r}; {nearest(name, known)}")
