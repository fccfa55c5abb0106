"""Records that a language model writes: from the end of the record before to their own end, many at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from saccade.data import Batch, Text
from saccade.decoding.bounds import Bounds
from saccade.decoding.loop import Choose
from saccade.decoding.rules import Ruling
from saccade.decoding.stop import written
from saccade.errors import ModelError, UsageError
from saccade.models.model import Model
from saccade.tasks.task import need_tokenizer

ROWS = 64  # records at a time


@dataclass(frozen=True)
class Written:
    """One record, and whether it came to its end before there was no more room."""

    text: str
    ended: bool


@torch.inference_mode()
def write_records(
    model: Model,
    count: int,
    choose: Choose,
    *,
    border: str,
    begin: str = "",
    length: int,
    rules: Sequence[Ruling] = (),
    stop: Sequence[str] = (),
) -> list[Written]:
    """So many records that begin with `begin` and end with `border`, or before one of `stop`, within `length` tokens."""
    if count < 1:
        raise UsageError(f"At least one text has to be asked for; got {count}.")
    tokenizer = need_tokenizer(model)
    prompt = tokenizer.encode(border + begin, special=False).ids
    if not prompt:
        raise ModelError(
            "The model's tokenizer has no token for an empty beginning; give the text some words to go on with."
        )
    limit = length if model.limit is None else min(length, model.limit - len(prompt))
    if limit < 1:
        raise UsageError(f"The model reads {model.limit} tokens and the beginning has {len(prompt)}; shorten it.")
    device = next(model.parameters()).device
    model.eval()
    bounds = Bounds(tokenizer.end, limit, rules)
    out: list[Written] = []
    while len(out) < count:
        batch = Batch(Text.of([prompt] * min(ROWS, count - len(out)))).to(device)
        found = written(model, batch, bounds, choose, tokenizer=tokenizer, strings=[border, *stop])
        out += [Written(begin + (one.text or ""), one.ended) for one in found]
    return out
