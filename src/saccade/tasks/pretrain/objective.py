"""What an objective of pretraining is: a task whose gold is the data itself, hidden or spoilt by chance.

An objective has the form of a task, so this is a task with what all objectives on text share. A new one is a file with a class
and a line in OBJECTIVES. It says

- `name`, `said`; `family`, what it chooses when nobody names one; `needs`, `frame`, `extra` as of any task, with the head
  that it learns with ("words", "replaced"); `published`, the share that is hidden where nobody says;
- `items` and `batch`: the data as they are, without chance;
- `count`: by what a summed loss is divided. It is known before chance falls, so it is what is asked for, not what is drawn;
- `loss`: draws its noise from torch's own generator (`noise.drawn`). The loop seeds that for each step and rank, so that a run
  goes on exactly and the noise is new each time;
- `answer`: draws the noise of each row from a seed of its own (`noise.fixed`), so that scores can be compared;
- `score`: here of answers {"nats", "right", "asked"}; another kind of answer has its own;
- `equip`: puts onto a model, new or loaded, what it has only while it learns, such as a generator: any submodule beside `body`
  and `head` is learnt and goes into checkpoints, and `Model.save` leaves it out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.data import Example, Role
from saccade.data.item import LINE
from saccade.errors import UsageError
from saccade.models.model import Model
from saccade.tasks import metrics
from saccade.tasks.losses import rows_at_once
from saccade.tasks.metrics import Score
from saccade.tasks.metrics.score import ratio
from saccade.tasks.pretrain.config import Config
from saccade.tasks.pretrain.rows import longest, windowed
from saccade.tasks.task import Choices, Item, Task


class Objective(Task):
    """One line of OBJECTIVES, for text."""

    Config = Config
    sample = "docs"
    running = True
    reads_sentences = True
    family: ClassVar[str]
    sizes: ClassVar[Mapping[str, Any]] = MappingProxyType({"width": 256, "layers": 4, "heads": 4, "inner": 1024})
    published: ClassVar[float] = 0.15

    @property
    def share(self) -> float:
        """How much is hidden."""
        return self.config.share or self.published

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (LINE,)

    def usual(self) -> str:
        return self.family

    def choices(self, examples: Sequence[Example], pretrained: bool) -> Choices:
        if pretrained:
            return Choices("", train={"rate": 2e-4, "tokens": 4096, "epochs": 5})
        return Choices(self.family, self.sizes, {"rate": 1e-3, "tokens": 4096, "epochs": 10})

    def texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return (example["text"] for example in examples)

    def skipped(self, model: Model) -> list[int]:
        """The ids that nobody is asked for."""
        return []

    def windows(self, model: Model) -> tuple[int, Callable[[np.ndarray], Item]]:
        """Tokens of a window of a text too large to be held, and what makes an item of such a window and the token after it."""
        if self.config.whole_words or self.config.texts != "running":
            raise UsageError(
                "Of a text that is too large to be held only the tokens are kept, as one running text; leave out "
                "task.whole_words and task.texts, or give less text."
            )
        room, make = windowed(model, self.config, self.skipped(model))
        return room, lambda row: make(row[:-1])

    def scoring_settings(self, model: Model) -> dict[str, int]:
        return {"window": longest(model, self.config)}

    def score(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> list[Score]:
        nats, right, asked = ([float(answer[key]) for answer in answers] for key in ("nats", "right", "asked"))
        shares = metrics.measure("accuracy", ratio, np.stack([right, asked], axis=1))
        return [metrics.perplexity(nats, [int(count) for count in asked]), shares]

    def told(self, shown: dict[str, Any]) -> str:
        right, asked = shown["right"], max(1, shown["asked"])
        nats = shown["nats"] / asked
        return f"{right} of {shown['asked']} hidden tokens right, {nats:.2f} nats each"


def judged(head: Any, x: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
    """What each of (N, W) vectors costs in nats against (N,) words, and whether the likeliest word is the right one."""
    nats, right = [x.new_zeros(0)], [gold.new_zeros(0, dtype=torch.bool)]
    rows = rows_at_once(head)
    for some, words in zip(x.split(rows), gold.split(rows), strict=True):
        scores = head(some).float()
        nats.append(F.cross_entropy(scores, words, reduction="none"))
        right.append(scores.argmax(-1) == words)
    return torch.cat(nats), torch.cat(right)


def summed(rows: Tensor, count: int, nats: Tensor, right: Tensor) -> list[dict[str, Any]]:
    """The answer for each of `count` rows, of hidden tokens that stand in (N,) rows."""
    costs = torch.zeros(count, device=nats.device).index_add_(0, rows, nats.float())
    hits, asked = (torch.bincount(rows[some], minlength=count) for some in (right, torch.ones_like(right)))
    columns = zip(costs.tolist(), hits.tolist(), asked.tolist(), strict=True)
    return [{"nats": a, "right": b, "asked": c} for a, b, c in columns]
