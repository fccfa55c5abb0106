"""Generation of records by a language model, in batches, each from the separator before it to its own separator."""

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

MAX_RECORDS_PER_BATCH = 64  # records that are generated at one time


@dataclass(frozen=True)
class GeneratedRecord:
    """One record, and whether it ended before the maximum number of tokens."""

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
    """`count` records that begin with `prefix` and end at `separator`, a stop string or after `max_new_tokens` tokens."""
    if count < 1:
        raise UsageError(f"The number of texts must be at least 1; got {count}.")
    tokenizer = require_tokenizer(model)
    prompt = tokenizer.encode(separator + prefix, add_special_tokens=False).ids
    if not prompt:
        raise ModelError("The model's tokenizer has no token for an empty prompt; give a prompt with some words.")
    limit = max_new_tokens if model.max_positions is None else min(max_new_tokens, model.max_positions - len(prompt))
    if limit < 1:
        raise UsageError(
            f"The prompt has {len(prompt)} tokens and the model {model.max_positions} positions; shorten it."
        )
    device = next(model.parameters()).device
    model.eval()
    stopping = StoppingCriteria(tokenizer.eos_id, limit, processors)
    out: list[GeneratedRecord] = []
    while len(out) < count:
        batch = Batch(Text.pad([prompt] * min(MAX_RECORDS_PER_BATCH, count - len(out)))).to(device)
        texts = generate_texts(
            model, batch, stopping, choose, tokenizer=tokenizer, stop_strings=[separator, *stop_strings]
        )
        out += [GeneratedRecord(prefix + (text.text or ""), text.hit_stop) for text in texts]
    return out
