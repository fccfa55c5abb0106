"""Quality loss by quantization: agreement of greedy tokens and increase in perplexity of the fast model.

print(measure_quality(load("runs/english"), ["Once upon a time ..."], "int8"))
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from saccade.data import Batch, Text
from saccade.decoding import generate, teacher_forced_logits
from saccade.engine.model import fast
from saccade.engine.precision import PrecisionChoice
from saccade.errors import ModelError, UsageError
from saccade.models.model import Model

MAX_TARGET_TOKENS = 256  # maximum number of target tokens that an encoder-decoder generates for the comparison


@dataclass(frozen=True)
class QuantizationQuality:
    """Comparison of a model and its fast form on the same tokens."""

    precision_choice: PrecisionChoice
    tokens: int
    agreement: float  # fraction of positions at which both predict the same next token
    base_perplexity: float
    fast_perplexity: float

    @property
    def perplexity_increase(self) -> float:
        """Relative increase in perplexity."""
        return self.fast_perplexity / self.base_perplexity - 1

    def __str__(self) -> str:
        return (
            f"{self.precision_choice.precision}: {self.agreement:.2%} of {self.tokens:,} tokens equal, perplexity "
            f"{self.base_perplexity:.3f} to {self.fast_perplexity:.3f} ({self.perplexity_increase:+.2%})"
        )


@torch.no_grad()
def measure_quality(model: Model, texts: Sequence[str], precision: str = "auto") -> QuantizationQuality:
    """Compare an autoregressive model with its fast form on texts.

    A decoder-only model predicts the texts themselves, token by token. For an encoder-decoder the texts are sources, and both
    predict the target that the original model generates.
    """
    if model.tokenizer is None or not model.capabilities.is_autoregressive:
        raise ModelError(f"{model.family.name}: an autoregressive model with a tokenizer is needed.")
    fast_model = fast(model, precision)
    tokens = equal = 0
    losses = torch.zeros(2, dtype=torch.float64)
    for number, text in enumerate(texts):
        batch = _make_batch(model, text, number)
        assert batch.target is not None
        gold = batch.target.tokens[0]
        scores = [teacher_forced_logits(m, batch)[0] for m in (model, fast_model)]  # (T, V) each
        losses += torch.stack([F.cross_entropy(x.double(), gold, reduction="sum") for x in scores])
        tokens, equal = tokens + len(gold), equal + int((scores[0].argmax(-1) == scores[1].argmax(-1)).sum())
    if not tokens:
        raise UsageError("No texts to compare; give at least one text of two tokens or more.")
    base_perplexity, fast_perplexity = (math.exp(float(loss) / tokens) for loss in losses)
    return QuantizationQuality(fast_model.precision_choice, tokens, equal / tokens, base_perplexity, fast_perplexity)


def _make_batch(model: Model, text: str, index: int) -> Batch:
    """A batch with the text as target; for an encoder-decoder as source, with the generated target."""
    ids = torch.tensor([model.tokenizer.encode(text).ids[: model.max_positions]])
    if ids.size(1) < 2:
        raise UsageError(
            f"Text {index} has {ids.size(1)} tokens; at least 2 are needed to predict one. Give a longer text."
        )
    source = Text(ids)
    if model.start(Batch(source))[1] is source:
        return Batch(Text(ids[:, :1]), Text(ids[:, 1:]))
    end = model.tokenizer.target.eos_id
    row = generate(
        model,
        Batch(source),
        stop_ids=end,
        max_new_tokens=min(MAX_TARGET_TOKENS, model.max_positions or MAX_TARGET_TOKENS),
    )[0]
    return Batch(source, Text(torch.tensor([[*row, end]])))
