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
from saccade.decoding.loop import DecodingLoop, DecodingStep
from saccade.decoding.stop_strings import collect_texts
from saccade.decoding.stopping import StoppingCriteria
from saccade.errors import UsageError
from saccade.models.family import AutoregressiveModel
from saccade.models.model import Model
from saccade.parts.state import State


@runtime_checkable
class HiddenStateModel(AutoregressiveModel, Protocol):
    """A writer that also gives the vectors before its head."""

    def hidden_states(self, text: Text, state: State) -> Tensor:  # (B, T, W)
        ...


def contrastive_search(
    model: Model | HiddenStateModel,
    batch: Batch,
    criteria: StoppingCriteria,
    *,
    candidates: int = 4,
    alpha: float = 0.6,
) -> list[list[int]]:
    """What the model writes after each row of the batch by contrastive search, without the token that stopped it."""
    found = contrastive_steps(model, batch, criteria, candidates=candidates, alpha=alpha)
    return [row.tokens for row in collect_texts(found)]


@torch.no_grad()
def contrastive_steps(
    model: Model | HiddenStateModel,
    batch: Batch,
    criteria: StoppingCriteria,
    *,
    candidates: int = 4,
    alpha: float = 0.6,
) -> Iterator[DecodingStep]:
    """The same as it happens, with the scores: `collect_texts` makes texts and log-probabilities of it."""
    if candidates < 1 or not 0 <= alpha <= 1:
        raise UsageError(f"At least 1 candidate and an alpha from 0 to 1 are needed; got {candidates} and {alpha}.")
    writer = _as_hidden_state_model(model)
    course = DecodingLoop(writer, batch, criteria)
    if not len(course.history):
        return
    vectors, real = _read_prompt(writer, batch)  # of what stands there, (B, L, W) and (B, L)
    while course.has_unfinished_rows():
        ruled = course.next_logits()
        likely = ruled.softmax(-1).topk(min(candidates, ruled.size(-1)))
        new = _candidate_hidden_states(writer, likely.indices, course.row_keep(), course.state)  # (B, C, W)
        value = (1 - alpha) * likely.values - alpha * _max_cosine(new, vectors, real)
        best = value.masked_fill(likely.values == 0, -math.inf).argmax(-1, keepdim=True)
        yield course.append_step(likely.indices.gather(-1, best)[:, 0], ruled)
        vectors = torch.cat([vectors, new.gather(1, best[..., None].expand(-1, -1, new.size(-1)))], dim=1)
        real = torch.cat([real, course.active[:, None]], dim=1)


def _as_hidden_state_model(model: Model | HiddenStateModel) -> HiddenStateModel:
    found = model.autoregressive_body if isinstance(model, Model) else model
    if not isinstance(found, HiddenStateModel):
        raise UsageError(
            f"Contrastive search needs a writer with `hidden_states`; {type(found).__name__} has none. Use `generate`."
        )
    return found


def _read_prompt(model: HiddenStateModel, batch: Batch) -> tuple[Tensor, Tensor]:
    """The vectors of what the first step reads, and which of them are real."""
    state, text = model.start(batch)
    return model.hidden_states(text, state), text.keep_mask


def _candidate_hidden_states(model: HiddenStateModel, tokens: Tensor, keep: Tensor | None, state: State) -> Tensor:
    """The vectors that the model would have for each of these next tokens, (B, C) to (B, C, W); the state stays."""
    rows, count = tokens.shape
    mark = state.snapshot()
    state.reorder(torch.arange(rows, device=tokens.device).repeat_interleave(count))
    seen = None if keep is None else keep.repeat_interleave(count, dim=0)
    vectors = model.hidden_states(Text(tokens.reshape(-1, 1), seen), state)
    state.restore(mark)
    return vectors.view(rows, count, -1)


def _max_cosine(new: Tensor, vectors: Tensor, real: Tensor) -> Tensor:
    """The greatest cosine between each new vector and the real ones before it, (B, C)."""
    cosines = F.normalize(new, dim=-1) @ F.normalize(vectors, dim=-1).transpose(1, 2)  # (B, C, L)
    return cosines.masked_fill(~real[:, None], -math.inf).amax(-1)
