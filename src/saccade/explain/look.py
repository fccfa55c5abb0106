"""`saccade.look(model, input)`: one call for every model, from a text or a picture to everything that looked at it.

    looks = saccade.look("runs/reviews", "What a lovely film.")
    looks = saccade.look(model, ("the cat sat", "le chat était assis"))        # what it would look at in writing this
    looks.pick("across", layers=[-1]).to_words()[0].weights                    # (heads, written, read)

Weights are computed beside the fused kernels, whose answer stays as it is. A writer first writes, in any way that `Decoding`
knows, and is then watched while it reads what it wrote.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch

from saccade.attention.watch import Everything, Pooled, Reducer, watch, watchable
from saccade.data import Text
from saccade.decoding.settings import Decoding
from saccade.errors import UsageError
from saccade.explain.axis import Axis
from saccade.explain.inputs import Asked, Input, ask, opened
from saccade.explain.looks import ATTENTION, Looks
from saccade.explain.naming import Wanted, named
from saccade.explain.places import Place, Sides, places
from saccade.explain.writing import Written, room, write
from saccade.models.model import Model
from saccade.tasks.answering import check_answers
from saccade.tasks.opening import task_for

MOST = 2**23  # weights of one head over all layers that are kept as they are; beyond, a pooled picture of each map
SIDE = 256  # of such a picture
NO_HEAD = "the model has no output head, so it only encodes what it reads"


def look(
    model: Model | str | os.PathLike[str],
    input: Input,
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
    reduce: Reducer | None = None,
    decoding: Decoding = Decoding(),  # noqa: B008 - frozen
) -> Looks:
    """Where a model looks for one input, and what it answers.

    `model` is a Model or the path of a run. `input` is a text, two texts (a pair, or for a writer what it reads and what it is
    to write), a picture (file, array or Pillow image), a record as its task takes it, or a Batch, of which the first row
    counts. `layers` (-1 is the last), `heads` and `rows` of queries choose; `reduce` keeps less of each map (Top, Pooled), and
    where nobody says, long inputs are pooled to 256 x 256 points.
    """
    return look_at(ask(*opened(model), input), Wanted(layers, heads, rows, reduce), decoding)


def look_at(asked: Asked, wanted: Wanted = Wanted(), decoding: Decoding = Decoding()) -> Looks:  # noqa: B008 - frozen
    """The same for a row that is ready."""
    with still(asked.model):
        written = write(asked, decoding) if asked.writes else None
        sides = _sides(asked, written)
        chosen = _chosen(places(asked.model, sides), wanted.layers)
        _check_rows(chosen, wanted.rows)
        reduce = wanted.reduce or _reducer(chosen, wanted.rows)
        with ExitStack() as stack:
            looks = [stack.enter_context(each) for each in _watching(asked.model, chosen, wanted, reduce)]
            answer = _pass(asked, written, chosen)
    seen = named([one for some in looks for one in some], chosen, wanted, sides.marked)
    texts = asked.texts if written is None or not written.text else _texts(asked, written)
    text = "" if written is None else written.text
    picture = asked.picture if written is None or written.picture is None else written.picture
    return Looks(
        asked.model.family.name,
        tuple(seen),
        texts,
        answer or text,
        text,
        picture,
        no_answer="" if answer or text else _no_answer(asked, written),
        cut=None if written is None else written.cut,
        room=None if written is None else room(asked),
        unread=asked.unread,
    )


def _no_answer(asked: Asked, written: Written | None) -> str:
    """Why a model says nothing, in words that can stand where an answer would."""
    if written is not None:
        paints = not asked.model.capabilities.generates_text
        return "it paints a picture instead of writing" if paints else "the text that it wrote is empty"
    task = asked.task or task_for(asked.model)
    return NO_HEAD if task is None else task.no_look_answer


@contextmanager
def still(model: Model) -> Iterator[None]:
    """The model in evaluation and without gradients, and afterwards as it was."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def _texts(asked: Asked, written: Written) -> tuple[str, ...]:
    """What was read and what was written; of a text that is continued, the whole."""
    if not asked.alone:
        return (*asked.texts, written.text)
    return (*asked.texts[:-1], "".join([*asked.texts[-1:], written.text]))


def _sides(asked: Asked, written: Written | None) -> Sides:
    source = asked.batch.source
    marked = source.marked if isinstance(source, Text) else None
    at = (0,) if marked is None else tuple(marked[0].nonzero().flatten().tolist())
    if written is None:
        return Sides(asked.read, marked=at)
    if asked.alone:
        given = Axis("given", (*asked.read.tokens, *written.begin.tokens, *written.axis.tokens), written.axis.grid)
    else:
        given = Axis("given", (*written.begin.tokens, *written.axis.tokens[:-1]))
    return Sides(asked.read, given, written.axis, at)


def _chosen(found: list[Place], layers: Sequence[int] | None) -> list[Place]:
    """The modules of the layers that are meant; of each side and kind, -1 is the last."""
    if layers is None:
        return found
    last: dict[tuple[str, str], int] = {}
    for place in found:
        last[place.kind, place.side] = max(place.layer, last.get((place.kind, place.side), 0))
    count = 1 + max(last.values(), default=0)
    beyond = [layer for layer in layers if not -count <= layer < count]
    if beyond:
        raise UsageError(f"There are {count} layers, numbered from 0; asked for {beyond[0]}.")
    meant = lambda place: {layer + 1 + last[place.kind, place.side] if layer < 0 else layer for layer in layers}
    return [place for place in found if place.layer in meant(place)]


def _check_rows(chosen: list[Place], rows: Sequence[int] | None) -> None:
    """Maps have rows of their own number, so some may lack a row; one that none has is a mistake."""
    most = max((len(place.query) for place in chosen), default=0)
    if rows is not None and most and (not rows or min(rows) < 0 or min(rows) >= most):
        asked = f"asked for {min(rows)}" if rows else "none was asked for"
        raise UsageError(f"There are {most} rows, numbered from 0; {asked}.")


def _reducer(chosen: list[Place], rows: Sequence[int] | None) -> Reducer:
    """What is kept where nobody says: everything, unless the rows that are looked at make too much of it."""
    size = 0
    for place in chosen:
        if place.kind in ATTENTION:
            asked = len(place.query) if rows is None or not place.stacked else min(len(rows), len(place.query))
            size += asked * len(place.key)
    return Pooled(SIDE) if size > MOST else Everything()


def _watching(model: Model, chosen: list[Place], wanted: Wanted, reduce: Reducer) -> Iterator[Any]:
    """A watch for each lot of modules that are asked for the same rows and in the same way."""
    lots: dict[tuple[tuple[int, ...] | None, bool], list[str]] = {}
    for place in chosen:
        rows = None
        if wanted.rows is not None and place.stacked:
            rows = tuple(row for row in wanted.rows if row < len(place.query))
        lots.setdefault((rows, place.kind in ATTENTION), []).append(place.name)
    for (rows, reduced), names in lots.items():
        heads = wanted.heads if reduced else None
        yield watch(model, names, heads=heads, rows=rows, reduce=reduce if reduced else Everything())


class _Enough(Exception):
    """All that was to be seen has been seen."""


@contextmanager
def _no_further(model: Model, chosen: Sequence[Place]) -> Iterator[None]:
    """End a pass whose answer nobody waits for after the last module that is looked at, where each is asked once."""

    def stop(*given: object) -> None:
        raise _Enough

    known = watchable(model)
    last = known.get(chosen[-1].name) if chosen and all(place.stacked for place in chosen) else None
    compiled = any(hasattr(part, "_orig_mod") for part in model.modules())  # a graph is not left halfway
    placed = None if last is None or compiled else last.register_forward_hook(stop)
    try:
        with suppress(_Enough):
            yield
    finally:
        if placed is not None:
            placed.remove()


def _pass(asked: Asked, written: Written | None, chosen: Sequence[Place]) -> str:
    """One pass over all there is, and the answer of a reader."""
    model, task = asked.model, asked.task
    batch = asked.batch.to(next(model.parameters()).device)
    if written is None:
        if task is None or not batch.rows or not task.answers_questions:
            with _no_further(model, chosen):
                model(batch)
            return ""
        item, answers = batch.rows[0], task.answer(model, batch)
        check_answers(answers)
        return task.told(task.shown(task.gathered(answers, [item])[0], item.example))
    body = model.autoregressive
    state, first = body.start(batch)
    ids = written.ids if asked.alone else written.ids[:-1]
    new = torch.tensor([ids], dtype=torch.long, device=first.tokens.device)
    body.think(Text(torch.cat([first.tokens, new], dim=1)), state)
    return ""
