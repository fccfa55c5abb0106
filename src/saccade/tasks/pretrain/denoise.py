"""A whole text, from one whose sentences were shuffled and whose stretches became masks (Lewis et al. 2020, arXiv 1910.13461)."""

from collections.abc import Callable, Sequence
from types import MappingProxyType

import numpy as np

from saccade.data import Batch, Example
from saccade.errors import UsageError
from saccade.models.model import Model
from saccade.tasks.pretrain import noise
from saccade.tasks.pretrain.mending import Mending
from saccade.tasks.pretrain.rows import mask_of, rows, sentences
from saccade.tasks.task import Item


class Denoise(Mending):
    name = "denoise"
    said = "a whole text from one with shuffled sentences and stretches behind masks (BART)"
    family = "bart"
    sizes = MappingProxyType({**Mending.sizes, "decoder_layers": 3, "decoder_heads": 4, "decoder_inner": 1024})
    published = 0.3
    kinds = 3

    def items(self, examples: Sequence[Example], model: Model) -> list[Item]:
        mask_of(model)  # an error here is earlier than at the first step
        return rows(examples, model, self.config, ends=sentences)

    def windows(self, model: Model) -> tuple[int, Callable[[np.ndarray], Item]]:
        raise UsageError("Sentences are told from the text, and this one is too large to be held; give less text.")

    def count(self, batch: Batch) -> int:
        return sum(len(item.source) for item in batch.rows)

    def spoil(
        self, ids: np.ndarray, units: np.ndarray, chance: np.ndarray, model: Model
    ) -> tuple[list[int], list[int]]:
        shuffled = ids[noise.shuffled(units, chance[0])]
        taken = noise.stretches(len(ids), self.share, self.config.span, chance[1:])
        return noise.filled_in(shuffled, taken, mask_of(model)), ids.tolist()
