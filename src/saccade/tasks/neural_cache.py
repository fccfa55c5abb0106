"""Neural cache: a language model that also attends to its recent hidden states (Grave et al. 2017, arXiv 1612.04426).

It is kernel regression over the preceding text. The key of each earlier token is the hidden state there, its value is the token
that followed; the query is the current hidden state:

    p(w) = (1 - λ) p_model(w) + λ Σ_i softmax_i(θ cos(x_t, x_i)) [w_i = w]

λ and θ need no tuning: every pair of a small grid predicts the text, and the predictions are mixed by their likelihood so far (a
Bayesian mixture). No token is used before it is predicted, and the mixture costs at most ln(pairs) nats more than the best pair.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

INTERPOLATION_WEIGHTS = (0.05, 0.1, 0.2, 0.3)  # λ: share of the cache in the prediction
INVERSE_TEMPERATURES = (8.0, 16.0, 32.0)  # θ: sharpness of the softmax over cosine similarities
MAX_TOKENS_PER_CHUNK = 512  # tokens scored at one time


def neural_cache_nll(x: Tensor, gold: Tensor, nats: Tensor, cache_size: int) -> Tensor:
    """The negative log-likelihood of each token in nats with a cache of the `cache_size` tokens before it, (T,).

    `x` (T, W) are the hidden states that predict the tokens `gold` (T,); `nats` (T,) are their values without a cache.
    """
    x = F.normalize(x.float(), dim=-1)
    model_probability = (-nats.double()).exp()[:, None, None]
    cache_probability = torch.cat(
        [_cache_probabilities(x, gold, start, cache_size) for start in range(0, len(gold), MAX_TOKENS_PER_CHUNK)]
    ).double()[:, None]
    cache_weight = torch.tensor(INTERPOLATION_WEIGHTS, dtype=torch.double, device=x.device)[:, None]
    return -_mixture_log_likelihood(
        ((1 - cache_weight) * model_probability + cache_weight * cache_probability).log().flatten(1)
    )


def _cache_probabilities(x: Tensor, gold: Tensor, start: int, cache_size: int) -> Tensor:
    """The cache's probability of each token of a chunk, (tokens, len(INVERSE_TEMPERATURES)); 0 for the first token of a text."""
    end, first = min(len(gold), start + MAX_TOKENS_PER_CHUNK), max(0, start - cache_size)
    positions, cache_positions = (
        torch.arange(start, end, device=x.device)[:, None],
        torch.arange(first, end, device=x.device),
    )
    in_cache = (cache_positions < positions) & (cache_positions >= positions - cache_size)
    similarity = x[start:end] @ x[first:end].T
    matches = in_cache & (gold[first:end] == gold[start:end, None])
    probabilities = []
    for theta in INVERSE_TEMPERATURES:
        weights = (theta * (similarity - 1)).exp()  # a cosine is at most 1
        probabilities.append((weights * matches).sum(1) / (weights * in_cache).sum(1).clamp_min(1e-30))
    return torch.stack(probabilities, dim=1)


def _mixture_log_likelihood(logs: Tensor) -> Tensor:
    """The log-likelihood of each token, (T,), under a mixture of experts (T, E) weighted by their likelihood so far.

    >>> _mixture_log_likelihood(torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()).exp()
    tensor([0.5000, 0.5000])
    """
    cumulative = F.pad(logs.cumsum(0), (0, 0, 1, 0)).logsumexp(1) - math.log(logs.size(1))
    return cumulative.diff()
