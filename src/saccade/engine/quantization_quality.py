"""What fewer bits cost: how often the fast model would go on with the same token, and how much worse it foresees a text.

print(quality(load("runs/english"), ["Once upon a time ..."], "int8"))
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

MAX_TARGET_TOKENS = 256  # tokens that are written of a text which a model reads as a source


@dataclass(frozen=True)
class QuantizationQuality:
    """The plain model and its fast form on the same tokens."""

    precision_choice: PrecisionChoice
    tokens: int
    agreement: float  # the share of tokens after which both go on with the same one
    base_perplexity: float  # perplexity
    fast_perplexity: float

    @property
    def perplexity_increase(self) -> float:
        """How much larger the perplexity became, as a share of it."""
        return self.fast_perplexity / self.base_perplexity - 1

    def __str__(self) -> str:
        return (
            f"{self.precision_choice.precision}: {self.agreement:.2%} of {self.tokens:,} tokens equal, perplexity "
            f"{self.base_perplexity:.3f} to "
            f"{self.fast_perplexity:.3f} ({self.perplexity_increase:+.2%})"
        )


@torch.no_grad()
def measure_quality(model: Model, texts: Sequence[str], precision: str = "auto") -> QuantizationQuality:
    """Compare a writer with its fast form on real texts.

    A model that continues texts foresees theirs, token by token. One that reads a source and writes something else is held
    to what the plain model writes for it.
    """
    if model.tokenizer is None or not model.capabilities.is_autoregressive:
        raise ModelError(f"{model.family.name}: a writer with a tokenizer is needed to compare what is written.")
    quick = fast(model, precision)
    tokens = equal = 0
    losses = torch.zeros(2, dtype=torch.float64)
    for number, text in enumerate(texts):
        batch = _make_batch(model, text, number)
        assert batch.target is not None
        gold = batch.target.tokens[0]
        scores = [teacher_forced_logits(one, batch)[0] for one in (model, quick)]  # (T, V) each
        losses += torch.stack([F.cross_entropy(x.double(), gold, reduction="sum") for x in scores])
        tokens, equal = tokens + len(gold), equal + int((scores[0].argmax(-1) == scores[1].argmax(-1)).sum())
    if not tokens:
        raise UsageError("There is nothing to compare: give at least one text of two tokens or more.")
    plain, hurried = (math.exp(float(loss) / tokens) for loss in losses)
    return QuantizationQuality(quick.precision_choice, tokens, equal / tokens, plain, hurried)


def _make_batch(model: Model, text: str, index: int) -> Batch:
    """The text as what is foreseen; or as a source, with what the plain model writes for it."""
    ids = torch.tensor([model.tokenizer.encode(text).ids[: model.max_positions]])
    if ids.size(1) < 2:
        raise UsageError(f"Text {index} has {ids.size(1)} tokens, and nothing can be foreseen; give a longer one.")
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
