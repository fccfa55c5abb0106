"""The loop that every writer shares: start, then step, choose, and step again until all rows have stopped.

    rows = generate(model, batch, stop=2, limit=64)     # greedy
    for tokens, going in write(model, batch, stop=2, limit=64): ...   # the same, as it happens

The loop knows nothing of the model but `start` and `step`, so it serves transformers, recurrent networks, captioners and
painters alike. Put the model into evaluation first: dropout and hard attention draw in training.
"""

from collections.abc import Callable, Collection, Iterator

import torch
from torch import Tensor

from saccade.data import Batch, Text
from saccade.decoding.choose import greedy
from saccade.models.family import Writer

Choose = Callable[[Tensor], Tensor]  # scores (B, V) to tokens (B,)


def generate(
    model: Writer, batch: Batch, choose: Choose = greedy, *, stop: int | Collection[int] | None, limit: int
) -> list[list[int]]:
    """What the model writes after each row of the batch: at most `limit` new tokens, without the one that stopped it."""
    rows: list[list[int]] = []
    for tokens, going in write(model, batch, choose, stop=stop, limit=limit):
        rows = rows or [[] for _ in tokens]
        for row, token, goes in zip(rows, tokens.tolist(), going.tolist(), strict=True):
            if goes:
                row.append(token)
    return rows


@torch.no_grad()
def write(
    model: Writer, batch: Batch, choose: Choose = greedy, *, stop: int | Collection[int] | None, limit: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield, step by step, the new token of each row and whether the row goes on with it, both (B,)."""
    if limit < 1:
        raise ValueError(f"At least one token has to be asked for; got limit={limit}.")
    state, text = model.start(batch)
    scores = _last(model.step(text, state), text.keep)  # (B, V)
    ends = [] if stop is None else [stop] if isinstance(stop, int) else list(stop)
    stops = torch.tensor(ends, dtype=torch.long, device=scores.device)
    going = torch.ones(len(scores), dtype=torch.bool, device=scores.device)
    for number in range(limit):
        tokens = choose(scores)
        going = going & ~torch.isin(tokens, stops)
        yield tokens, going
        if number + 1 == limit or not bool(going.any()):
            return
        # a finished row goes on as padding, so that it takes no positions and is not remembered
        keep = None if bool(going.all()) else going[:, None]
        scores = model.step(Text(tokens[:, None], keep), state)[:, -1]


def follow(model: Writer, batch: Batch) -> Tensor:
    """The scores of each token of the target, given those before it, (B, T, V): all at once, as training asks for them."""
    target = batch.target
    if target is None:
        raise ValueError("There is nothing to follow: the batch has no target.")
    state, first = model.start(batch)
    keep = None
    if first.keep is not None or target.keep is not None:
        keep = torch.cat([_real(first), _real(target)[:, :-1]], dim=1)
    tokens = torch.cat([first.tokens, target.tokens[:, :-1]], dim=1)
    scores = model.step(Text(tokens, keep), state)
    length = first.tokens.size(1)
    return torch.cat([_last(scores[:, :length], first.keep)[:, None], scores[:, length:]], dim=1)


def _last(scores: Tensor, keep: Tensor | None) -> Tensor:
    """The scores (B, V) after the last real token of each row, wherever the padding is."""
    if keep is None:
        return scores[:, -1]
    last = keep.size(1) - 1 - keep.flip(1).int().argmax(1)
    return scores[torch.arange(len(scores), device=scores.device), last]


def _real(text: Text) -> Tensor:
    return torch.ones_like(text.tokens, dtype=torch.bool) if text.keep is None else text.keep
