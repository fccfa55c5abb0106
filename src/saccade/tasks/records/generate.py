"""Records that a language model writes: from the end of the record before to their own end, many at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from saccade.data import Batch, Text
from saccade.decoding.logits_processors import LogitsProcessor
from saccade.decoding.loop import SamplerFunction
from saccade.decoding.stop_strings import generate_texts
from saccade.decoding.stopping import StoppingCriteria
from saccade.errors import ModelError, UsageError
from saccade.models.model import Model
from saccade.tasks.base import require_tokenizer

MAX_RECORDS_PER_BATCH = 64  # records at a time


@dataclass(frozen=True)
class GeneratedRecord:
    """One record, and whether it came to its end before there was no more room."""

    text: str
    is_complete: bool


@torch.inference_mode()
def generate_records(
    model: Model,
    count: int,
    choose: SamplerFunction,
    *,
    separator: str,
    prefix: str = "",
    max_new_tokens: int,
    processors: Sequence[LogitsProcessor] = (),
    stop_strings: Sequence[str] = (),
) -> list[GeneratedRecord]:
    """So many records that begin with `begin` and end with `border`, or before one of `stop`, within `length` tokens."""
    if count < 1:
        raise UsageError(f"At least one text has to be asked for; got {count}.")
    tokenizer = require_tokenizer(model)
    prompt = tokenizer.encode(separator + prefix, add_special_tokens=False).ids
    if not prompt:
        raise ModelError(
            "The model's tokenizer has no token for an empty beginning; give the text some words to go on with."
        )
    limit = max_new_tokens if model.max_positions is None else min(max_new_tokens, model.max_positions - len(prompt))
    if limit < 1:
        raise UsageError(
            f"The model reads {model.max_positions} tokens and the beginning has {len(prompt)}; shorten it."
        )
    device = next(model.parameters()).device
    model.eval()
    bounds = StoppingCriteria(tokenizer.eos_id, limit, processors)
    out: list[GeneratedRecord] = []
    while len(out) < count:
        batch = Batch(Text.pad([prompt] * min(MAX_RECORDS_PER_BATCH, count - len(out)))).to(device)
        found = generate_texts(
            model, batch, bounds, choose, tokenizer=tokenizer, stop_strings=[separator, *stop_strings]
        )
        out += [GeneratedRecord(prefix + (one.text or ""), one.hit_stop) for one in found]
    return out
