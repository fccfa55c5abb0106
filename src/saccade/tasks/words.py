"""A tokenizer of one's own: learnt on the training texts, its kind and its size chosen by them."""

import math
from collections.abc import Sequence

from saccade import text as tokenizers
from saccade.errors import DataError, UsageError
from saccade.text.tokenizer import Tokenizer
from saccade.text.train import KINDS

SMALL = 2_000_000  # characters; a running text below this is read by characters


def learn_tokenizer(
    texts: Sequence[str], pieces: str, vocab: int | None, *, frame: str, running: bool, extra: Sequence[str] = ()
) -> Tokenizer:
    """A tokenizer of the kind `pieces`; "auto" is sub-words (BPE), or characters for a short running text."""
    if pieces == "auto":
        size = sum(map(len, texts))
        pieces = "characters" if running and size < SMALL else "bpe"
    if pieces not in KINDS:
        raise UsageError(f"task.pieces is {pieces!r}; known are auto, {', '.join(KINDS)}.")
    if pieces in ("wordpiece", "unigram", "words") and not any(text and not text.isspace() for text in texts):
        what = f"there is nothing but white space to learn a tokenizer of {pieces} from"
        raise DataError(what, cure="give texts with words, or use --task.pieces bytes, which learns nothing")
    sized = pieces not in ("characters", "bytes")
    size = (vocab or chosen_size(texts) + len(extra)) if sized else None
    return tokenizers.train(texts, pieces, size, extra=extra, frame=frame)


def chosen_size(texts: Sequence[str]) -> int:
    """How many sub-words a text can feed: vocabularies grow about as the square root of the text (Heaps' law).

    >>> chosen_size(["a" * 1_000_000])
    2000
    >>> chosen_size(["a few words"]), chosen_size(["a" * 10**9])
    (400, 16000)
    """
    return min(16_000, max(400, int(2 * math.sqrt(sum(map(len, texts))))))
