"""Contrastive search: likely, but unlike what stands there already (Su et al. 2022, arXiv 2202.06417).

Of the likeliest tokens the one is taken that has the highest (1 - alpha) p - alpha s, where p is its probability and s the
greatest cosine between the vector that the model would have for it and the vectors of all tokens before it. With alpha 0 it
is greedy. Nothing is drawn by chance.
"""

import math
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.data import Batch, Text
from saccade.decoding.bounds import Bounds
from saccade.decoding.loop import Course, Step
from saccade.decoding.stop import collect
from saccade.errors import UsageError
from saccade.models.family import AutoregressiveModel
from saccade.models.model import Model
from saccade.parts.state import State


@runtime_checkable
class Thinker(AutoregressiveModel, Protocol):
    """A writer that also gives the vectors before its head."""

    def think(self, text: Text, state: State) -> Tensor:  # (B, T, W)
        ...


def contrast(
    model: Model | Thinker, batch: Batch, bounds: Bounds, *, candidates: int = 4, alpha: float = 0.6
) -> list[list[int]]:
    """What the model writes after each row of the batch by contrastive search, without the token that stopped it."""
    found = contrast_steps(model, batch, bounds, candidates=candidates, alpha=alpha)
    return [row.tokens for row in collect(found)]


@torch.no_grad()
def contrast_steps(
    model: Model | Thinker, batch: Batch, bounds: Bounds, *, candidates: int = 4, alpha: float = 0.6
) -> Iterator[Step]:
    """The same as it happens, with the scores: `collect` makes texts and log-probabilities of it."""
    if candidates < 1 or not 0 <= alpha <= 1:
        raise UsageError(f"At least 1 candidate and an alpha from 0 to 1 are needed; got {candidates} and {alpha}.")
    writer = _thinker(model)
    course = Course(writer, batch, bounds)
    if not len(course.sofar):
        return
    vectors, real = _read(writer, batch)  # of what stands there, (B, L, W) and (B, L)
    while course.goes_on():
        ruled = course.ruled()
        likely = ruled.softmax(-1).topk(min(candidates, ruled.size(-1)))
        new = _imagine(writer, likely.indices, course.keep(), course.state)  # (B, C, W)
        value = (1 - alpha) * likely.values - alpha * _likeness(new, vectors, real)
        best = value.masked_fill(likely.values == 0, -math.inf).argmax(-1, keepdim=True)
        yield course.take(likely.indices.gather(-1, best)[:, 0], ruled)
        vectors = torch.cat([vectors, new.gather(1, best[..., None].expand(-1, -1, new.size(-1)))], dim=1)
        real = torch.cat([real, course.going[:, None]], dim=1)


def _thinker(model: Model | Thinker) -> Thinker:
    found = model.autoregressive if isinstance(model, Model) else model
    if not isinstance(found, Thinker):
        raise UsageError(
            f"Contrastive search needs a writer with `think`; {type(found).__name__} has none. Use `generate`."
        )
    return found


def _read(writer: Thinker, batch: Batch) -> tuple[Tensor, Tensor]:
    """The vectors of what the first step reads, and which of them are real."""
    state, text = writer.start(batch)
    return writer.think(text, state), text.real


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
