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
from saccade.tasks.pretrain.rows import framing, mask_of
from saccade.tasks.task import need_tokenizer

TOKENS = 8192  # at a time, padding counted
Told = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Row:
    """Ids, and the places whose likelihood is asked for; `hidden` are masked, where a reader is asked."""

    ids: tuple[int, ...]
    places: tuple[int, ...]
    hidden: tuple[int, ...] = ()


def fit(ids: Sequence[int], model: Model) -> list[int]:
    """What a model reads of a sentence: all, or its beginning."""
    return list(ids if model.limit is None else ids[: model.limit])


@torch.inference_mode()
def written(model: Model, rows: Sequence[Row], told: Told = lambda done, of: None) -> list[list[float]]:
    """The log-likelihood of the token at each place, given all before it; there is none of the first."""
    body = model.autoregressive

    def ask(batch: Batch) -> Tensor:
        state, first = body.start(batch)
        return body.think(first, state)

    return _asked(model, rows, ask, body.head, told, shift=1)


@torch.inference_mode()
def hidden(model: Model, rows: Sequence[Row], told: Told = lambda done, of: None) -> list[list[float]]:
    """The log-likelihood of the token at each place, where some places are masked."""
    mask = mask_of(model)
    masked = [Row(_masked(row, mask), row.places, row.hidden) for row in rows]
    gold = [[row.ids[place] for place in row.places] for row in rows]
    return _asked(model, masked, model.body, model.head, told, gold=gold)


def _masked(row: Row, mask: int) -> tuple[int, ...]:
    at = set(row.hidden)
    return tuple(mask if i in at else id for i, id in enumerate(row.ids))


def _asked(
    model: Model,
    rows: Sequence[Row],
    read: Callable[[Batch], Tensor],
    head: Any,
    told: Told,
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
        some = order[done : done + max(1, TOKENS // max(1, len(rows[order[done]].ids)))]
        x = read(Batch(Text.of([list(rows[i].ids) for i in some])).to(device))
        at = [(r, place - shift) for r, i in enumerate(some) for place in rows[i].places]
        words = [id for i in some for id in (gold[i] if gold else [rows[i].ids[place] for place in rows[i].places])]
        if at:
            where = torch.tensor(at, device=x.device)
            scores = head(x[where[:, 0], where[:, 1]]).float().log_softmax(-1)
            found = iter(scores.gather(1, torch.tensor(words, device=x.device)[:, None])[:, 0].tolist())
            for i in some:
                out[i] = [next(found) for _ in rows[i].places]
        done += len(some)
        told(done, len(order))
    return out


def beginning(model: Model) -> list[int]:
    """What stands before a sentence, so that its first token has something to follow: what the tokenizer puts there, or a new
    line, which a model that learnt a running text has seen before sentences."""
    tokenizer = need_tokenizer(model)
    return framing(tokenizer)[0] or tokenizer.encode("\n", special=False).ids[:1]
