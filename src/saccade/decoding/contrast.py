"""Contrastive search: likely, but unlike what stands there already (Su et al. 2022, arXiv 2202.06417).

Of the likeliest tokens the one is taken that has the highest (1 - alpha) p - alpha s, where p is its probability and s the
greatest cosine between the vector that the model would have for it and the vectors of all tokens before it. With alpha 0 it
is greedy. Nothing is drawn by chance.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.data import Batch, Text
from saccade.decoding.loop import Step, Until, begin, ends
from saccade.decoding.rules import Ruling, check_rules, obey
from saccade.decoding.stop import collect
from saccade.models.family import Writer
from saccade.models.model import Model
from saccade.parts.state import State


class Thinker(Writer, Protocol):
    """A writer that also gives the vectors before its head."""

    def think(self, text: Text, state: State) -> Tensor:  # (B, T, W)
        ...


def contrast(
    model: Model | Thinker,
    batch: Batch,
    *,
    stop: int | Collection[int] | None,
    limit: int,
    candidates: int = 4,
    alpha: float = 0.6,
    rules: Sequence[Ruling] = (),
) -> list[list[int]]:
    """What the model writes after each row of the batch by contrastive search, without the token that stopped it."""
    asked = {"candidates": candidates, "alpha": alpha, "rules": rules}
    return [row.tokens for row in collect(contrast_steps(model, batch, stop=stop, limit=limit, **asked))]


@torch.no_grad()
def contrast_steps(
    model: Model | Thinker,
    batch: Batch,
    *,
    stop: int | Collection[int] | None,
    limit: int,
    candidates: int = 4,
    alpha: float = 0.6,
    rules: Sequence[Ruling] = (),
    until: Until | None = None,
) -> Iterator[Step]:
    """The same as it happens, with the scores: `collect` makes texts and log-probabilities of it."""
    if candidates < 1 or not 0 <= alpha <= 1:
        raise ValueError(f"At least 1 candidate and an alpha from 0 to 1 are needed; got {candidates} and {alpha}.")
    writer = _thinker(model)
    state, scores, sofar = begin(writer, batch, limit)
    if not len(sofar):
        return
    check_rules(rules, scores.size(-1), limit)
    vectors, real = _read(writer, batch)  # of what stands there, (B, L, W) and (B, L)
    stops = ends(stop, scores)
    going = torch.ones(len(scores), dtype=torch.bool, device=scores.device)
    for number in range(limit):
        ruled = obey(rules, scores, sofar, going)
        likely = ruled.softmax(-1).topk(min(candidates, ruled.size(-1)))
        new = _imagine(writer, likely.indices, None if bool(going.all()) else going[:, None], state)  # (B, C, W)
        value = (1 - alpha) * likely.values - alpha * _likeness(new, vectors, real)
        best = value.masked_fill(likely.values == 0, -math.inf).argmax(-1, keepdim=True)
        tokens = likely.indices.gather(-1, best)[:, 0]
        going = going & ~torch.isin(tokens, stops)
        yield Step(tokens, going, scores, ruled)
        sofar = sofar.then(tokens.tolist(), going.tolist())
        if until is not None:
            going = going & ~torch.tensor(until(sofar), device=going.device)
        if number + 1 == limit or not bool(going.any()):
            return
        vectors = torch.cat([vectors, new.gather(1, best[..., None].expand(-1, -1, new.size(-1)))], dim=1)
        real = torch.cat([real, going[:, None]], dim=1)
        scores = writer.step(Text(tokens[:, None], None if bool(going.all()) else going[:, None]), state)[:, -1]


def _thinker(model: Model | Thinker) -> Thinker:
    body = model.body if isinstance(model, Model) else model
    if not hasattr(body, "think") or not hasattr(body, "start"):
        raise ValueError(
            f"Contrastive search needs a writer with `think`; {type(body).__name__} has none. Use `generate`."
        )
    return body  # type: ignore[return-value]


def _read(writer: Thinker, batch: Batch) -> tuple[Tensor, Tensor]:
    """The vectors of what the first step reads, and which of them are real."""
    state, text = writer.start(batch)
    return writer.think(text, state), torch.ones_like(text.tokens, dtype=torch.bool) if text.keep is None else text.keep


def _imagine(writer: Thinker, tokens: Tensor, keep: Tensor | None, state: State) -> Tensor:
    """The vectors that the model would have for each of these next tokens, (B, C) to (B, C, W); the state stays."""
    rows, count = tokens.shape
    mark = state.mark()
    state.reorder(torch.arange(rows, device=tokens.device).repeat_interleave(count))
    seen = None if keep is None else keep.repeat_interleave(count, dim=0)
    vectors = writer.think(Text(tokens.reshape(-1, 1), seen), state)
    state.rewind(mark)
    return vectors.view(rows, count, -1)


def _likeness(new: Tensor, vectors: Tensor, real: Tensor) -> Tensor:
    """The greatest cosine between each new vector and the real ones before it, (B, C)."""
    cosines = F.normalize(new, dim=-1) @ F.normalize(vectors, dim=-1).transpose(1, 2)  # (B, C, L)
    return cosines.masked_fill(~real[:, None], -math.inf).amax(-1)
