"""The base class of denoising objectives: an encoder-decoder reads a corrupted text and generates what restores it."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from saccade.data import Batch, Text
from saccade.errors import UsageError
from saccade.models.capabilities import Generates, Modality
from saccade.models.family import AutoregressiveBody
from saccade.models.model import Model
from saccade.tasks.base import Item
from saccade.tasks.losses import lm_loss
from saccade.tasks.needs import Needs
from saccade.tasks.pretrain import corruption
from saccade.tasks.pretrain.objective import Objective, score_tokens, sum_by_row
from saccade.tasks.pretrain.packed_rows import collate_rows


class DenoisingObjective(Objective):
    """A denoising objective for encoder-decoders; `corrupt` defines the corruption."""

    default_sizes = MappingProxyType({"width": 256, "layers": 3, "heads": 4, "ffn_width": 1024})
    needs = Needs(Modality.TEXT, Generates.TARGET)
    token_template = "t5"
    noise_channels: ClassVar[int]  # noise values per token

    def __init__(self, config: Any = None, labels: Sequence[str] = ()):
        super().__init__(config, labels)
        if self.config.whole_word_masking:
            raise UsageError(
                f"{self.name} corrupts spans of tokens; task.whole_word_masking is for the objective masked_lm."
            )

    def corrupt(
        self, ids: np.ndarray, unit_ids: np.ndarray, noise: np.ndarray, model: Model
    ) -> tuple[list[int], list[int]]:
        """The source and the target for ids without special tokens, (n,), their units and noise (channels, L)."""
        raise NotImplementedError

    def batch(self, items: Sequence[Item]) -> Batch:
        return collate_rows(items)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        assert isinstance(batch.source, Text)
        x, gold, _ = self._target_states(model, batch, corruption.random_noise(batch.source, self.noise_channels))
        return lm_loss(model.autoregressive_body.head, x, gold)

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any]]:
        assert isinstance(batch.source, Text)
        x, gold, rows = self._target_states(
            model, batch, corruption.seeded_noise(batch.source, batch.items, self.noise_channels)
        )
        return sum_by_row(rows, len(batch.items), *score_tokens(model.autoregressive_body.head, x, gold))

    def corrupt_batch(self, model: Model, batch: Batch, noise: Tensor) -> Batch:
        """The batch with corrupted sources and their targets."""
        pairs, noise_array = [], noise.cpu().numpy()
        for row, item in enumerate(batch.items):
            inner = np.flatnonzero(item.gold.unit_ids >= 0)
            first, last = int(inner[0]), int(inner[-1]) + 1
            before, ids, after = np.split(item.source, [first, last])
            source_ids, target_ids = self.corrupt(ids, item.gold.unit_ids[first:last], noise_array[:, row], model)
            pairs.append([[*before.tolist(), *side, *after.tolist()] for side in (source_ids, target_ids)])
        source, target = (Text.pad([pair[side] for pair in pairs]) for side in (0, 1))
        return Batch(source, target, items=batch.items).to(noise.device)

    def _target_states(self, model: Model, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The decoder states that predict the target tokens (N, W), the tokens (N,), and their rows (N,)."""
        corrupted = self.corrupt_batch(model, batch, noise)
        target, body = corrupted.target, model.autoregressive_body
        assert target is not None
        keep = target.keep_mask
        return decoder_states(body, corrupted)[keep], target.tokens[keep], torch.nonzero(keep)[:, 0]


def decoder_states(body: AutoregressiveBody, batch: Batch) -> Tensor:
    """The decoder states that predict the tokens of the target, (B, T, W)."""
    target = batch.target
    assert target is not None
    state, first = body.start(batch)
    prefix_length = first.tokens.size(1)
    tokens = torch.cat([first.tokens, target.tokens[:, :-1]], dim=1)
    keep = None if target.keep is None else torch.cat([first.keep_mask, target.keep[:, :-1]], dim=1)
    return body.hidden_states(Text(tokens, keep), state)[:, prefix_length - 1 :]
