"""The base class of pretraining objectives: tasks whose gold is the data itself, masked or corrupted at random.

An objective is a task, and this class has what all objectives on text share. A new one is a file with a class and a line in
OBJECTIVES. It defines

- `name`, `description`; `family`, the default model family; `needs`, `token_template` and `extra_special_tokens` as for any task,
  with the head that it trains ("lm", "replaced_token_detection"); `default_mask_ratio`, the published mask ratio;
- `encode` and `batch`: the data without corruption;
- `count_targets`: by what the summed loss is divided. It is known before the noise is drawn, so it is the expected number;
- `loss`: uses noise of torch's global generator (`corruption.random_noise`). The training loop seeds it for each step and rank,
  so that a run can be resumed exactly and the noise is new at each step;
- `answer`: uses noise with a seed per row (`corruption.seeded_noise`), so that scores are comparable;
- `score`: here of answers {"nats", "correct", "targets"}; objectives with other answers override it;
- `attach_training_modules`: adds modules that exist only in training, such as a generator. Any submodule besides `body` and
  `head` is trained and stored in checkpoints, and `Model.save` leaves it out.
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
    """A pretraining objective on text, an entry of OBJECTIVES."""

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
        """The fraction of tokens or patches to mask."""
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
        """Token ids that are never masked."""
        return []

    def make_window_encoder(self, model: Model) -> tuple[int, Callable[[np.ndarray], Item]]:
        """The window size for a text too large for memory, and the function that turns a window into an item."""
        if self.config.whole_word_masking or self.config.packing != "stream":
            raise UsageError(
                "A text that is too large for memory is read as one stream of tokens; leave out task.whole_word_masking "
                "and task.packing, or give less text."
            )
        window, make_item = make_row_encoder(model, self.config, self.find_unmaskable_ids(model))
        return window, lambda row: make_item(row[:-1])

    def scoring_settings(self, model: Model) -> dict[str, int]:
        return {"window": max_row_tokens(model, self.config)}

    def score(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> list[Score]:
        nats, correct, targets = ([float(answer[key]) for answer in answers] for key in ("nats", "correct", "targets"))
        accuracy = metrics.measure("accuracy", ratio, np.stack([correct, targets], axis=1))
        return [metrics.perplexity(nats, [int(count) for count in targets]), accuracy]

    def to_prediction(self, answer: dict[str, Any], example: Example) -> MeasuredPrediction:
        nats = answer["nats"] / max(1, answer["targets"])
        summary = f"{answer['correct']} of {answer['targets']} masked tokens predicted correctly, {nats:.2f} nats each"
        return MeasuredPrediction(summary, answer)


def score_tokens(head: Any, x: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
    """The cross-entropy in nats of (N, W) hidden states against (N,) gold tokens, and whether each argmax is correct."""
    nats, correct = [x.new_zeros(0)], [gold.new_zeros(0, dtype=torch.bool)]
    rows = max_rows_per_chunk(head)
    for chunk, targets in zip(x.split(rows), gold.split(rows), strict=True):
        logits = head(chunk).float()
        nats.append(F.cross_entropy(logits, targets, reduction="none"))
        correct.append(logits.argmax(-1) == targets)
    return torch.cat(nats), torch.cat(correct)


def sum_by_row(rows: Tensor, count: int, nats: Tensor, correct: Tensor) -> list[dict[str, Any]]:
    """The answer for each of `count` rows: sums over the masked tokens, whose rows are (N,)."""
    row_nats = torch.zeros(count, device=nats.device).index_add_(0, rows, nats.float())
    hits, targets = (torch.bincount(rows[mask], minlength=count) for mask in (correct, torch.ones_like(correct)))
    columns = zip(row_nats.tolist(), hits.tolist(), targets.tolist(), strict=True)
    return [{"nats": a, "correct": b, "targets": c} for a, b, c in columns]
