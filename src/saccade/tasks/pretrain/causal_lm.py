"""Causal language modeling: next-token prediction as in the task `language` (Radford et al. 2018)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from saccade.data import Example
from saccade.errors import UsageError
from saccade.models.model import Model
from saccade.tasks.language import Language
from saccade.tasks.pretrain.config import Config


class CausalLM(Language):
    name = "causal_lm"
    description = "causal language modeling (GPT): the next token of a text"
    Config = Config

    def __init__(self, config: Any = None, labels: Sequence[str] = ()):
        super().__init__(config, labels)
        if self.config.packing != "stream" or self.config.whole_word_masking:
            raise UsageError(
                "causal_lm is trained on one stream of tokens; leave out task.packing and task.whole_word_masking."
            )

    @property
    def record_format(self) -> str:  # type: ignore[override]
        return ""

    @property
    def eval_overlap(self) -> int:
        return 0

    @property
    def neural_cache(self) -> int:
        return 0

    def find_record_starts(self, ids: np.ndarray, model: Model) -> None:
        """None: pretraining text has no records."""

    def fit(self, examples: Sequence[Example]) -> None:
        """Nothing: there is no record format to check."""

    def prepare_model(self, model: Model, examples: Sequence[Example]) -> None:
        """Nothing: there is no separator to check."""
