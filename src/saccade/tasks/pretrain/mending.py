"""What spans and denoising share: a writer reads a spoilt text and writes what mends it."""

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
from saccade.tasks.losses import word_loss
from saccade.tasks.needs import Needs
from saccade.tasks.pretrain import noise
from saccade.tasks.pretrain.objective import Objective, judged, summed
from saccade.tasks.pretrain.rows import numbered
from saccade.tasks.task import Item


class Mending(Objective):
    """An objective of encoder-decoders; `spoil` says how."""

    sizes = MappingProxyType({"width": 256, "layers": 3, "heads": 4, "inner": 1024})
    needs = Needs(Modality.TEXT, Generates.TARGET)
    frame = "t5"
    kinds: ClassVar[int]  # of chance for each token

    def __init__(self, config: Any = None, labels: Sequence[str] = ()):
        super().__init__(config, labels)
        if self.config.whole_words:
            raise UsageError(
                f"{self.name} takes out stretches of tokens; task.whole_words is for the objective masked."
            )

    def spoil(
        self, ids: np.ndarray, units: np.ndarray, chance: np.ndarray, model: Model
    ) -> tuple[list[int], list[int]]:
        """A text without what is around it, (n,), its units, and chance (kinds, L), to what is read and what is written."""
        raise NotImplementedError

    def batch(self, items: Sequence[Item]) -> Batch:
        return numbered(items)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        assert isinstance(batch.source, Text)
        x, gold, _ = self._written(model, batch, noise.drawn(batch.source, self.kinds))
        return word_loss(model.autoregressive.head, x, gold)

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any]]:
        assert isinstance(batch.source, Text)
        x, gold, at = self._written(model, batch, noise.fixed(batch.source, batch.rows, self.kinds))
        return summed(at, len(batch.rows), *judged(model.autoregressive.head, x, gold))

    def spoilt(self, model: Model, batch: Batch, chance: Tensor) -> Batch:
        """The batch as it is read and as it should be written."""
        pairs, dice = [], chance.cpu().numpy()
        for row, item in enumerate(batch.rows):
            inner = np.flatnonzero(item.gold.units >= 0)
            first, last = int(inner[0]), int(inner[-1]) + 1
            before, ids, after = np.split(item.source, [first, last])
            read, written = self.spoil(ids, item.gold.units[first:last], dice[:, row], model)
            pairs.append([[*before.tolist(), *side, *after.tolist()] for side in (read, written)])
        source, target = (Text.of([pair[side] for pair in pairs]) for side in (0, 1))
        return Batch(source, target, rows=batch.rows).to(chance.device)

    def _written(self, model: Model, batch: Batch, chance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The vectors before each token to be written (N, W), the tokens (N,), and the rows they stand in (N,)."""
        spoilt = self.spoilt(model, batch, chance)
        target, body = spoilt.target, model.autoregressive
        assert target is not None
        keep = target.real
        return thought(body, spoilt)[keep], target.tokens[keep], torch.nonzero(keep)[:, 0]


def thought(body: AutoregressiveBody, batch: Batch) -> Tensor:
    """What a writer thinks before each token of its target, (B, T, W)."""
    target = batch.target
    assert target is not None
    state, first = body.start(batch)
    length = first.tokens.size(1)
    tokens = torch.cat([first.tokens, target.tokens[:, :-1]], dim=1)
    keep = None if target.keep is None else torch.cat([first.real, target.keep[:, :-1]], dim=1)
    return body.think(Text(tokens, keep), state)[:, length - 1 :]
