"""Span corruption: generate the removed spans of a text, each after its sentinel (T5: Raffel et al. 2020, arXiv 1910.10683)."""

from collections.abc import Sequence

import numpy as np

from saccade.data import Batch, Example
from saccade.errors import UsageError
from saccade.models.model import Model
from saccade.tasks.base import Item, require_tokenizer
from saccade.tasks.pretrain import corruption
from saccade.tasks.pretrain.denoising import DenoisingObjective
from saccade.tasks.pretrain.packed_rows import make_rows

SENTINEL_TOKENS = tuple(f"<extra_id_{i}>" for i in range(100))


class SpanCorruption(DenoisingObjective):
    name = "span_corruption"
    description = "span corruption (T5): the spans that were removed from a text"
    family = "t5"
    extra_special_tokens = SENTINEL_TOKENS
    noise_channels = 2

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        sentinel_ids(model)  # raises an error before the first step
        return make_rows(examples, model, self.config)

    def count_targets(self, batch: Batch) -> int:
        sizes = [(len(item.source), int((item.gold.unit_ids >= 0).sum())) for item in batch.items]
        return sum(length - maskable + sum(self._span_counts(maskable)) for length, maskable in sizes)

    def corrupt(
        self, ids: np.ndarray, unit_ids: np.ndarray, noise: np.ndarray, model: Model
    ) -> tuple[list[int], list[int]]:
        spans = corruption.sample_spans(len(ids), *self._span_counts(len(ids)), noise)
        return corruption.remove_spans(ids, spans, sentinel_ids(model))

    def _span_counts(self, length: int) -> tuple[int, int]:
        return corruption.choose_span_counts(
            length, self.mask_ratio, self.config.mean_span_length, max_spans=len(SENTINEL_TOKENS)
        )


def sentinel_ids(model: Model) -> list[int]:
    """The ids of the sentinel tokens."""
    tokenizer = require_tokenizer(model)
    ids = [id for name in SENTINEL_TOKENS if (id := tokenizer.token_to_id(name)) is not None]
    if len(ids) < len(SENTINEL_TOKENS):
        raise UsageError(
            f"span_corruption needs the tokens {SENTINEL_TOKENS[0]} to {SENTINEL_TOKENS[-1]}, and this tokenizer has "
            f"{len(ids)} of them; start from T5, or from a new model without --model."
        )
    return ids
