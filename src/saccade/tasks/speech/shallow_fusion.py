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

REPLACEMENT_CHARACTER = "\ufffd"  # how a single byte of several that encode a character is decoded
UNKNOWN_LOG_PROB = -1e4  # the log-probability of tokens that the language model does not have
LINE_END = "\n"  # a text begins after the end of a line, and ends with one


class LanguageModelScores:
    """The log-probabilities of a recognizer's tokens after a prefix; its end token stands for the end of a line."""

    def __init__(self, language_model: Model, tokenizer: Any):
        if language_model.capabilities.generates is not Generates.CONTINUATION:
            name, description = language_model.family.name, language_model.capabilities.describe()
            raise UsageError(f"task.language_model is a {name}, which {description}; give a run of the task language.")
        self.model = language_model.eval()
        texts = [tokenizer.decode([id]) for id in range(tokenizer.vocab)]
        has_text = [
            bool(text) and REPLACEMENT_CHARACTER not in text for text in texts
        ]  # no special token, no part of a character
        has_text[tokenizer.eos_id], texts[tokenizer.eos_id] = True, LINE_END
        self.ids = [self._find_id(text) if known else 0 for text, known in zip(texts, has_text, strict=True)]
        self.line_end = self.ids[tokenizer.eos_id]
        self.unknown = ~np.array(has_text)

    def _find_id(self, text: str) -> int:
        """The token of the language model for a token of the recognizer."""
        ids = require_tokenizer(self.model).encode(text, add_special_tokens=False).ids
        if len(ids) != 1:
            raise UsageError(
                f"The language model writes {text!r} as {len(ids)} tokens; shallow fusion needs the same tokens in both. Train "
                "both with --task.tokenizer characters, on texts with the same characters."
            )
        return ids[0]

    @torch.inference_mode()
    def __call__(self, prefix: Prefix) -> np.ndarray:
        text = Text(torch.tensor([[self.line_end, *(self.ids[token] for token in prefix)]]))
        state, text = self.model.start(Batch(text))
        scores = self.model.last_logits(text, state)[0].float().log_softmax(-1)[self.ids].numpy()
        scores[self.unknown] = UNKNOWN_LOG_PROB
        return scores


def load_language_model(run: str, tokenizer: Any) -> LanguageModelScores:
    """The scores of the language model of a run for the tokens of a recognizer."""
    from saccade.tasks.runs.run import Run  # it imports the tasks

    return LanguageModelScores(Run(run).model, tokenizer)
