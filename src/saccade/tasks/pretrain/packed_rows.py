"""Texts as rows of tokens to learn from: windows of one running text, or texts of their own, packed into rows or alone.

Each token of a row has a number: that of the unit (token, word, sentence) it belongs to, counted from 0, or -1 where it belongs
to none because it was put around a text. Nothing of a text is left out; what is too long for a row goes on in the next.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from saccade.data import Batch, Example, Text
from saccade.data.packing import pack
from saccade.errors import DataError, ModelError, UsageError
from saccade.models.model import Model
from saccade.tasks.base import Item, require_tokenizer
from saccade.tasks.pretrain.config import Config
from saccade.text.tokenizer import Encoding, Tokenizer

FindUnitEnds = Callable[[str, Encoding], np.ndarray]  # a text -> for each token, whether a unit ends with it
NO_UNIT = -1  # a token that belongs to no unit
SENTENCE_ENDINGS = ".!?…"


@dataclass(frozen=True)
class RowUnits:
    """What goes with the tokens of a row: the numbers of their units, and of the texts where there are several."""

    unit_ids: np.ndarray  # (L,)
    document_ids: np.ndarray | None = None  # (L,)


def find_token_ends(text: str, encoded: Encoding) -> np.ndarray:
    """Each token is a unit."""
    return np.ones(len(encoded.ids), bool)


def find_word_ends(text: str, encoded: Encoding) -> np.ndarray:
    """A word goes on where letters or digits stand on both sides of a border, or where two tokens are bytes of one character.

    >>> find_word_ends("on-line now", Encoding([1] * 5, [(0, 2), (2, 3), (3, 5), (5, 7), (7, 11)], [0] * 5, [0] * 5)).tolist()
    [True, True, False, True, True]
    """
    ends = np.ones(len(encoded.ids), bool)
    for i, (left, right) in enumerate(pairwise(encoded.offsets)):
        at = right[0]
        ends[i] = left != right and not (text[at - 1 : at].isalnum() and text[at : at + 1].isalnum())
    return ends


def find_sentence_ends(text: str, encoded: Encoding) -> np.ndarray:
    """A sentence ends with a full stop before a space or the end of a text, and with an empty line.

    >>> find_sentence_ends("No. 1.5", Encoding([1] * 5, [(0, 2), (2, 3), (3, 5), (5, 6), (6, 7)], [0] * 5, [0] * 5)).tolist()
    [False, True, False, False, False]
    """
    if not text.strip():
        return np.ones(len(encoded.ids), bool)
    ends = [
        end > 0 and text[end - 1] in SENTENCE_ENDINGS and not text[end : end + 1].strip() for _, end in encoded.offsets
    ]
    return np.array(ends, bool)


def make_rows(
    examples: Sequence[Example],
    model: Model,
    config: Config,
    *,
    find_ends: FindUnitEnds | None = None,
    unmaskable_ids: Sequence[int] = (),
) -> list[Item]:
    """All texts as rows of at most `config.max_tokens` tokens; tokens of the `unmaskable_ids` belong to no unit.

    The units are tokens, or words where the config says so, unless `find_ends` tells others.
    """
    find_ends = find_ends or (find_word_ends if config.whole_word_masking else find_token_ends)
    tokenizer, limit = require_tokenizer(model), max_row_tokens(model, config)
    if config.packing == "packed" and not model.supports_packing:
        raise UsageError(
            f"A row of {model.family.name} cannot hold several texts that do not see each other; say --task.packing none."
        )
    room, frame = _make_framer(tokenizer, limit, unmaskable_ids)
    texts = _encode_texts(examples, tokenizer, find_ends, separate=config.packing != "stream")
    if config.packing == "stream":
        texts = _concatenate(texts)
    pieces = [
        frame(ids[start : start + room], last[start : start + room])
        for ids, last in texts
        for start in range(0, len(ids), room)
    ]
    if not pieces:
        raise DataError("a text of 0 tokens has nothing to learn from", hint="give a longer text")
    if config.packing == "packed":
        pieces = [_pack_texts([pieces[i] for i in row]) for row in pack([len(ids) for ids, _ in pieces], limit)]
    return [Item(Example({"row": ids}), ids, gold=marks) for ids, marks in pieces]


def max_row_tokens(model: Model, config: Config) -> int:
    """The most tokens of a row."""
    return min(config.max_tokens, model.max_positions or config.max_tokens)


def make_row_encoder(
    model: Model, config: Config, unmaskable_ids: Sequence[int] = ()
) -> tuple[int, Callable[[np.ndarray], Item]]:
    """How many tokens of a text a row has room for, and how so many ids become a row in which each token is a unit."""
    room, frame = _make_framer(require_tokenizer(model), max_row_tokens(model, config), unmaskable_ids)

    def item(ids: np.ndarray) -> Item:
        row, marks = frame(ids, np.ones(len(ids), bool))
        return Item(Example({"row": row}), row, gold=marks)

    return room, item


def collate_rows(items: Sequence[Item]) -> Batch:
    """Rows side by side; the gold is the numbers of the units, and padding belongs to none."""
    text = Text.pad([item.source.tolist() for item in items])
    units = torch.full_like(text.tokens, NO_UNIT)
    for row, item in enumerate(items):
        units[row, : len(item.source)] = torch.from_numpy(item.gold.unit_ids)
    if any(item.gold.document_ids is not None for item in items):
        text.document_ids = torch.zeros_like(text.tokens)
        for row, item in enumerate(items):
            text.document_ids[row, : len(item.source)] = torch.from_numpy(item.gold.document_ids)
    return Batch(text, gold=units, items=list(items))


def surrounding_ids(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The ids that a tokenizer puts before a text and after it."""
    found = tokenizer.encode("a")
    special = found.special_tokens_mask
    first, last = special.index(False), len(special) - special[::-1].index(False)
    return found.ids[:first], found.ids[last:]


def require_mask_id(model: Model) -> int:
    """The id of the mask."""
    mask = require_tokenizer(model).mask_id
    if mask is None:
        raise ModelError("This model's tokenizer has no mask token, so nothing can be hidden; choose another model.")
    return mask


def ordinary_ids(model: Model) -> Tensor:
    """All ids but those of special tokens, (V,)."""
    tokenizer = require_tokenizer(model)
    plain = torch.ones(tokenizer.vocab, dtype=torch.bool)
    plain[list(tokenizer.special_tokens.values())] = False
    return plain.nonzero().squeeze(1)


IdsAndEnds = tuple[np.ndarray, np.ndarray]  # the ids of a text, and where its units end


def _encode_texts(
    examples: Sequence[Example], tokenizer: Tokenizer, find_ends: FindUnitEnds, *, separate: bool
) -> Iterator[IdsAndEnds]:
    """Each text; a line that is a text of its own ends without its newline."""
    lines = [example["text"] for example in examples]
    lines = [line.rstrip("\n") for line in lines] if separate else lines
    for line, found in zip(lines, tokenizer.encode_iter(lines, add_special_tokens=False), strict=True):
        yield np.array(found.ids, np.int32), find_ends(line, found)


def _concatenate(texts: Iterator[IdsAndEnds]) -> Iterator[IdsAndEnds]:
    found = list(texts)
    if found:
        yield np.concatenate([ids for ids, _ in found]), np.concatenate([ends for _, ends in found])


def _make_framer(
    tokenizer: Tokenizer, limit: int, unmaskable_ids: Sequence[int]
) -> tuple[int, Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, RowUnits]]]:
    """How many tokens of a text a row has room for, and what makes a row of so many and of where units end."""
    before, after = surrounding_ids(tokenizer)
    room = limit - len(before) - len(after)
    if room < 1:
        raise UsageError(f"A row of {limit} tokens has no room for a text; raise task.max_tokens.")

    def frame(ids: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, RowUnits]:
        units = np.cumsum(ends) - ends  # how many have ended before
        units[np.isin(ids, unmaskable_ids)] = NO_UNIT
        around = [np.full(len(side), NO_UNIT) for side in (before, after)]
        tokens = np.concatenate([before, ids, after]).astype(np.int32)
        return tokens, RowUnits(np.concatenate([around[0], units, around[1]]).astype(np.int32))

    return room, frame


def _pack_texts(texts: Sequence[tuple[np.ndarray, RowUnits]]) -> tuple[np.ndarray, RowUnits]:
    """Several texts in one row; units go on counting."""
    units, count = [], 0
    for _, marks in texts:
        units.append(np.where(marks.unit_ids == NO_UNIT, NO_UNIT, marks.unit_ids + count))
        count += int(marks.unit_ids.max()) + 1
    parts = np.repeat(np.arange(len(texts)), [len(ids) for ids, _ in texts])
    return np.concatenate([ids for ids, _ in texts]), RowUnits(np.concatenate(units), parts)
