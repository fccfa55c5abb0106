"""Contrastive search: likely tokens that differ from the preceding ones (Su et al. 2022, arXiv 2202.06417).

Of the most likely tokens, the one with the highest (1 - alpha) p - alpha s is chosen, where p is its probability and s
the largest cosine similarity between its hidden state and those of all preceding tokens. With alpha 0 this is greedy
decoding. There is no sampling.
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
    """An autoregressive model that gives access to its hidden states."""

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
    """Generate tokens for each row of the batch by contrastive search, without the stop token."""
    steps = contrastive_steps(model, batch, criteria, candidates=candidates, alpha=alpha)
    return [row.tokens for row in collect_texts(steps)]


@torch.no_grad()
def contrastive_steps(
    model: Model | HiddenStateModel,
    batch: Batch,
    criteria: StoppingCriteria,
    *,
    candidates: int = 4,
    alpha: float = 0.6,
) -> Iterator[DecodingStep]:
    """Yield the steps of contrastive search, with logits; `collect_texts` turns them into texts and log-probabilities."""
    if candidates < 1 or not 0 <= alpha <= 1:
        raise UsageError(
            f"At least 1 candidate and an alpha from 0 to 1 are needed; got candidates={candidates} and alpha={alpha}."
        )
    body = _as_hidden_state_model(model)
    loop = DecodingLoop(body, batch, criteria)
    if not len(loop.history):
        return
    hidden, keep = _read_prompt(body, batch)  # (B, L, W) and (B, L)
    while loop.has_unfinished_rows():
        logits = loop.next_logits()
        likely = logits.softmax(-1).topk(min(candidates, logits.size(-1)))
        new = _candidate_hidden_states(body, likely.indices, loop.row_keep(), loop.state)  # (B, C, W)
        objective = (1 - alpha) * likely.values - alpha * _max_cosine(new, hidden, keep)
        best = objective.masked_fill(likely.values == 0, -math.inf).argmax(-1, keepdim=True)
        yield loop.append_step(likely.indices.gather(-1, best)[:, 0], logits)
        hidden = torch.cat([hidden, new.gather(1, best[..., None].expand(-1, -1, new.size(-1)))], dim=1)
        keep = torch.cat([keep, loop.active[:, None]], dim=1)


def _as_hidden_state_model(model: Model | HiddenStateModel) -> HiddenStateModel:
    body = model.autoregressive_body if isinstance(model, Model) else model
    if not isinstance(body, HiddenStateModel):
        raise UsageError(
            f"Contrastive search needs a model with `hidden_states`; {type(body).__name__} has none. Use `generate`."
        )
    return body


def _read_prompt(model: HiddenStateModel, batch: Batch) -> tuple[Tensor, Tensor]:
    """The hidden states of the prompt, and its padding mask."""
    state, text = model.start(batch)
    return model.hidden_states(text, state), text.keep_mask


def _candidate_hidden_states(model: HiddenStateModel, tokens: Tensor, keep: Tensor | None, state: State) -> Tensor:
    """Hidden states (B, C, W) for each of the candidate tokens (B, C); the state is left unchanged."""
    rows, count = tokens.shape
    snapshot = state.snapshot()
    state.reorder(torch.arange(rows, device=tokens.device).repeat_interleave(count))
    repeated_keep = None if keep is None else keep.repeat_interleave(count, dim=0)
    hidden = model.hidden_states(Text(tokens.reshape(-1, 1), repeated_keep), state)
    state.restore(snapshot)
    return hidden.view(rows, count, -1)


def _max_cosine(new: Tensor, previous: Tensor, keep: Tensor) -> Tensor:
    """The largest cosine similarity between each new hidden state and the previous ones, without padding, (B, C)."""
    cosines = F.normalize(new, dim=-1) @ F.normalize(previous, dim=-1).transpose(1, 2)  # (B, C, L)
    return cosines.masked_fill(~keep[:, None], -math.inf).amax(-1)
