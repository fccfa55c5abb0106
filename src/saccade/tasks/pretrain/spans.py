"""Stretches that were taken out, each marked by a token of its own, in their order (Raffel et al. 2020, arXiv 1910.10683)."""

from collections.abc import Sequence

import numpy as np

from saccade.data import Batch, Example
from saccade.errors import UsageError
from saccade.models.model import Model
from saccade.tasks.pretrain import noise
from saccade.tasks.pretrain.mending import Mending
from saccade.tasks.pretrain.rows import rows
from saccade.tasks.task import Item, need_tokenizer

SENTINELS = tuple(f"<extra_id_{i}>" for i in range(100))


class Spans(Mending):
    name = "spans"
    said = "the stretches that were taken out of a text (T5)"
    family = "t5"
    extra = SENTINELS
    kinds = 2

    def items(self, examples: Sequence[Example], model: Model) -> list[Item]:
        sentinels(model)  # an error here is earlier than at the first step
        return rows(examples, model, self.config)

    def count(self, batch: Batch) -> int:
        whole = [(len(item.source), int((item.gold.units >= 0).sum())) for item in batch.rows]
        return sum(length - inner + sum(self._sizes(inner)) for length, inner in whole)

    def spoil(
        self, ids: np.ndarray, units: np.ndarray, chance: np.ndarray, model: Model
    ) -> tuple[list[int], list[int]]:
        taken = noise.spans(len(ids), *self._sizes(len(ids)), chance)
        return noise.taken_out(ids, taken, sentinels(model))

    def _sizes(self, length: int) -> tuple[int, int]:
        return noise.span_counts(length, self.share, self.config.span, most=len(SENTINELS))


def sentinels(model: Model) -> list[int]:
    """The ids of the tokens that stand for what was taken out."""
    tokenizer = need_tokenizer(model)
    found = [id for name in SENTINELS if (id := tokenizer.id(name)) is not None]
    if len(found) < len(SENTINELS):
        raise UsageError(
            f"Spans are marked by {SENTINELS[0]} to {SENTINELS[-1]}, and this tokenizer has {len(found)} of them; "
            "begin from T5, or from a new model without --model."
        )
    return found
