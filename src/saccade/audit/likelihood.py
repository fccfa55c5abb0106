"""Log-likelihoods of the tokens of a sentence under a causal or a masked language model.

A masked language model defines no likelihood of a sentence. Its pseudo-log-likelihood is the sum of the log-probabilities of the
tokens, each computed with that token alone masked (Salazar et al. 2020, arXiv 1910.14659).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from saccade.data import Batch, Text
from saccade.models.model import Model
from saccade.tasks.base import require_tokenizer
from saccade.tasks.pretrain.packed_rows import require_mask_id, surrounding_ids

MAX_BATCH_TOKENS = 8192  # per forward pass, padding included
ProgressCallback = Callable[[int, int | None], None]


@dataclass(frozen=True)
class ScoredRow:
    """Token ids, the positions to score, and the positions to mask for a masked language model."""

    ids: tuple[int, ...]
    positions: tuple[int, ...]
    masked_positions: tuple[int, ...] = ()


def truncate_ids(ids: Sequence[int], model: Model) -> list[int]:
    """Cut ids to the maximum length of a model."""
    return list(ids if model.max_positions is None else ids[: model.max_positions])


@torch.inference_mode()
def causal_logprobs(
    model: Model, rows: Sequence[ScoredRow], on_progress: ProgressCallback = lambda done, of: None
) -> list[list[float]]:
    """The log-likelihood of the token at each position given all tokens before it; position 0 cannot be scored."""
    body = model.autoregressive_body

    def forward(batch: Batch) -> Tensor:
        state, first = body.start(batch)
        return body.hidden_states(first, state)

    return _score_rows(model, rows, forward, body.head, on_progress, shift=1)


@torch.inference_mode()
def masked_logprobs(
    model: Model, rows: Sequence[ScoredRow], on_progress: ProgressCallback = lambda done, of: None
) -> list[list[float]]:
    """The log-likelihood of the token at each position, with the masked positions of each row masked."""
    mask_id = require_mask_id(model)
    masked = [ScoredRow(_mask_ids(row, mask_id), row.positions, row.masked_positions) for row in rows]
    gold = [[row.ids[position] for position in row.positions] for row in rows]
    return _score_rows(model, masked, model.body, model.head, on_progress, gold=gold)


def _mask_ids(row: ScoredRow, mask_id: int) -> tuple[int, ...]:
    masked = set(row.masked_positions)
    return tuple(mask_id if i in masked else id for i, id in enumerate(row.ids))


def _score_rows(
    model: Model,
    rows: Sequence[ScoredRow],
    forward: Callable[[Batch], Tensor],
    head: Any,
    on_progress: ProgressCallback,
    *,
    shift: int = 0,
    gold: Sequence[Sequence[int]] | None = None,
) -> list[list[float]]:
    """Score rows in batches of similar length, the longest first; the head is applied only at the scored positions."""
    out: list[list[float]] = [[] for _ in rows]
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i].ids))
    device, done = next(model.parameters()).device, 0
    model.eval()
    while done < len(order):
        batch = order[done : done + max(1, MAX_BATCH_TOKENS // max(1, len(rows[order[done]].ids)))]
        x = forward(Batch(Text.pad([list(rows[i].ids) for i in batch])).to(device))
        scored = [(r, position - shift) for r, i in enumerate(batch) for position in rows[i].positions]
        targets = [id for i in batch for id in (gold[i] if gold else [rows[i].ids[p] for p in rows[i].positions])]
        if scored:
            index = torch.tensor(scored, device=x.device)
            logprobs = head(x[index[:, 0], index[:, 1]]).float().log_softmax(-1)
            values = iter(logprobs.gather(1, torch.tensor(targets, device=x.device)[:, None])[:, 0].tolist())
            for i in batch:
                out[i] = [next(values) for _ in rows[i].positions]
        done += len(batch)
        on_progress(done, len(order))
    return out


def prefix_ids(model: Model) -> list[int]:
    """The ids before a sentence, so that its first token can be scored too: those that the tokenizer adds, or a newline,
    which precedes sentences in plain training text."""
    tokenizer = require_tokenizer(model)
    return surrounding_ids(tokenizer)[0] or tokenizer.encode("\n", add_special_tokens=False).ids[:1]
