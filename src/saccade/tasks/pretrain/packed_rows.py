"""Rows of tokens for pretraining: windows of one running text, or separate texts, one or several (sequence packing) per row.

Each token of a row has the index of its unit (token, word or sentence), counted from 0; special tokens around a text have -1.
No text is truncated; what is too long for a row continues in the next.
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

FindUnitEnds = Callable[[str, Encoding], np.ndarray]  # text, encoding -> whether a unit ends at each token
NO_UNIT = -1  # unit index of tokens that belong to no unit
SENTENCE_ENDINGS = ".!?…"


@dataclass(frozen=True)
class RowUnits:
    """The unit of each token of a row, and its text, if the row has several."""

    unit_ids: np.ndarray  # (L,)
    document_ids: np.ndarray | None = None  # (L,)


def find_token_ends(text: str, encoded: Encoding) -> np.ndarray:
    """Units that are single tokens."""
    return np.ones(len(encoded.ids), bool)


def find_word_ends(text: str, encoded: Encoding) -> np.ndarray:
    """Units that are words: two tokens belong together if letters or digits meet, or if they are bytes of one character.

    >>> find_word_ends("on-line now", Encoding([1] * 5, [(0, 2), (2, 3), (3, 5), (5, 7), (7, 11)], [0] * 5, [0] * 5)).tolist()
    [True, True, False, True, True]
    """
    ends = np.ones(len(encoded.ids), bool)
    for i, (left, right) in enumerate(pairwise(encoded.offsets)):
        boundary = right[0]
        ends[i] = left != right and not (
            text[boundary - 1 : boundary].isalnum() and text[boundary : boundary + 1].isalnum()
        )
    return ends


def find_sentence_ends(text: str, encoded: Encoding) -> np.ndarray:
    """Units that are sentences, which end with a full stop before white space or the end of the text, or with an empty line.

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
    """All texts as rows of at most `config.max_tokens` tokens; tokens in `unmaskable_ids` belong to no unit.

    Without `find_ends` the units are words with whole-word masking and tokens otherwise.
    """
    find_ends = find_ends or (find_word_ends if config.whole_word_masking else find_token_ends)
    tokenizer, limit = require_tokenizer(model), max_row_tokens(model, config)
    if config.packing == "packed" and not model.supports_packing:
        raise UsageError(
            f"{model.family.name} does not support sequence packing (several texts per row); use --task.packing none."
        )
    room, frame = _make_framer(tokenizer, limit, unmaskable_ids)
    texts = _encode_texts(examples, tokenizer, find_ends, separate=config.packing != "stream")
    if config.packing == "stream":
        texts = _concatenate(texts)
    rows = [
        frame(ids[start : start + room], ends[start : start + room])
        for ids, ends in texts
        for start in range(0, len(ids), room)
    ]
    if not rows:
        raise DataError("the text has 0 tokens, so there is nothing to learn", hint="give a longer text")
    if config.packing == "packed":
        rows = [_pack_texts([rows[i] for i in row]) for row in pack([len(ids) for ids, _ in rows], limit)]
    return [Item(Example({"row": ids}), ids, gold=row_units) for ids, row_units in rows]


def max_row_tokens(model: Model, config: Config) -> int:
    """Maximum number of tokens of a row."""
    return min(config.max_tokens, model.max_positions or config.max_tokens)


def make_row_encoder(
    model: Model, config: Config, unmaskable_ids: Sequence[int] = ()
) -> tuple[int, Callable[[np.ndarray], Item]]:
    """The number of text tokens per row, and the function that turns their ids into a row whose units are tokens."""
    room, frame = _make_framer(require_tokenizer(model), max_row_tokens(model, config), unmaskable_ids)

    def make_item(ids: np.ndarray) -> Item:
        row, row_units = frame(ids, np.ones(len(ids), bool))
        return Item(Example({"row": row}), row, gold=row_units)

    return room, make_item


def collate_rows(items: Sequence[Item]) -> Batch:
    """Rows as a padded batch; the gold is the unit indices, with padding in no unit."""
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
    """The ids of the special tokens before and after a text."""
    encoding = tokenizer.encode("a")
    special = encoding.special_tokens_mask
    first, last = special.index(False), len(special) - special[::-1].index(False)
    return encoding.ids[:first], encoding.ids[last:]


def require_mask_id(model: Model) -> int:
    """The id of the mask token; a tokenizer without one raises an error."""
    mask = require_tokenizer(model).mask_id
    if mask is None:
        raise ModelError("This model's tokenizer has no mask token, which masking needs; choose another model.")
    return mask


def ordinary_ids(model: Model) -> Tensor:
    """All ids except those of special tokens."""
    tokenizer = require_tokenizer(model)
    is_ordinary = torch.ones(tokenizer.vocab, dtype=torch.bool)
    is_ordinary[list(tokenizer.special_tokens.values())] = False
    return is_ordinary.nonzero().squeeze(1)


IdsAndEnds = tuple[np.ndarray, np.ndarray]  # the ids of a text, and whether a unit ends at each


def _encode_texts(
    examples: Sequence[Example], tokenizer: Tokenizer, find_ends: FindUnitEnds, *, separate: bool
) -> Iterator[IdsAndEnds]:
    """The encoding of each line, without its newline if lines are separate texts."""
    lines = [example["text"] for example in examples]
    lines = [line.rstrip("\n") for line in lines] if separate else lines
    for line, encoding in zip(lines, tokenizer.encode_iter(lines, add_special_tokens=False), strict=True):
        yield np.array(encoding.ids, np.int32), find_ends(line, encoding)


def _concatenate(texts: Iterator[IdsAndEnds]) -> Iterator[IdsAndEnds]:
    pairs = list(texts)
    if pairs:
        yield np.concatenate([ids for ids, _ in pairs]), np.concatenate([ends for _, ends in pairs])


def _make_framer(
    tokenizer: Tokenizer, limit: int, unmaskable_ids: Sequence[int]
) -> tuple[int, Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, RowUnits]]]:
    """The number of text tokens per row, and the function that adds special tokens and unit indices."""
    before, after = surrounding_ids(tokenizer)
    room = limit - len(before) - len(after)
    if room < 1:
        raise UsageError(f"A row of {limit} tokens has no room for a text; raise task.max_tokens.")

    def frame(ids: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, RowUnits]:
        units = np.cumsum(ends) - ends  # the number of units that ended before
        units[np.isin(ids, unmaskable_ids)] = NO_UNIT
        special_units = [np.full(len(side), NO_UNIT) for side in (before, after)]
        tokens = np.concatenate([before, ids, after]).astype(np.int32)
        return tokens, RowUnits(np.concatenate([special_units[0], units, special_units[1]]).astype(np.int32))

    return room, frame


def _pack_texts(texts: Sequence[tuple[np.ndarray, RowUnits]]) -> tuple[np.ndarray, RowUnits]:
    """Several texts in one row, with unit indices counted across texts."""
    units, count = [], 0
    for _, row_units in texts:
        units.append(np.where(row_units.unit_ids == NO_UNIT, NO_UNIT, row_units.unit_ids + count))
        count += int(row_units.unit_ids.max()) + 1
    document_ids = np.repeat(np.arange(len(texts)), [len(ids) for ids, _ in texts])
    return np.concatenate([ids for ids, _ in texts]), RowUnits(np.concatenate(units), document_ids)
