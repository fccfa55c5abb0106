"""How likely a language model finds a sentence: token by token for one that writes, behind masks for one that reads.

A reader has no likelihood of a sentence. Its pseudo-log-likelihood is the sum over tokens of how likely each is when it alone is
hidden (Salazar et al. 2020, arXiv 1910.14659).
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

MAX_BATCH_TOKENS = 8192  # at a time, padding counted
ProgressCallback = Callable[[int, int | None], None]


@dataclass(frozen=True)
class ScoredRow:
    """Ids, and the places whose likelihood is asked for; `hidden` are masked, where a reader is asked."""

    ids: tuple[int, ...]
    positions: tuple[int, ...]
    masked_positions: tuple[int, ...] = ()


def truncate_ids(ids: Sequence[int], model: Model) -> list[int]:
    """What a model reads of a sentence: all, or its beginning."""
    return list(ids if model.max_positions is None else ids[: model.max_positions])


@torch.inference_mode()
def causal_logprobs(
    model: Model, rows: Sequence[ScoredRow], on_progress: ProgressCallback = lambda done, of: None
) -> list[list[float]]:
    """The log-likelihood of the token at each place, given all before it; there is none of the first."""
    body = model.autoregressive_body

    def ask(batch: Batch) -> Tensor:
        state, first = body.start(batch)
        return body.hidden_states(first, state)

    return _score_rows(model, rows, ask, body.head, on_progress, shift=1)


@torch.inference_mode()
def masked_logprobs(
    model: Model, rows: Sequence[ScoredRow], on_progress: ProgressCallback = lambda done, of: None
) -> list[list[float]]:
    """The log-likelihood of the token at each place, where some places are masked."""
    mask = require_mask_id(model)
    masked = [ScoredRow(_mask_ids(row, mask), row.positions, row.masked_positions) for row in rows]
    gold = [[row.ids[place] for place in row.positions] for row in rows]
    return _score_rows(model, masked, model.body, model.head, on_progress, gold=gold)


def _mask_ids(row: ScoredRow, mask: int) -> tuple[int, ...]:
    at = set(row.masked_positions)
    return tuple(mask if i in at else id for i, id in enumerate(row.ids))


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
    """Rows in batches of like length, the longest first; the vocabulary is scored at the places alone."""
    out: list[list[float]] = [[] for _ in rows]
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i].ids))
    device, done = next(model.parameters()).device, 0
    model.eval()
    while done < len(order):
        some = order[done : done + max(1, MAX_BATCH_TOKENS // max(1, len(rows[order[done]].ids)))]
        x = forward(Batch(Text.pad([list(rows[i].ids) for i in some])).to(device))
        at = [(r, place - shift) for r, i in enumerate(some) for place in rows[i].positions]
        words = [id for i in some for id in (gold[i] if gold else [rows[i].ids[place] for place in rows[i].positions])]
        if at:
            where = torch.tensor(at, device=x.device)
            scores = head(x[where[:, 0], where[:, 1]]).float().log_softmax(-1)
            found = iter(scores.gather(1, torch.tensor(words, device=x.device)[:, None])[:, 0].tolist())
            for i in some:
                out[i] = [next(found) for _ in rows[i].positions]
        done += len(some)
        on_progress(done, len(order))
    return out


def prefix_ids(model: Model) -> list[int]:
    """What stands before a sentence, so that its first token has something to follow: what the tokenizer puts there, or a new
    line, which a model that learnt a running text has seen before sentences."""
    tokenizer = require_tokenizer(model)
    return surrounding_ids(tokenizer)[0] or tokenizer.encode("\n", add_special_tokens=False).ids[:1]
