"""How the next token is chosen from its scores: the best, or drawn from the likely ones."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from saccade.errors import ModelError, UsageError

PARTIAL_SORT_SIZES = (256, 4096)  # tokens that are sorted before all are
NUMPY_DTYPES = (torch.float32, torch.float64)  # numpy has no bfloat16, and is slow with float16
MIN_TEMPERATURE = torch.finfo(torch.float32).tiny  # of smaller numbers float32 has no reciprocal


def greedy(scores: Tensor) -> Tensor:
    """The best token of each row, the first of several."""
    if scores.device.type == "cpu" and scores.dtype in NUMPY_DTYPES and not scores.requires_grad:
        return torch.from_numpy(np.asarray(scores.numpy().argmax(-1)))  # ten times as fast as torch's over many words
    return scores.argmax(-1)


@dataclass
class Sampler:
    """Draw from softmax(scores / temperature), after leaving out the unlikely. The same seed draws the same
    for the same rows; a row beside others is drawn otherwise than alone.

    Left out are, each from what the one before has left: all but the `top_k` best; all but the fewest that together have
    the share `top_p` (Holtzman et al. 2020, arXiv 1904.09751); those less likely than `min_p` times the best (Nguyen et al.
    2024, arXiv 2407.01082); all but the share `typical_p` of those whose surprise is nearest to what is to be expected
    (Meister et al. 2023, arXiv 2202.00666).

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
                f"A temperature is a number above 0; got {self.temperature}. For the best token each time use `greedy`."
            )
        if self.top_k < 0 or int(self.top_k) != self.top_k:
            raise UsageError(f"top_k is a whole number of tokens, and 0 means all; got {self.top_k}.")
        for name, share in (("top_p", self.top_p), ("typical_p", self.typical_p)):
            if not 0 < share <= 1:
                raise UsageError(f"{name} is a share above 0 and at most 1, which means all; got {share}.")
        if not 0 <= self.min_p <= 1:
            raise UsageError(f"min_p is a share from 0, which means all, to 1; got {self.min_p}.")
        self._generator = torch.Generator().manual_seed(self.seed)

    def __call__(self, scores: Tensor) -> Tensor:
        sums = self.probabilities(scores).cpu().cumsum(-1)
        at = torch.rand(len(sums), 1, generator=self._generator) * sums[:, -1:]
        below = sums[:, -1:].nextafter(torch.zeros(1))  # rounding may not reach the end: the last may have no share
        # the first whose sum is beyond; one random number for each row, where a multinomial takes one for each token
        return torch.searchsorted(sums, at.minimum(below), right=True)[:, 0].to(scores.device)

    def probabilities(self, scores: Tensor) -> Tensor:
        """The probability with which each token is drawn, (B, V)."""
        best = scores.amax(-1)
        if not bool(best.isfinite().all()):
            row = int(best.isfinite().logical_not().nonzero()[0, 0])
            raise ModelError(
                f"Row {row} has no token to draw: its best score is {float(best[row])}. Either every token is forbidden, or "
                "the model's weights have diverged."
            )
        # the best at 0: a very low temperature then leaves it finite, and the softmax is the same
        return self.filter_logits(scores.float() - best.float()[:, None]).softmax(-1)

    def filter_logits(self, scores: Tensor) -> Tensor:
        """The scores at this temperature, -inf where a token is left out, (B, V)."""
        scores = scores.float() / max(self.temperature, MIN_TEMPERATURE)
        if 0 < self.top_k < scores.size(-1):
            best = scores.topk(self.top_k)
            scores = torch.full_like(scores, -math.inf).scatter(-1, best.indices, best.values)
        if self.top_p < 1:
            scores = _truncate_to_mass(scores, -scores, self.top_p)
        if self.min_p > 0:
            scores = scores.masked_fill(scores < scores.amax(-1, keepdim=True) + math.log(self.min_p), -math.inf)
        if self.typical_p < 1:
            surprise = -scores.log_softmax(-1)
            expected = (surprise * surprise.neg().exp()).nan_to_num(0.0).sum(-1, keepdim=True)
            scores = _truncate_to_mass(scores, (surprise - expected).abs(), self.typical_p)
        return scores


def _truncate_to_mass(scores: Tensor, sort_keys: Tensor, mass: float) -> Tensor:
    """The fewest tokens, the smallest of the order first, that together have this share of the probability."""
    every, most = scores.softmax(-1), scores.size(-1)
    for count in (*(few for few in PARTIAL_SORT_SIZES if few < most), most):
        at = sort_keys.topk(count, largest=False).indices
        shares = every.gather(-1, at)
        sums = shares.cumsum(-1)
        if count == most or bool((sums[:, -1] >= mass).all()):  # most often a few hold it, and the others stay unsorted
            keep = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, at, sums - shares < mass)
            return scores.masked_fill(~keep, -math.inf)
    raise AssertionError("the last count is that of all tokens")
