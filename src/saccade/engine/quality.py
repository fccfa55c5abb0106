"""What fewer bits cost: how often the fast model would go on with the same token, and how much worse it foresees a text.

print(quality(load("runs/english"), ["Once upon a time ..."], "int8"))
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from saccade.data import Batch, Text
from saccade.decoding import follow, generate
from saccade.engine.choice import Choice
from saccade.engine.model import fast
from saccade.errors import ModelError, UsageError
from saccade.models.model import Model

LONGEST = 256  # tokens that are written of a text which a model reads as a source


@dataclass(frozen=True)
class Quality:
    """The plain model and its fast form on the same tokens."""

    choice: Choice
    tokens: int
    equal: float  # the share of tokens after which both go on with the same one
    plain: float  # perplexity
    fast: float

    @property
    def change(self) -> float:
        """How much larger the perplexity became, as a share of it."""
        return self.fast / self.plain - 1

    def __str__(self) -> str:
        return (
            f"{self.choice.precision}: {self.equal:.2%} of {self.tokens:,} tokens equal, perplexity {self.plain:.3f} to "
            f"{self.fast:.3f} ({self.change:+.2%})"
        )


@torch.no_grad()
def quality(model: Model, texts: Sequence[str], precision: str = "auto") -> Quality:
    """Compare a writer with its fast form on real texts.

    A model that continues texts foresees theirs, token by token. One that reads a source and writes something else is held
    to what the plain model writes for it.
    """
    if model.tokenizer is None or not model.capabilities.autoregressive:
        raise ModelError(f"{model.family.name}: a writer with a tokenizer is needed to compare what is written.")
    quick = fast(model, precision)
    tokens = equal = 0
    losses = torch.zeros(2, dtype=torch.float64)
    for number, text in enumerate(texts):
        batch = _asked(model, text, number)
        assert batch.target is not None
        gold = batch.target.tokens[0]
        scores = [follow(one, batch)[0] for one in (model, quick)]  # (T, V) each
        losses += torch.stack([F.cross_entropy(x.double(), gold, reduction="sum") for x in scores])
        tokens, equal = tokens + len(gold), equal + int((scores[0].argmax(-1) == scores[1].argmax(-1)).sum())
    if not tokens:
        raise UsageError("There is nothing to compare: give at least one text of two tokens or more.")
    plain, hurried = (math.exp(float(loss) / tokens) for loss in losses)
    return Quality(quick.choice, tokens, equal / tokens, plain, hurried)


def _asked(model: Model, text: str, number: int) -> Batch:
    """The text as what is foreseen; or as a source, with what the plain model writes for it."""
    ids = torch.tensor([model.tokenizer.encode(text).ids[: model.limit]])
    if ids.size(1) < 2:
        raise UsageError(f"Text {number} has {ids.size(1)} tokens, and nothing can be foreseen; give a longer one.")
    source = Text(ids)
    if model.start(Batch(source))[1] is source:
        return Batch(Text(ids[:, :1]), Text(ids[:, 1:]))
    end = model.tokenizer.target.end
    row = generate(model, Batch(source), stop=end, limit=min(LONGEST, model.limit or LONGEST))[0]
    return Batch(source, Text(torch.tensor([[*row, end]])))
