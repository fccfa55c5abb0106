"""Tokenizer training: on the training texts, which by default also determine the kind and the vocabulary size."""

import math
from collections.abc import Sequence

from saccade import text as tokenizers
from saccade.errors import DataError, UsageError
from saccade.text.tokenizer import Tokenizer
from saccade.text.train import TOKENIZER_KINDS

MIN_CHARACTERS_FOR_BPE = 2_000_000  # characters; a shorter running text gets a character tokenizer


def learn_tokenizer(
    texts: Sequence[str],
    kind: str,
    vocab: int | None,
    *,
    token_template: str,
    is_text_stream: bool,
    extra_special_tokens: Sequence[str] = (),
) -> Tokenizer:
    """Train a tokenizer of this kind; "auto" is BPE, or characters for a short running text."""
    if kind == "auto":
        size = sum(map(len, texts))
        kind = "characters" if is_text_stream and size < MIN_CHARACTERS_FOR_BPE else "bpe"
    if kind not in TOKENIZER_KINDS:
        raise UsageError(f"task.tokenizer is {kind!r}; known are auto, {', '.join(TOKENIZER_KINDS)}.")
    if kind in ("wordpiece", "unigram", "words") and not any(text and not text.isspace() for text in texts):
        problem = f"the texts for the {kind} tokenizer are only white space"
        raise DataError(problem, hint="give texts with words, or use --task.tokenizer bytes, which needs no training")
    has_vocab_size = kind not in ("characters", "bytes")
    size = (vocab or choose_vocab_size(texts) + len(extra_special_tokens)) if has_vocab_size else None
    return tokenizers.train_tokenizer(
        texts, kind, size, extra_special_tokens=extra_special_tokens, token_template=token_template
    )


def choose_vocab_size(texts: Sequence[str]) -> int:
    """A vocabulary size that suits the texts; vocabularies grow about as the square root of the text (Heaps' law).

    >>> choose_vocab_size(["a" * 1_000_000])
    2000
    >>> choose_vocab_size(["a few words"]), choose_vocab_size(["a" * 10**9])
    (400, 16000)
    """
    return min(16_000, max(400, int(2 * math.sqrt(sum(map(len, texts))))))
