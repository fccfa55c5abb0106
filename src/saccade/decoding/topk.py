"""Fast top-k over a large vocabulary, and log-probabilities of single tokens."""

import torch
from torch import Tensor

BLOCK_SIZE = 128  # number of scores whose maximum is computed first
MAX_SCORES_PER_CHUNK = 2**18  # scores that go through one softmax, so that intermediate results stay in the CPU cache


def topk(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest scores of the last axis and their indices, searched in the blocks with the highest maxima.

    None of them can lie in a block whose maximum is below that of `count` others, and a maximum is much faster than a sort.

    >>> topk(torch.tensor([[1.0, 5.0, 3.0]]), 2)
    (tensor([[5., 3.]]), tensor([[1, 2]]))
    """
    vocab = scores.size(-1)
    blocks = vocab // BLOCK_SIZE
    if blocks < 2 * count:
        top = scores.topk(min(count, vocab))
        return top.values, top.indices
    blocked = scores[..., : blocks * BLOCK_SIZE].unflatten(-1, (blocks, BLOCK_SIZE))
    best_blocks = blocked.amax(-1).topk(count).indices  # (..., count)
    in_blocks = best_blocks[..., None] * BLOCK_SIZE + torch.arange(BLOCK_SIZE, device=scores.device)
    rest = torch.arange(blocks * BLOCK_SIZE, vocab, device=scores.device).expand(*scores.shape[:-1], -1)
    candidates = torch.cat([in_blocks.flatten(-2), rest], dim=-1)
    top = scores.gather(-1, candidates).topk(count)
    return top.values, candidates.gather(-1, top.indices)


def token_logprobs(scores: Tensor, tokens: Tensor) -> Tensor:
    """The log-probabilities of tokens (..., N) given scores (..., V), without storing those of the whole vocabulary.

    >>> token_logprobs(torch.tensor([[0.0, 0.0]]), torch.tensor([[1]])).exp()
    tensor([[0.5000]])
    """
    rows = max(1, MAX_SCORES_PER_CHUNK // max(1, scores.size(-1)))
    parts = zip(scores.flatten(0, -2).split(rows), tokens.flatten(0, -2).split(rows), strict=True)
    return torch.cat([part.log_softmax(1).gather(1, ids) for part, ids in parts]).view(tokens.shape)
