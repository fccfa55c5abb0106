"""Readers put to use: texts to vectors, one for each token (`encode`) or one for each text (`embed`)."""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.data import Batch, Text
from saccade.models.model import Model
from saccade.parts.heads import First, Mean

BATCH = 8192  # tokens at a time, padding counted


def encode(model: Model, texts: Sequence[str], *, truncate: bool = False) -> list[Tensor]:
    """The last hidden states of each text, (tokens, W): special tokens included, padding removed."""
    out: list[Tensor | None] = [None] * len(texts)
    for numbers, text, x in _read(model, texts, truncate):
        keep = torch.ones(x.shape[:2], dtype=torch.bool) if text.keep is None else text.keep
        for row, number in enumerate(numbers):
            out[number] = x[row, keep[row]]
    return [x for x in out if x is not None]


def embed(model: Model, texts: Sequence[str], *, truncate: bool = True) -> Tensor:
    """One vector for each text, (texts, W): pooled as the model's own files say, by the mean of its tokens if they do not."""
    pool = First() if model.pooling.first else Mean()
    out = torch.zeros(len(texts), int(model.body.width))  # type: ignore[arg-type]
    for numbers, text, x in _read(model, texts, truncate):
        pooled = pool(x, text.keep)
        out[numbers] = F.normalize(pooled, dim=-1) if model.pooling.unit else pooled
    return out


def _read(model: Model, texts: Sequence[str], truncate: bool) -> Iterator[tuple[list[int], Text, Tensor]]:
    """Texts in batches of like length: their numbers, their tokens and what the body makes of them."""
    if isinstance(texts, str):
        raise ValueError(f"A list of texts is needed; got one text. Write [{texts[:20]!r}...].")
    if model.tokenizer is None:
        raise ValueError("This model came without a tokenizer; load it from a directory that has tokenizer files.")
    encoded = model.tokenizer.encode_batch(list(texts))
    limit = model.limit
    if limit is not None:
        for number, item in enumerate(encoded):
            if len(item.ids) > limit and not truncate:
                raise ValueError(
                    f"Text {number} has {len(item.ids)} tokens and the model reads at most {limit}; "
                    "shorten it, or say truncate=True."
                )
        encoded = [item.truncate(limit) if len(item.ids) > limit else item for item in encoded]
    order = sorted(range(len(texts)), key=lambda i: len(encoded[i].ids))
    device = next(model.parameters()).device
    while order:
        longest = len(encoded[order[-1]].ids)
        count = max(1, BATCH // max(1, longest))
        order, numbers = order[:-count], order[-count:]
        rows = [encoded[i] for i in numbers]
        text = Text.of([row.ids for row in rows], segments=[row.segments for row in rows])
        with torch.inference_mode():
            yield numbers, text, model.body(Batch(text.to(device))).cpu()
