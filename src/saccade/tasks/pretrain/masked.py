"""Words behind masks: which word stood there, told from both sides (Devlin et al. 2019, arXiv 1810.04805).

The masks are drawn anew at every step (Liu et al. 2019, arXiv 1907.11692), and the vocabulary is scored where a word is asked
for and nowhere else.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from saccade.data import Batch, Example, Text
from saccade.models.capabilities import Modality
from saccade.models.model import Model
from saccade.tasks.losses import word_loss
from saccade.tasks.needs import Needs
from saccade.tasks.pretrain import noise
from saccade.tasks.pretrain.objective import Objective, judged, summed
from saccade.tasks.pretrain.rows import mask_of, numbered, plain_ids, rows
from saccade.tasks.task import Item, need_tokenizer


class Masked(Objective):
    name = "masked"
    hub_pipeline = "fill-mask"
    scores_sentences = True
    no_look_answer = "the model predicts masked words, and none is masked here"
    said = "which words stand behind masks (BERT, RoBERTa)"
    family = "bert"
    needs = Needs(Modality.TEXT, head="words")
    frame = "both"

    def items(self, examples: Sequence[Example], model: Model) -> list[Item]:
        return rows(examples, model, self.config, skip=self.skipped(model))

    def skipped(self, model: Model) -> list[int]:
        unknown = need_tokenizer(model).unknown  # nobody can tell what stood there
        return [] if unknown is None else [unknown]

    def batch(self, items: Sequence[Item]) -> Batch:
        return numbered(items)

    def count(self, batch: Batch) -> int:
        assert batch.gold is not None
        return int(noise.asked(batch.gold, self.share).sum())

    def loss(self, model: Model, batch: Batch) -> Tensor:
        assert isinstance(batch.source, Text)
        x, gold, _ = self._read(model, batch, noise.drawn(batch.source, 3))
        return word_loss(model.head, x, gold)

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any]]:
        assert isinstance(batch.source, Text)
        x, gold, at = self._read(model, batch, noise.fixed(batch.source, batch.rows, 3))
        return summed(at, len(batch.rows), *judged(model.head, x, gold))

    def _read(self, model: Model, batch: Batch, chance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The vectors where a word is asked for (N, W), the words (N,), and the rows they stand in (N,)."""
        text, words = batch.source, batch.gold
        assert isinstance(text, Text)
        assert words is not None
        hidden = noise.chosen(words, self.share, chance[0])
        plain = plain_ids(model).to(text.tokens.device)
        spoilt = noise.masked(text.tokens, hidden, chance[1], chance[2], mask=mask_of(model), plain=plain)
        x = model.body(replace(batch, source=replace(text, tokens=spoilt)))
        return x[hidden], text.tokens[hidden], torch.nonzero(hidden)[:, 0]
