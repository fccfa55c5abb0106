"""Marian's lexical shortlist: for each word of the source the few words that it may become, so that an output is not looked
for among all of them (its binary file, as Bergamot and Firefox have it beside a student)."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from saccade.data import Text
from saccade.errors import ModelError

HEADER = struct.Struct("<6Q")  # magic, checksum, frequent words, words for each, starts, words in all lists
MAGIC = 0xF11A48D5013417F5
SIZE_MULTIPLE = 8
MAX_SHORTLIST_BYTES = 2**30  # bytes; published lists have a few million


@dataclass(frozen=True)
class Shortlist:
    """The lists of all words, one after the other: word `w` may become `tokens[offsets[w] : offsets[w + 1]]`.

    A target may also have the `frequent_count` first words of the vocabulary, and the words of its source as they are. Marian
    fills up to a multiple of eight, which its matrix product asks for, with the next frequent words; so that the same words are
    chosen, we do too.

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
        """(B, V) True for the words that a translation of each row may have."""
        out = torch.zeros(len(source.tokens), self.vocab, dtype=torch.bool)
        out[:, : self.frequent_count] = True
        for row, tokens in enumerate(source.tokens.tolist()):
            real = [True] * len(tokens) if source.keep is None else source.keep[row].tolist()
            for token in {token for token, kept in zip(tokens, real, strict=True) if kept}:
                out[row, token] = True
                out[row, self.tokens[self.offsets[token] : self.offsets[token + 1]]] = True
            missing = -int(out[row].sum()) % SIZE_MULTIPLE
            out[row, (~out[row]).nonzero()[:missing, 0]] = True
        return out.to(source.tokens.device)

    def make_greedy_step(self, source: Text) -> Callable[[Tensor], Tensor]:
        """Greedy among the allowed words of these rows, for `generate(model, batch, make_greedy_step(batch.source), ...)`."""
        barred = ~self.allowed_mask(source)
        return lambda scores: scores.masked_fill(barred, -torch.inf).argmax(-1)


def read_shortlist(path: str | Path) -> Shortlist:
    """The shortlist in a binary file; its header is believed only as far as the file is long."""
    path = Path(path)
    size = path.stat().st_size
    if not HEADER.size <= size <= MAX_SHORTLIST_BYTES:
        raise ModelError(f"{path}: {size:,} bytes; a shortlist has from {HEADER.size} to {MAX_SHORTLIST_BYTES:,}.")
    content = path.read_bytes()
    magic, _, frequent, _, starts, words = HEADER.unpack_from(content)
    if magic != MAGIC:
        raise ModelError(f"{path}: is no binary shortlist of Marian's: it begins with {magic:#x}, not with {MAGIC:#x}.")
    needed = HEADER.size + 8 * starts + 4 * words
    if size != needed or starts < 2:
        raise ModelError(f"{path}: has {size:,} bytes, and its header asks for {needed:,}; the file is damaged.")
    bounds = np.frombuffer(content, "<u8", starts, HEADER.size)
    lists = np.frombuffer(content, "<u4", words, HEADER.size + 8 * starts)
    rising = bool((bounds[1:] >= bounds[:-1]).all()) and bounds[0] == 0 and bounds[-1] == words
    if not rising or frequent >= starts or (words and int(lists.max()) >= starts - 1):
        raise ModelError(f"{path}: its lists lead out of the file or out of the vocabulary; the file is damaged.")
    return Shortlist(frequent, torch.from_numpy(bounds.astype(np.int64)), torch.from_numpy(lists.astype(np.int64)))
