"""What was just read comes again: a language model that looks back at the text behind it (Grave et al. 2017, arXiv 1612.04426).

It is kernel regression over the text's own past. The key of each earlier token is the model's vector there, its value is the
token that followed; the query is the vector now:

    p(w) = (1 - λ) p_model(w) + λ Σ_i softmax_i(θ cos(x_t, x_i)) [w_i = w]

Nobody has to choose λ and θ: each pair of a small grid foresees the text, and what they say is mixed by how well each has done
so far. Nothing of the text is used before its turn, and the mixture costs at most ln(pairs) nats more than the best of them.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

INTERPOLATION_WEIGHTS = (0.05, 0.1, 0.2, 0.3)  # λ: how much is recalled, how much foreseen
INVERSE_TEMPERATURES = (8.0, 16.0, 32.0)  # θ: how much more a like vector counts
MAX_TOKENS_PER_CHUNK = 512  # tokens at a time


def neural_cache_nll(x: Tensor, gold: Tensor, nats: Tensor, cache_size: int) -> Tensor:
    """What each token costs in nats when up to `size` tokens before it are looked back at.

    `x` (T, W) are the vectors from which the tokens `gold` (T,) were foreseen, at a cost of `nats` (T,).
    """
    x = F.normalize(x.float(), dim=-1)
    foreseen = (-nats.double()).exp()[:, None, None]
    again = torch.cat(
        [_cache_probabilities(x, gold, start, cache_size) for start in range(0, len(gold), MAX_TOKENS_PER_CHUNK)]
    ).double()[:, None]
    share = torch.tensor(INTERPOLATION_WEIGHTS, dtype=torch.double, device=x.device)[:, None]
    return -_mixture_log_likelihood(((1 - share) * foreseen + share * again).log().flatten(1))


def _cache_probabilities(x: Tensor, gold: Tensor, start: int, cache_size: int) -> Tensor:
    """How likely the past alone finds some tokens, (rows, len(SHARP)); the first token of a text has no past."""
    end, first = min(len(gold), start + MAX_TOKENS_PER_CHUNK), max(0, start - cache_size)
    now, past = torch.arange(start, end, device=x.device)[:, None], torch.arange(first, end, device=x.device)
    seen = (past < now) & (past >= now - cache_size)
    like = x[start:end] @ x[first:end].T
    same = seen & (gold[first:end] == gold[start:end, None])
    found = []
    for sharp in INVERSE_TEMPERATURES:
        weights = (sharp * (like - 1)).exp()  # a cosine is at most 1
        found.append((weights * same).sum(1) / (weights * seen).sum(1).clamp_min(1e-30))
    return torch.stack(found, dim=1)


def _mixture_log_likelihood(logs: Tensor) -> Tensor:
    """The log-likelihood of each token, (T,), by forecasters (T, E) that count by the likelihood of all they foresaw before.

    >>> _mixture_log_likelihood(torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()).exp()
    tensor([0.5000, 0.5000])
    """
    so_far = F.pad(logs.cumsum(0), (0, 0, 1, 0)).logsumexp(1) - math.log(logs.size(1))
    return so_far.diff()
