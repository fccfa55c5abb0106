"""Records that a language model writes: from the end of the record before to their own end, many at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

from saccade.data import Batch, Text
from saccade.decoding.loop import Choose, write
from saccade.decoding.rules import Ruling
from saccade.models.model import Model
from saccade.tasks.task import need_tokenizer

ROWS = 64  # records at a time


@dataclass(frozen=True)
class Written:
    """One record, and whether it came to its end before there was no more room."""

    text: str
    ended: bool


def write_records(
    model: Model,
    count: int,
    choose: Choose,
    *,
    border: str,
    begin: str = "",
    length: int,
    rules: Sequence[Ruling] = (),
) -> list[Written]:
    """So many records that begin with `begin` and end with `border` within `length` tokens; without a border, so long."""
    if count < 1:
        raise ValueError(f"At least one text has to be asked for; got {count}.")
    prompt = need_tokenizer(model).encode((border or "\n") + begin, special=False).ids
    if not prompt:
        raise ValueError(
            "The model's tokenizer has no token for an empty beginning; give the text some words to go on with."
        )
    limit = length if model.limit is None else min(length, model.limit - len(prompt))
    if limit < 1:
        raise ValueError(f"The model reads {model.limit} tokens and the beginning has {len(prompt)}; shorten it.")
    device = next(model.parameters()).device
    model.eval()
    out: list[Written] = []
    while len(out) < count:
        rows = min(ROWS, count - len(out))
        batch = Batch(Text.of([prompt] * rows)).to(device)
        out += [Written(begin + one.text, one.ended) for one in _some(model, batch, choose, border, limit, rules)]
    return out


@torch.inference_mode()
def _some(
    model: Model, batch: Batch, choose: Choose, border: str, limit: int, rules: Sequence[Ruling]
) -> list[Written]:
    """One batch of records; a border may be half a token or two, so the text is what is searched for it."""
    tokenizer = need_tokenizer(model)
    breaks = cache(lambda token: border[-1:] in tokenizer.decode([token]))
    rows: list[list[int]] = []
    done: dict[int, Written] = {}
    ends = [] if tokenizer.end is None else [tokenizer.end]
    for tokens, going in write(model, batch, choose, stop=ends, limit=limit, rules=rules):
        rows = rows or [[] for _ in tokens]
        for number, (token, goes) in enumerate(zip(tokens.tolist(), going.tolist(), strict=True)):
            if number in done:
                continue
            if not goes:
                done[number] = Written(tokenizer.decode(rows[number]), True)
                continue
            rows[number].append(token)
            if border and breaks(token):
                text, end, _ = tokenizer.decode(rows[number]).partition(border)
                if end:
                    done[number] = Written(text, True)
        if len(done) == len(rows):
            break
    return [done.get(number) or Written(tokenizer.decode(row), not border) for number, row in enumerate(rows)]
