"""Shallow fusion: a language model of characters scores the tokens that the beams of CTC may append (Gulcehre et al. 2015).

The language model is a run of the task `language`, trained on one text per line with `--task.tokenizer characters`.
"""

from typing import Any

import numpy as np
import torch

from saccade.data import Batch, Text
from saccade.decoding.ctc import Prefix
from saccade.errors import UsageError
from saccade.models.capabilities import Generates
from saccade.models.model import Model
from saccade.tasks.base import require_tokenizer

LINE_END = "\n"  # a text begins after the end of a line, and ends with one


class LanguageModelScores:
    """The log-probabilities of a recognizer's tokens after a prefix; its end token stands for the end of a line."""

    def __init__(self, language_model: Model, tokenizer: Any):
        if language_model.capabilities.generates is not Generates.CONTINUATION:
            name, description = language_model.family.name, language_model.capabilities.describe()
            raise UsageError(f"task.language_model is a {name}, which {description}; give a run of the task language.")
        self.model = language_model.eval()
        special = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id}
        self.ids = [0 if id in special else self._find_id(tokenizer.decode([id])) for id in range(tokenizer.vocab)]
        self.line_end = self.ids[tokenizer.eos_id] = self._find_id(LINE_END)

    def _find_id(self, text: str) -> int:
        """The token of the language model for a token of the recognizer."""
        ids = require_tokenizer(self.model).encode(text, add_special_tokens=False).ids
        if text and len(ids) != 1:
            raise UsageError(
                f"The language model writes {text!r} as {len(ids)} tokens; shallow fusion needs the same tokens in both. Train "
                "both with --task.tokenizer characters."
            )
        return ids[0] if ids else 0

    @torch.inference_mode()
    def __call__(self, prefix: Prefix) -> np.ndarray:
        text = Text(torch.tensor([[self.line_end, *(self.ids[token] for token in prefix)]]))
        state, text = self.model.start(Batch(text))
        return self.model.last_logits(text, state)[0].float().log_softmax(-1)[self.ids].numpy()


def load_language_model(run: str, tokenizer: Any) -> LanguageModelScores:
    """The scores of the language model of a run for the tokens of a recognizer."""
    from saccade.tasks.runs.run import Run  # it imports the tasks

    return LanguageModelScores(Run(run).model, tokenizer)
