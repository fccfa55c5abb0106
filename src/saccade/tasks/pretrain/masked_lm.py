"""Masked language modeling: predict masked tokens from both sides (BERT: Devlin et al. 2019, arXiv 1810.04805).

Masking is dynamic, new at every step (RoBERTa: Liu et al. 2019, arXiv 1907.11692), and logits are computed only at masked
positions.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from saccade.data import Batch, Example, Text
from saccade.models.capabilities import Modality
from saccade.models.model import Model
from saccade.tasks.base import Item, require_tokenizer
from saccade.tasks.losses import lm_loss
from saccade.tasks.needs import Needs
from saccade.tasks.pretrain import corruption
from saccade.tasks.pretrain.objective import Objective, score_tokens, sum_by_row
from saccade.tasks.pretrain.packed_rows import collate_rows, make_rows, ordinary_ids, require_mask_id


class MaskedLM(Objective):
    name = "masked_lm"
    hub_pipeline = "fill-mask"
    scores_sentences = True
    no_prediction_reason = "the model predicts masked words, and none is masked here"
    description = "masked language modeling (BERT, RoBERTa): the masked tokens of a text"
    family = "bert"
    needs = Needs(Modality.TEXT, head="lm")
    token_template = "bos_eos"

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        return make_rows(examples, model, self.config, unmaskable_ids=self.find_unmaskable_ids(model))

    def find_unmaskable_ids(self, model: Model) -> list[int]:
        unknown = require_tokenizer(model).unk_id  # unknown tokens cannot be predicted
        return [] if unknown is None else [unknown]

    def batch(self, items: Sequence[Item]) -> Batch:
        return collate_rows(items)

    def count_targets(self, batch: Batch) -> int:
        assert batch.gold is not None
        return int(corruption.count_masked(batch.gold, self.mask_ratio).sum())

    def loss(self, model: Model, batch: Batch) -> Tensor:
        assert isinstance(batch.source, Text)
        x, gold, _ = self._masked_states(model, batch, corruption.random_noise(batch.source, 3))
        return lm_loss(model.head, x, gold)

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any]]:
        assert isinstance(batch.source, Text)
        x, gold, rows = self._masked_states(model, batch, corruption.seeded_noise(batch.source, batch.items, 3))
        return sum_by_row(rows, len(batch.items), *score_tokens(model.head, x, gold))

    def _masked_states(self, model: Model, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The hidden states at the masked positions (N, W), their gold tokens (N,), and their rows (N,)."""
        text, word_ids = batch.source, batch.gold
        assert isinstance(text, Text)
        assert word_ids is not None
        masked = corruption.choose_masked(word_ids, self.mask_ratio, noise[0])
        ordinary = ordinary_ids(model).to(text.tokens.device)
        corrupted = corruption.apply_mlm_mask(
            text.tokens, masked, noise[1], noise[2], mask_id=require_mask_id(model), ordinary_ids=ordinary
        )
        x = model.body(replace(batch, source=replace(text, tokens=corrupted)))
        return x[masked], text.tokens[masked], torch.nonzero(masked)[:, 0]
