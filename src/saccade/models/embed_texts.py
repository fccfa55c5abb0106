"""Readers put to use: texts to vectors, one for each token (`encode`) or one for each text (`embed`)."""

from collections.abc import Iterator, Sequence

import torch
from tokenizers.normalizers import Lowercase
from torch import Tensor

from saccade.data import Batch, Text
from saccade.errors import ModelError
from saccade.models.model import Model

MAX_BATCH_TOKENS = 8192  # tokens at a time, padding counted


def encode(model: Model, texts: Sequence[str], *, truncate: bool = False) -> list[Tensor]:
    """The last hidden states of each text, (tokens, W): special tokens included, padding removed."""
    out: list[Tensor | None] = [None] * len(texts)
    for numbers, text, x in _encode_batches(model, texts, truncate):
        keep = torch.ones(x.shape[:2], dtype=torch.bool) if text.keep is None else text.keep
        for row, number in enumerate(numbers):
            out[number] = x[row, keep[row]]
    return [x for x in out if x is not None]


def embed(model: Model, texts: Sequence[str], *, truncate: bool = True) -> Tensor:
    """One vector for each text, (texts, W): pooled as the model's own files say, by the mean of its tokens if they do not.

    The files of sentence-transformers may also say where texts are truncated, that they are lowercased, and which prompt stands
    in front of them. Tokens beyond the limit are left out; `truncate=False` makes a text that is too long an error.
    """
    pooling = model.pooling
    _check_is_list(texts)
    if pooling.lowercase:  # as the tokenizers package does it, which knows nothing of a sigma at the end of a word
        texts = [Lowercase().normalize_str(pooling.prompt + text) for text in texts]
    elif pooling.prompt:
        texts = [pooling.prompt + text for text in texts]
    out = torch.zeros(len(texts), pooling.output_width(model.width))
    most = pooling.max_tokens or (model.tokenizer.max_tokens if model.tokenizer else None)
    for numbers, text, x in _encode_batches(model, texts, truncate, most):
        out[numbers] = pooling(x, text.keep).to(out.dtype)
    return out


def _check_is_list(texts: Sequence[str]) -> None:
    if isinstance(texts, str):
        raise ModelError(f"A list of texts is needed; got one text. Write [{texts[:20]!r}...].")


def _encode_batches(
    model: Model, texts: Sequence[str], truncate: bool, max_tokens: int | None = None
) -> Iterator[tuple[list[int], Text, Tensor]]:
    """Texts in batches of like length: their numbers, their tokens, `max_tokens` of them, and what the body makes of them."""
    _check_is_list(texts)
    if model.tokenizer is None:
        raise ModelError("This model came without a tokenizer; load it from a directory that has tokenizer files.")
    encoded = model.tokenizer.encode_batch(list(texts))
    limit = min((n for n in (model.max_positions, max_tokens) if n is not None), default=None)
    if limit is not None:
        for number, item in enumerate(encoded):
            if len(item.ids) > limit and not truncate:
                raise ModelError(
                    f"Text {number} has {len(item.ids)} tokens and the model reads at most {limit}; "
                    "shorten it, or say truncate=True."
                )
        encoded = [item.truncate(limit) if len(item.ids) > limit else item for item in encoded]
    order = sorted(range(len(texts)), key=lambda i: len(encoded[i].ids))
    device = next(model.parameters()).device
    while order:
        longest = len(encoded[order[-1]].ids)
        count = max(1, MAX_BATCH_TOKENS // max(1, longest))
        order, numbers = order[:-count], order[-count:]
        rows = [encoded[i] for i in numbers]
        text = Text.pad([row.ids for row in rows], segment_ids=[row.segment_ids for row in rows])
        with torch.inference_mode():
            yield numbers, text, model.body(Batch(text.to(device))).cpu()
