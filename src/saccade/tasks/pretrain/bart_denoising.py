"""BART denoising: restore a text with shuffled sentences and masked spans (Lewis et al. 2020, arXiv 1910.13461)."""

from collections.abc import Callable, Sequence
from types import MappingProxyType

import numpy as np

from saccade.data import Batch, Example
from saccade.errors import UsageError
from saccade.models.model import Model
from saccade.tasks.base import Item
from saccade.tasks.pretrain import corruption
from saccade.tasks.pretrain.denoising import DenoisingObjective
from saccade.tasks.pretrain.packed_rows import find_sentence_ends, make_rows, require_mask_id


class BartDenoising(DenoisingObjective):
    name = "bart_denoising"
    description = "denoising (BART): a text from its version with shuffled sentences and masked spans"
    family = "bart"
    default_sizes = MappingProxyType(
        {**DenoisingObjective.default_sizes, "decoder_layers": 3, "decoder_heads": 4, "decoder_ffn_width": 1024}
    )
    default_mask_ratio = 0.3
    noise_channels = 3

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        require_mask_id(model)  # raises an error before the first step
        return make_rows(examples, model, self.config, find_ends=find_sentence_ends)

    def make_window_encoder(self, model: Model) -> tuple[int, Callable[[np.ndarray], Item]]:
        raise UsageError(
            "bart_denoising needs the sentences of a text, and this text is too large for memory; give less text."
        )

    def count_targets(self, batch: Batch) -> int:
        return sum(len(item.source) for item in batch.items)

    def corrupt(
        self, ids: np.ndarray, unit_ids: np.ndarray, noise: np.ndarray, model: Model
    ) -> tuple[list[int], list[int]]:
        shuffled = ids[corruption.permute_sentences(unit_ids, noise[0])]
        spans = corruption.sample_poisson_spans(len(ids), self.mask_ratio, self.config.mean_span_length, noise[1:])
        return corruption.mask_spans(shuffled, spans, require_mask_id(model)), ids.tolist()
