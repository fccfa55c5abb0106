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

SHARES = (0.05, 0.1, 0.2, 0.3)  # λ: how much is recalled, how much foreseen
SHARP = (8.0, 16.0, 32.0)  # θ: how much more a like vector counts
ROWS = 512  # tokens at a time


def recalled(x: Tensor, gold: Tensor, nats: Tensor, size: int) -> Tensor:
    """What each token costs in nats when up to `size` tokens before it are looked back at.

    `x` (T, W) are the vectors from which the tokens `gold` (T,) were foreseen, at a cost of `nats` (T,).
    """
    x = F.normalize(x.float(), dim=-1)
    foreseen = (-nats.double()).exp()[:, None, None]
    again = torch.cat([_again(x, gold, start, size) for start in range(0, len(gold), ROWS)]).double()[:, None]
    share = torch.tensor(SHARES, dtype=torch.double, device=x.device)[:, None]
    return -_mixed(((1 - share) * foreseen + share * again).log().flatten(1))


def _again(x: Tensor, gold: Tensor, start: int, size: int) -> Tensor:
    """How likely the past alone finds some tokens, (rows, len(SHARP)); the first token of a text has no past."""
    end, first = min(len(gold), start + ROWS), max(0, start - size)
    now, past = torch.arange(start, end, device=x.device)[:, None], torch.arange(first, end, device=x.device)
    seen = (past < now) & (past >= now - size)
    like = x[start:end] @ x[first:end].T
    same = seen & (gold[first:end] == gold[start:end, None])
    found = []
    for sharp in SHARP:
        weights = (sharp * (like - 1)).exp()  # a cosine is at most 1
        found.append((weights * same).sum(1) / (weights * seen).sum(1).clamp_min(1e-30))
    return torch.stack(found, dim=1)


def _mixed(logs: Tensor) -> Tensor:
    """The log-likelihood of each token, (T,), by forecasters (T, E) that count by the likelihood of all they foresaw before.

    >>> _mixed(torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()).exp()
    tensor([0.5000, 0.5000])
    """
    so_far = F.pad(logs.cumsum(0), (0, 0, 1, 0)).logsumexp(1) - math.log(logs.size(1))
    return so_far.diff()
