"""Choosing the next token from its scores: greedy, or sampling with temperature, top-k, top-p, min-p and typical-p."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from saccade.errors import ModelError, UsageError

PARTIAL_SORT_SIZES = (256, 4096)  # numbers of tokens that are sorted first, before the whole vocabulary is
NUMPY_DTYPES = (torch.float32, torch.float64)  # numpy has no bfloat16, and is slow with float16
MIN_TEMPERATURE = torch.finfo(torch.float32).tiny  # the reciprocal of a smaller number overflows float32


def greedy(scores: Tensor) -> Tensor:
    """The token with the highest score of each row; the first one among equals."""
    if scores.device.type == "cpu" and scores.dtype in NUMPY_DTYPES and not scores.requires_grad:
        return torch.from_numpy(
            np.asarray(scores.numpy().argmax(-1))
        )  # ten times as fast as torch for large vocabularies
    return scores.argmax(-1)


@dataclass
class Sampler:
    """Sample from softmax(scores / temperature) after filtering out unlikely tokens.

    The same seed gives the same tokens for the same rows; a row in a larger batch is sampled differently than alone.

    Filters are applied in this order: top-k keeps the `top_k` most likely tokens; nucleus sampling keeps the smallest set
    with total probability `top_p` (Holtzman et al. 2020, arXiv 1904.09751); min-p drops tokens less likely than `min_p`
    times the best (Nguyen et al. 2024, arXiv 2407.01082); typical sampling keeps the tokens with surprisal closest to the
    expected one, with total probability `typical_p` (Meister et al. 2023, arXiv 2202.00666).

    >>> scores = torch.tensor([[0.0, 5.0, 4.0]])
    >>> {int(Sampler(seed=n, top_k=1)(scores)) for n in range(20)}, {int(Sampler(seed=n, top_p=0.7)(scores)) for n in range(20)}
    ({1}, {1})
    >>> Sampler(min_p=0.1).filter_logits(scores), Sampler(typical_p=0.2).filter_logits(scores)
    (tensor([[-inf, 5., 4.]]), tensor([[-inf, 5., -inf]]))
    """

    temperature: float = 1.0
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    seed: int = 0
    min_p: float = 0.0
    typical_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:  # false for NaN too
            raise UsageError(
                f"The temperature must be above 0; got {self.temperature}. Use `greedy` for the best token each time."
            )
        if self.top_k < 0 or int(self.top_k) != self.top_k:
            raise UsageError(f"top_k must be a number of tokens, and 0 disables it; got {self.top_k}.")
        for name, probability in (("top_p", self.top_p), ("typical_p", self.typical_p)):
            if not 0 < probability <= 1:
                raise UsageError(f"{name} must be above 0 and at most 1, and 1 disables it; got {probability}.")
        if not 0 <= self.min_p <= 1:
            raise UsageError(f"min_p must be from 0 to 1, and 0 disables it; got {self.min_p}.")
        self._generator = torch.Generator().manual_seed(self.seed)

    def __call__(self, scores: Tensor) -> Tensor:
        sums = self.probabilities(scores).cpu().cumsum(-1)
        at = torch.rand(len(sums), 1, generator=self._generator) * sums[:, -1:]
        below = sums[:, -1:].nextafter(
            torch.zeros(1)
        )  # stays below the total, since the last token may have probability 0
        # inverse transform sampling: one random number per row, where torch.multinomial takes one per token
        return torch.searchsorted(sums, at.minimum(below), right=True)[:, 0].to(scores.device)

    def probabilities(self, scores: Tensor) -> Tensor:
        """The sampling probability of each token, (B, V)."""
        best = scores.amax(-1)
        if not bool(best.isfinite().all()):
            row = int(best.isfinite().logical_not().nonzero()[0, 0])
            raise ModelError(
                f"Row {row} has no token to sample: its best score is {float(best[row])}. Either every token is forbidden, or "
                "the weights of the model have diverged."
            )
        # shifted so that the best is 0: it stays finite at very low temperatures, and the softmax is the same
        return self.filter_logits(scores.float() - best.float()[:, None]).softmax(-1)

    def filter_logits(self, scores: Tensor) -> Tensor:
        """The scores divided by the temperature, with -inf for tokens that are filtered out, (B, V)."""
        scores = scores.float() / max(self.temperature, MIN_TEMPERATURE)
        if 0 < self.top_k < scores.size(-1):
            best = scores.topk(self.top_k)
            scores = torch.full_like(scores, -math.inf).scatter(-1, best.indices, best.values)
        if self.top_p < 1:
            scores = _truncate_to_mass(scores, -scores, self.top_p)
        if self.min_p > 0:
            scores = scores.masked_fill(scores < scores.amax(-1, keepdim=True) + math.log(self.min_p), -math.inf)
        if self.typical_p < 1:
            surprisal = -scores.log_softmax(-1)
            expected = (surprisal * surprisal.neg().exp()).nan_to_num(0.0).sum(-1, keepdim=True)
            scores = _truncate_to_mass(scores, (surprisal - expected).abs(), self.typical_p)
        return scores


def _truncate_to_mass(scores: Tensor, sort_keys: Tensor, mass: float) -> Tensor:
    """Keep the smallest set of tokens, in ascending order of `sort_keys`, that has this probability mass."""
    probabilities, vocab = scores.softmax(-1), scores.size(-1)
    for count in (*(size for size in PARTIAL_SORT_SIZES if size < vocab), vocab):
        at = sort_keys.topk(count, largest=False).indices
        sorted_probabilities = probabilities.gather(-1, at)
        sums = sorted_probabilities.cumsum(-1)
        if count == vocab or bool(
            (sums[:, -1] >= mass).all()
        ):  # mostly a few tokens suffice, and no full sort is needed
            keep = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, at, sums - sorted_probabilities < mass)
            return scores.masked_fill(~keep, -math.inf)
    raise AssertionError("the last count is the whole vocabulary")
