"""The loop that every writer shares: start, then step, choose, and step again until all rows have stopped.

    rows = generate(model, batch, stop=2, limit=64)     # greedy
    for tokens, going in write(model, batch, stop=2, limit=64): ...   # the same, as it happens
    for step in steps(model, batch, stop=2, limit=64, rules=[NoRepeat(3)]): ...   # with the scores before and after rules

The loop knows nothing of the model but `start` and `step`, so it serves transformers, recurrent networks, captioners and
painters alike. Put the model into evaluation first: dropout and hard attention draw in training. `written` and `stream`,
for texts and log-probabilities, are in `stop`.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.data import Batch, Text
from saccade.decoding.choose import greedy
from saccade.decoding.rules import Ruling, Sofar, check_rules, obey
from saccade.models.family import Writer
from saccade.models.model import Model
from saccade.parts.state import State

Choose = Callable[[Tensor], Tensor]  # scores (B, V) to tokens (B,)
Until = Callable[[Sofar], Sequence[bool]]  # which rows end with the token that they have just written


@dataclass(frozen=True)
class Step:
    """One token for each row."""

    tokens: Tensor  # (B,)
    going: Tensor  # (B,) whether the row goes on with it: False once it has stopped
    scores: Tensor  # (B, V) the model's own
    ruled: Tensor  # (B, V) after the rules; the same where there are none


def generate(
    model: Writer,
    batch: Batch,
    choose: Choose = greedy,
    *,
    stop: int | Collection[int] | None,
    limit: int,
    rules: Sequence[Ruling] = (),
) -> list[list[int]]:
    """What the model writes after each row of the batch: at most `limit` new tokens, without the one that stopped it."""
    rows: list[list[int]] = []
    for tokens, going in write(model, batch, choose, stop=stop, limit=limit, rules=rules):
        rows = rows or [[] for _ in tokens]
        for row, token, goes in zip(rows, tokens.tolist(), going.tolist(), strict=True):
            if goes:
                row.append(token)
    return rows


def write(
    model: Writer,
    batch: Batch,
    choose: Choose = greedy,
    *,
    stop: int | Collection[int] | None,
    limit: int,
    rules: Sequence[Ruling] = (),
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield, step by step, the new token of each row and whether the row goes on with it, both (B,)."""
    for step in steps(model, batch, choose, stop=stop, limit=limit, rules=rules):
        yield step.tokens, step.going


@torch.no_grad()
def steps(
    model: Writer,
    batch: Batch,
    choose: Choose = greedy,
    *,
    stop: int | Collection[int] | None,
    limit: int,
    rules: Sequence[Ruling] = (),
    until: Until | None = None,
) -> Iterator[Step]:
    """Yield each token with its scores; `until` can end rows for reasons of its own, such as a stop string."""
    state, scores, sofar = begin(model, batch, limit)
    if not len(scores):
        return
    check_rules(rules, scores.size(-1), limit)
    stops = ends(stop, scores)
    going = torch.ones(len(scores), dtype=torch.bool, device=scores.device)
    for number in range(limit):
        ruled = obey(rules, scores, sofar, going)
        tokens = choose(ruled)
        going = going & ~torch.isin(tokens, stops)
        yield Step(tokens, going, scores, ruled)
        sofar = sofar.then(tokens.tolist(), going.tolist())
        if until is not None:
            going = going & ~torch.tensor(until(sofar), device=going.device)
        if number + 1 == limit or not bool(going.any()):
            return
        # a finished row goes on as padding, so that it takes no positions and is not remembered
        keep = None if bool(going.all()) else going[:, None]
        scores = model.step(Text(tokens[:, None], keep), state)[:, -1]


def begin(model: Writer, batch: Batch, limit: int) -> tuple[State, Tensor, Sofar]:
    """The state after the first step, the scores (B, V) of what follows it, and what stands there so far."""
    if limit < 1:
        raise ValueError(f"At least one token has to be asked for; got limit={limit}.")
    state, text = model.start(batch)
    prompt = _rows(text)
    empty = [number for number, row in enumerate(prompt) if not row]
    if empty:
        raise ValueError(
            f"Row {empty[0]} of the prompt is empty, and there is nothing to go on from; give it at least one token, such "
            "as the one that begins a text."
        )
    if not prompt:
        return state, torch.zeros(0, 0), Sofar([], [], limit)
    scores = model.last(text, state) if isinstance(model, Model) else text.last(model.step(text, state))
    return state, scores, Sofar(prompt, [[] for _ in prompt], limit)


def ends(stop: int | Collection[int] | None, scores: Tensor) -> Tensor:
    """The stop tokens as a tensor; one that the model has no score for could never come, and is an error."""
    found = [] if stop is None else [stop] if isinstance(stop, int) else list(stop)
    beyond = [token for token in found if not 0 <= token < scores.size(-1)]
    if beyond:
        raise ValueError(
            f"The stop token {beyond[0]} is unknown: the model writes tokens from 0 to {scores.size(-1) - 1}; "
            "take the end of its own tokenizer, or None."
        )
    return torch.tensor(found, dtype=torch.long, device=scores.device)


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
    return torch.cat([first.last(scores[:, :length])[:, None], scores[:, length:]], dim=1)


def _real(text: Text) -> Tensor:
    return torch.ones_like(text.tokens, dtype=torch.bool) if text.keep is None else text.keep


def _rows(text: Text) -> list[list[int]]:
    """The real tokens of each row."""
    rows, keep = text.tokens.tolist(), _real(text).tolist()
    return [
        [token for token, real in zip(row, kept, strict=True) if real] for row, kept in zip(rows, keep, strict=True)
    ]
