"""What a writer writes before it is watched: what it was told to, or what it finds best in the way that is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.data import Text
from saccade.decoding.loop import generate
from saccade.decoding.settings import Decoding
from saccade.decoding.ways import Ways
from saccade.errors import UsageError
from saccade.explain.axis import Axis, Token, cells, written_axis
from saccade.explain.inputs import Asked
from saccade.models.painter import Painter
from saccade.tasks.painting import need_painter
from saccade.tasks.task import need_tokenizer

BEFORE = 8  # tokens that tell whether a space stands between what was read and what is written
LENGTH = 24  # tokens that a text is continued by, where nobody says


@dataclass(frozen=True)
class Written:
    """Ids with their names, what stands before the first of them and was not read, and the text that they make."""

    ids: list[int]
    axis: Axis
    begin: Axis
    text: str
    picture: np.ndarray | None = None  # what was painted, (rows, columns, channels)
    cut: int | None = None  # the number of tokens after which it was stopped, if it did not end by itself


def write(asked: Asked, decoding: Decoding) -> Written:
    """Write, if nothing was given to be written, and name what was written."""
    ids, ended = (list(asked.target), True) if asked.target is not None else _found(asked, decoding)
    if not asked.model.capabilities.generates_text:
        body = need_painter(asked.model)
        whole = len(ids) == body.cells
        axis = cells(body.side, body.side) if whole else Axis("cells", tuple(Token(f"{i}") for i in range(len(ids))))
        return Written(ids, axis, Axis("given", (Token("[picture]"),)), "", _painted(body, ids) if whole else None)
    if asked.model.tokenizer is None:
        axis, text = Axis("written", tuple(Token(f"{id}") for id in ids)), ""
    else:
        target = asked.model.tokenizer.target
        axis, text = written_axis(target, ids, *_after(asked))
    begin = Axis("given", () if asked.alone else (_begin(asked),))
    return Written(ids, axis, begin, text, cut=None if ended else len(ids))


def room(asked: Asked) -> int | None:
    """The most tokens that can be written after what was read; None where the model has no limit."""
    source = asked.batch.source
    read = source.tokens.size(1) if isinstance(source, Text) and asked.alone else 0
    return None if asked.model.limit is None else asked.model.limit - read


def _painted(body: Painter, ids: list[int]) -> np.ndarray:
    return body.picture([ids])[0].clamp(0, 1).mul(255).byte().permute(1, 2, 0).cpu().numpy()


def _after(asked: Asked) -> tuple[int, tuple[Sequence[int], int]]:
    """The number of the text that is written, and what of it stands there already."""
    source = asked.batch.source
    if not (asked.alone and asked.texts and isinstance(source, Text)):
        return len(asked.texts), ((), 0)
    return 0, (source.tokens[0, -BEFORE:].tolist(), len(asked.texts[0]))


def _begin(asked: Asked) -> Token:
    """The token that a target begins with, which nobody wrote."""
    batch = asked.batch.to(next(asked.model.parameters()).device)
    first = int(asked.model.start(batch)[1].tokens[0, 0])
    tokenizer = None if asked.model.tokenizer is None else asked.model.tokenizer.target
    return Token("[begin]" if tokenizer is None or first >= tokenizer.vocab else tokenizer.token(first))


def _found(asked: Asked, decoding: Decoding) -> tuple[list[int], bool]:
    """The best that the model writes, with the token that ended it, and whether it ended by itself."""
    model, batch = asked.model, asked.batch.to(next(asked.model.parameters()).device)
    if not model.capabilities.generates_text:
        return generate(model, batch, stop=None, limit=need_painter(model).cells)[0], True
    tokenizer = need_tokenizer(model).target
    ways = Ways(decoding, model, tokenizer)
    if asked.alone or asked.task is None or not batch.rows:
        most = room(asked)
        limit = min(decoding.length or LENGTH, decoding.length or LENGTH if most is None else most)
        if limit < 1:
            raise UsageError(
                f"The text fills the {model.limit} tokens that the model reads; shorten it to see it go on."
            )
        best = ways.write(batch, limit=limit)[0][0]
    else:
        best = asked.task.written(ways, batch)[0][0]
    ended = [] if tokenizer.end is None or not best.ended or asked.alone else [tokenizer.end]
    return [*best.tokens, *ended] or [tokenizer.end or 0], best.ended
