"""Text embeddings: one vector per token (`encode`) or one per text (sentence embeddings, `embed`)."""

from collections.abc import Callable, Iterator, Sequence

import torch
from tokenizers.normalizers import Lowercase
from torch import Tensor

from saccade.data import Batch, Text
from saccade.errors import ModelError
from saccade.keywords import check_keywords
from saccade.models.model import Model

MAX_BATCH_TOKENS = 8192  # tokens per batch, padding included


@check_keywords
def encode(model: Model, texts: Sequence[str], *, truncate: bool = False) -> list[Tensor]:
    """Return the last hidden states of each text, (tokens, W), with special tokens and without padding."""
    out: list[Tensor | None] = [None] * len(texts)
    for indices, text, x in _encode_batches(model, texts, truncate):
        keep = torch.ones(x.shape[:2], dtype=torch.bool) if text.keep is None else text.keep
        for row, index in enumerate(indices):
            out[index] = x[row, keep[row]]
    return [x for x in out if x is not None]


@check_keywords
def embed(
    model: Model,
    texts: Sequence[str],
    *,
    truncate: bool = True,
    batch_size: int | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Tensor:
    """Return one sentence embedding per text, (texts, W), pooled as the model's files say; default: mean pooling.

    The files of sentence-transformers may also set the maximum length, lowercasing, and a prompt that is put before each text.
    Tokens beyond the limit are dropped; with `truncate=False` a text that is too long is an error.
    """
    pooling = model.pooling
    _check_is_list(texts)
    if pooling.lowercase:  # as the tokenizers package does it: unlike str.lower, without the rule for a final sigma
        texts = [Lowercase().normalize_str(pooling.prompt + text) for text in texts]
    elif pooling.prompt:
        texts = [pooling.prompt + text for text in texts]
    out = torch.zeros(len(texts), pooling.output_width(model.width))
    max_tokens = pooling.max_tokens or (model.tokenizer.max_tokens if model.tokenizer else None)
    done = 0
    for indices, token_ids, segment_ids in _token_batches(model, texts, truncate, max_tokens, batch_size):
        with torch.inference_mode():
            out[indices] = model.embed_tokens(token_ids, segment_ids).cpu().to(out.dtype)
        done += len(indices)
        on_progress(done, len(texts))
    return out


def _check_is_list(texts: Sequence[str]) -> None:
    if isinstance(texts, str):
        raise ModelError(f"A list of texts is needed; got a single string. Write [{texts[:20]!r}...].")


def _encode_batches(model: Model, texts: Sequence[str], truncate: bool) -> Iterator[tuple[list[int], Text, Tensor]]:
    """Yield batches of texts of similar length: their indices, their tokens, and the body's output."""
    device = next(model.parameters()).device
    for indices, token_ids, segment_ids in _token_batches(model, texts, truncate):
        text = Text.pad(token_ids, segment_ids=segment_ids)
        with torch.inference_mode():
            yield indices, text, model.encode(Batch(text.to(device))).cpu()


def _token_batches(
    model: Model, texts: Sequence[str], truncate: bool, max_tokens: int | None = None, batch_size: int | None = None
) -> Iterator[tuple[list[int], list[list[int]], list[list[int]]]]:
    """Yield batches of texts of similar length: their indices, and at most `max_tokens` token ids and segment ids of each."""
    _check_is_list(texts)
    if model.tokenizer is None:
        raise ModelError("This model has no tokenizer; load it from a directory that has tokenizer files.")
    token_ids, segment_ids = model.tokenizer.encode_ids(texts)
    limit = min((n for n in (model.max_positions, max_tokens) if n is not None), default=None)
    if limit is not None:
        for index, row in enumerate(token_ids):
            if len(row) <= limit:
                continue
            if not truncate:
                raise ModelError(
                    f"Text {index} has {len(row)} tokens, but the model reads at most {limit}; "
                    "shorten it, or set truncate=True."
                )
            shorter = model.tokenizer.encode(texts[index]).truncate(limit)
            token_ids[index], segment_ids[index] = shorter.ids, shorter.segment_ids
    order = sorted(range(len(texts)), key=lambda i: len(token_ids[i]))
    while order:
        count = batch_size or max(1, MAX_BATCH_TOKENS // max(1, len(token_ids[order[-1]])))
        order, indices = order[:-count], order[-count:]
        yield indices, [token_ids[i] for i in indices], [segment_ids[i] for i in indices]
