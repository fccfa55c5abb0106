"""The highest few of many scores, without ranking them all, and how probable some of them are."""

import torch
from torch import Tensor

BLOCK_SIZE = 128  # scores of which the highest is looked at first
MAX_SCORES_PER_CHUNK = (
    2**18
)  # scores that are raised at a time, so that what is made on the way stays near the processor


def topk(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest scores of the last axis and where they are: looked for where the maxima of blocks are highest.

    None of them can lie in a block that `count` others exceed, and a maximum is far quicker to find than a ranking.

    >>> topk(torch.tensor([[1.0, 5.0, 3.0]]), 2)
    (tensor([[5., 3.]]), tensor([[1, 2]]))
    """
    vocab = scores.size(-1)
    blocks = vocab // BLOCK_SIZE
    if blocks < 2 * count:
        found = scores.topk(min(count, vocab))
        return found.values, found.indices
    whole = scores[..., : blocks * BLOCK_SIZE].unflatten(-1, (blocks, BLOCK_SIZE))
    chosen = whole.amax(-1).topk(count).indices  # (..., count)
    wanted = chosen[..., None] * BLOCK_SIZE + torch.arange(BLOCK_SIZE, device=scores.device)
    rest = torch.arange(blocks * BLOCK_SIZE, vocab, device=scores.device).expand(*scores.shape[:-1], -1)
    places = torch.cat([wanted.flatten(-2), rest], dim=-1)
    found = scores.gather(-1, places).topk(count)
    return found.values, places.gather(-1, found.indices)


def token_logprobs(scores: Tensor, tokens: Tensor) -> Tensor:
    """The log-probability of some tokens (..., N) by the scores (..., V), without keeping that of every other.

    >>> token_logprobs(torch.tensor([[0.0, 0.0]]), torch.tensor([[1]])).exp()
    tensor([[0.5000]])
    """
    rows = max(1, MAX_SCORES_PER_CHUNK // max(1, scores.size(-1)))
    parts = zip(scores.flatten(0, -2).split(rows), tokens.flatten(0, -2).split(rows), strict=True)
    return torch.cat([part.log_softmax(1).gather(1, some) for part, some in parts]).view(tokens.shape)
