"""The highest few of many scores, without ranking them all, and how probable some of them are."""

import torch
from torch import Tensor

BLOCK = 128  # scores of which the highest is looked at first
PIECE = 2**18  # scores that are raised at a time, so that what is made on the way stays near the processor


def highest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest scores of the last axis and where they are: looked for where the maxima of blocks are highest.

    None of them can lie in a block that `count` others exceed, and a maximum is far quicker to find than a ranking.

    >>> highest(torch.tensor([[1.0, 5.0, 3.0]]), 2)
    (tensor([[5., 3.]]), tensor([[1, 2]]))
    """
    vocab = scores.size(-1)
    blocks = vocab // BLOCK
    if blocks < 2 * count:
        found = scores.topk(min(count, vocab))
        return found.values, found.indices
    whole = scores[..., : blocks * BLOCK].unflatten(-1, (blocks, BLOCK))
    chosen = whole.amax(-1).topk(count).indices  # (..., count)
    wanted = chosen[..., None] * BLOCK + torch.arange(BLOCK, device=scores.device)
    rest = torch.arange(blocks * BLOCK, vocab, device=scores.device).expand(*scores.shape[:-1], -1)
    places = torch.cat([wanted.flatten(-2), rest], dim=-1)
    found = scores.gather(-1, places).topk(count)
    return found.values, places.gather(-1, found.indices)


def log_probability(scores: Tensor, tokens: Tensor) -> Tensor:
    """The log-probability of some tokens (..., N) by the scores (..., V), without keeping that of every other.

    >>> log_probability(torch.tensor([[0.0, 0.0]]), torch.tensor([[1]])).exp()
    tensor([[0.5000]])
    """
    rows = max(1, PIECE // max(1, scores.size(-1)))
    parts = zip(scores.flatten(0, -2).split(rows), tokens.flatten(0, -2).split(rows), strict=True)
    return torch.cat([part.log_softmax(1).gather(1, some) for part, some in parts]).view(tokens.shape)
