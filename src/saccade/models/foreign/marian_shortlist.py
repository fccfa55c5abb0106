"""Marian's lexical shortlist: for each source token the likely target tokens, so that the output layer is computed for these
alone. Reads the binary files that Bergamot and Firefox ship with a student model."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from saccade.data import Text
from saccade.errors import ModelError

HEADER = struct.Struct("<6Q")  # magic, checksum, frequent tokens, tokens per list, offsets, tokens in all lists
MAGIC = 0xF11A48D5013417F5
SIZE_MULTIPLE = 8
MAX_SHORTLIST_BYTES = 2**30  # published lists have a few million bytes


@dataclass(frozen=True)
class Shortlist:
    """Concatenated lists of all tokens: token `w` may be translated as `tokens[offsets[w] : offsets[w + 1]]`.

    Also allowed are the first `frequent_count` tokens of the vocabulary and copies of the source tokens. As in Marian, whose
    matrix product needs it, the next frequent tokens fill up the set to a multiple of eight.

    >>> lists = Shortlist(1, torch.tensor([0, 0, 2, *[3] * 15]), torch.tensor([13, 14, 15]))
    >>> lists.allowed_mask(Text(torch.tensor([[1], [2]]))).int().tolist()
    [[1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]]
    """

    frequent_count: int
    offsets: Tensor  # (V + 1)
    tokens: Tensor

    @property
    def vocab(self) -> int:
        return len(self.offsets) - 1

    def allowed_mask(self, source: Text) -> Tensor:
        """(B, V), True for the tokens allowed in the translation of each row."""
        out = torch.zeros(len(source.tokens), self.vocab, dtype=torch.bool)
        out[:, : self.frequent_count] = True
        for row, tokens in enumerate(source.tokens.tolist()):
            is_real = [True] * len(tokens) if source.keep is None else source.keep[row].tolist()
            for token in {token for token, kept in zip(tokens, is_real, strict=True) if kept}:
                out[row, token] = True
                out[row, self.tokens[self.offsets[token] : self.offsets[token + 1]]] = True
            missing = -int(out[row].sum()) % SIZE_MULTIPLE
            out[row, (~out[row]).nonzero()[:missing, 0]] = True
        return out.to(source.tokens.device)

    def make_greedy_step(self, source: Text) -> Callable[[Tensor], Tensor]:
        """Greedy search over the allowed tokens, for `generate(model, batch, make_greedy_step(batch.source), ...)`."""
        is_forbidden = ~self.allowed_mask(source)
        return lambda scores: scores.masked_fill(is_forbidden, -torch.inf).argmax(-1)


def read_shortlist(path: str | Path) -> Shortlist:
    """Read a binary shortlist; its header is checked against the size of the file."""
    path = Path(path)
    size = path.stat().st_size
    if not HEADER.size <= size <= MAX_SHORTLIST_BYTES:
        raise ModelError(f"{path}: has {size:,} bytes; a shortlist has from {HEADER.size} to {MAX_SHORTLIST_BYTES:,}.")
    content = path.read_bytes()
    magic, _, frequent, _, starts, words = HEADER.unpack_from(content)
    if magic != MAGIC:
        raise ModelError(f"{path}: not a binary Marian shortlist: it starts with {magic:#x} instead of {MAGIC:#x}.")
    needed = HEADER.size + 8 * starts + 4 * words
    if size != needed or starts < 2:
        raise ModelError(f"{path}: has {size:,} bytes, but its header needs {needed:,}; the file is damaged.")
    bounds = np.frombuffer(content, "<u8", starts, HEADER.size)
    lists = np.frombuffer(content, "<u4", words, HEADER.size + 8 * starts)
    is_monotonic = bool((bounds[1:] >= bounds[:-1]).all()) and bounds[0] == 0 and bounds[-1] == words
    if not is_monotonic or frequent >= starts or (words and int(lists.max()) >= starts - 1):
        raise ModelError(f"{path}: its lists exceed the file or the vocabulary; the file is damaged.")
    return Shortlist(frequent, torch.from_numpy(bounds.astype(np.int64)), torch.from_numpy(lists.astype(np.int64)))
