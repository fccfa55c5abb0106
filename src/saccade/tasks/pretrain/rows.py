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
from saccade.data.pack import pack
from saccade.errors import DataError, ModelError, UsageError
from saccade.models.model import Model
from saccade.tasks.pretrain.config import Config
from saccade.tasks.task import Item, need_tokenizer
from saccade.text.tokenizer import Encoded, Tokenizer

Ends = Callable[[str, Encoded], np.ndarray]  # a text -> for each token, whether a unit ends with it
NONE = -1  # a token that belongs to no unit
STOPS = ".!?…"


@dataclass(frozen=True)
class Marks:
    """What goes with the tokens of a row: the numbers of their units, and of the texts where there are several."""

    units: np.ndarray  # (L,)
    parts: np.ndarray | None = None  # (L,)


def every_token(text: str, found: Encoded) -> np.ndarray:
    """Each token is a unit."""
    return np.ones(len(found.ids), bool)


def words(text: str, found: Encoded) -> np.ndarray:
    """A word goes on where letters or digits stand on both sides of a border, or where two tokens are bytes of one character.

    >>> words("on-line now", Encoded([1] * 5, [(0, 2), (2, 3), (3, 5), (5, 7), (7, 11)], [0] * 5, [0] * 5)).tolist()
    [True, True, False, True, True]
    """
    ends = np.ones(len(found.ids), bool)
    for i, (left, right) in enumerate(pairwise(found.offsets)):
        at = right[0]
        ends[i] = left != right and not (text[at - 1 : at].isalnum() and text[at : at + 1].isalnum())
    return ends


def sentences(text: str, found: Encoded) -> np.ndarray:
    """A sentence ends with a full stop before a space or the end of a text, and with an empty line.

    >>> sentences("No. 1.5", Encoded([1] * 5, [(0, 2), (2, 3), (3, 5), (5, 6), (6, 7)], [0] * 5, [0] * 5)).tolist()
    [False, True, False, False, False]
    """
    if not text.strip():
        return np.ones(len(found.ids), bool)
    ends = [end > 0 and text[end - 1] in STOPS and not text[end : end + 1].strip() for _, end in found.offsets]
    return np.array(ends, bool)


def rows(
    examples: Sequence[Example], model: Model, config: Config, *, ends: Ends | None = None, skip: Sequence[int] = ()
) -> list[Item]:
    """All texts as rows of at most `config.length` tokens; tokens of the ids in `skip` belong to no unit.

    The units are tokens, or words where the config says so, unless `ends` tells others.
    """
    ends = ends or (words if config.whole_words else every_token)
    tokenizer, limit = need_tokenizer(model), longest(model, config)
    if config.texts == "packed" and not model.packs:
        raise UsageError(
            f"A row of {model.family.name} cannot hold several texts that do not see each other; say --task.texts alone."
        )
    room, frame = _framing(tokenizer, limit, skip)
    texts = _encoded(examples, tokenizer, ends, own=config.texts != "running")
    if config.texts == "running":
        texts = _joined(texts)
    pieces = [
        frame(ids[start : start + room], last[start : start + room])
        for ids, last in texts
        for start in range(0, len(ids), room)
    ]
    if not pieces:
        raise DataError("a text of 0 tokens has nothing to learn from", cure="give a longer text")
    if config.texts == "packed":
        pieces = [_beside([pieces[i] for i in row]) for row in pack([len(ids) for ids, _ in pieces], limit)]
    return [Item(Example({"row": ids}), ids, gold=marks) for ids, marks in pieces]


def longest(model: Model, config: Config) -> int:
    """The most tokens of a row."""
    return min(config.length, model.limit or config.length)


def windowed(model: Model, config: Config, skip: Sequence[int] = ()) -> tuple[int, Callable[[np.ndarray], Item]]:
    """How many tokens of a text a row has room for, and how so many ids become a row in which each token is a unit."""
    room, frame = _framing(need_tokenizer(model), longest(model, config), skip)

    def item(ids: np.ndarray) -> Item:
        row, marks = frame(ids, np.ones(len(ids), bool))
        return Item(Example({"row": row}), row, gold=marks)

    return room, item


def numbered(items: Sequence[Item]) -> Batch:
    """Rows side by side; the gold is the numbers of the units, and padding belongs to none."""
    text = Text.of([item.source.tolist() for item in items])
    units = torch.full_like(text.tokens, NONE)
    for row, item in enumerate(items):
        units[row, : len(item.source)] = torch.from_numpy(item.gold.units)
    if any(item.gold.parts is not None for item in items):
        text.parts = torch.zeros_like(text.tokens)
        for row, item in enumerate(items):
            text.parts[row, : len(item.source)] = torch.from_numpy(item.gold.parts)
    return Batch(text, gold=units, rows=list(items))


def framing(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The ids that a tokenizer puts before a text and after it."""
    found = tokenizer.encode("a")
    special = found.special
    first, last = special.index(False), len(special) - special[::-1].index(False)
    return found.ids[:first], found.ids[last:]


def mask_of(model: Model) -> int:
    """The id of the mask."""
    mask = need_tokenizer(model).mask
    if mask is None:
        raise ModelError("This model's tokenizer has no mask token, so nothing can be hidden; choose another model.")
    return mask


def plain_ids(model: Model) -> Tensor:
    """All ids but those of special tokens, (V,)."""
    tokenizer = need_tokenizer(model)
    plain = torch.ones(tokenizer.vocab, dtype=torch.bool)
    plain[list(tokenizer.special.values())] = False
    return plain.nonzero().squeeze(1)


Found = tuple[np.ndarray, np.ndarray]  # the ids of a text, and where its units end


def _encoded(examples: Sequence[Example], tokenizer: Tokenizer, ends: Ends, *, own: bool) -> Iterator[Found]:
    """Each text; a line that is a text of its own ends without its newline."""
    lines = [example["text"] for example in examples]
    lines = [line.rstrip("\n") for line in lines] if own else lines
    for line, found in zip(lines, tokenizer.encode_each(lines, special=False), strict=True):
        yield np.array(found.ids, np.int32), ends(line, found)


def _joined(texts: Iterator[Found]) -> Iterator[Found]:
    found = list(texts)
    if found:
        yield np.concatenate([ids for ids, _ in found]), np.concatenate([ends for _, ends in found])


def _framing(
    tokenizer: Tokenizer, limit: int, skip: Sequence[int]
) -> tuple[int, Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, Marks]]]:
    """How many tokens of a text a row has room for, and what makes a row of so many and of where units end."""
    before, after = framing(tokenizer)
    room = limit - len(before) - len(after)
    if room < 1:
        raise UsageError(f"A row of {limit} tokens has no room for a text; raise task.length.")

    def frame(ids: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, Marks]:
        units = np.cumsum(ends) - ends  # how many have ended before
        units[np.isin(ids, skip)] = NONE
        around = [np.full(len(side), NONE) for side in (before, after)]
        tokens = np.concatenate([before, ids, after]).astype(np.int32)
        return tokens, Marks(np.concatenate([around[0], units, around[1]]).astype(np.int32))

    return room, frame


def _beside(texts: Sequence[tuple[np.ndarray, Marks]]) -> tuple[np.ndarray, Marks]:
    """Several texts in one row; units go on counting."""
    units, count = [], 0
    for _, marks in texts:
        units.append(np.where(marks.units == NONE, NONE, marks.units + count))
        count += int(marks.units.max()) + 1
    parts = np.repeat(np.arange(len(texts)), [len(ids) for ids, _ in texts])
    return np.concatenate([ids for ids, _ in texts]), Marks(np.concatenate(units), parts)
