"""What an objective of pretraining is: a task whose gold is the data itself, hidden or spoilt by chance.

An objective has the form of a task, so this is a task with what all objectives on text share. A new one is a file with a class
and a line in OBJECTIVES. It says

- `name`, `said`; `family`, what it chooses when nobody names one; `needs`, `frame`, `extra` as of any task, with the head
  that it learns with ("lm", "replaced_token_detection"); `published`, the share that is hidden where nobody says;
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

from saccade import metrics
from saccade.data import Example, Role
from saccade.data.example import TEXT_LINE
from saccade.errors import UsageError
from saccade.metrics import Score
from saccade.metrics.score import ratio
from saccade.models.model import Model
from saccade.tasks.base import Defaults, Item, Task
from saccade.tasks.interface.predictions import MeasuredPrediction
from saccade.tasks.losses import max_rows_per_chunk
from saccade.tasks.pretrain.config import Config
from saccade.tasks.pretrain.packed_rows import make_row_encoder, max_row_tokens


class Objective(Task):
    """One line of OBJECTIVES, for text."""

    Config = Config
    sample = "docs"
    is_text_stream = True
    reads_sentences = True
    family: ClassVar[str]
    default_sizes: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"width": 256, "layers": 4, "heads": 4, "ffn_width": 1024}
    )
    default_mask_ratio: ClassVar[float] = 0.15

    @property
    def mask_ratio(self) -> float:
        """How much is hidden."""
        return self.config.mask_ratio or self.default_mask_ratio

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (TEXT_LINE,)

    def default_family(self) -> str:
        return self.family

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        if pretrained:
            return Defaults("", train={"lr": 2e-4, "batch_tokens": 4096, "epochs": 5})
        return Defaults(self.family, self.default_sizes, {"lr": 1e-3, "batch_tokens": 4096, "epochs": 10})

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return (example["text"] for example in examples)

    def find_unmaskable_ids(self, model: Model) -> list[int]:
        """The ids that nobody is asked for."""
        return []

    def make_window_encoder(self, model: Model) -> tuple[int, Callable[[np.ndarray], Item]]:
        """Tokens of a window of a text too large to be held, and what makes an item of such a window and the token after it."""
        if self.config.whole_word_masking or self.config.packing != "stream":
            raise UsageError(
                "Of a text that is too large to be held only the tokens are kept, as one running text; leave out "
                "task.whole_word_masking and task.packing, or give less text."
            )
        room, make = make_row_encoder(model, self.config, self.find_unmaskable_ids(model))
        return room, lambda row: make(row[:-1])

    def scoring_settings(self, model: Model) -> dict[str, int]:
        return {"window": max_row_tokens(model, self.config)}

    def score(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> list[Score]:
        nats, right, asked = ([float(answer[key]) for answer in answers] for key in ("nats", "correct", "targets"))
        shares = metrics.measure("accuracy", ratio, np.stack([right, asked], axis=1))
        return [metrics.perplexity(nats, [int(count) for count in asked]), shares]

    def to_prediction(self, answer: dict[str, Any], example: Example) -> MeasuredPrediction:
        nats = answer["nats"] / max(1, answer["targets"])
        summary = f"{answer['correct']} of {answer['targets']} masked tokens predicted correctly, {nats:.2f} nats each"
        return MeasuredPrediction(summary, answer)


def score_tokens(head: Any, x: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
    """What each of (N, W) vectors costs in nats against (N,) words, and whether the likeliest word is the right one."""
    nats, right = [x.new_zeros(0)], [gold.new_zeros(0, dtype=torch.bool)]
    rows = max_rows_per_chunk(head)
    for some, words in zip(x.split(rows), gold.split(rows), strict=True):
        scores = head(some).float()
        nats.append(F.cross_entropy(scores, words, reduction="none"))
        right.append(scores.argmax(-1) == words)
    return torch.cat(nats), torch.cat(right)


def sum_by_row(rows: Tensor, count: int, nats: Tensor, correct: Tensor) -> list[dict[str, Any]]:
    """The answer for each of `count` rows, of hidden tokens that stand in (N,) rows."""
    costs = torch.zeros(count, device=nats.device).index_add_(0, rows, nats.float())
    hits, asked = (torch.bincount(rows[some], minlength=count) for some in (correct, torch.ones_like(correct)))
    columns = zip(costs.tolist(), hits.tolist(), asked.tolist(), strict=True)
    return [{"nats": a, "correct": b, "targets": c} for a, b, c in columns]
