"""What a model is asked to look at: a text, two texts, a picture, a record or a batch, made into one row with names."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image as Pillow

from saccade.data import Batch, Example, Image, Points, Text
from saccade.errors import UsageError
from saccade.explain.axis import Axis, Token, cells, numbered, read_axis
from saccade.models.capabilities import Modality
from saccade.models.load import load
from saccade.models.model import Model
from saccade.models.vit import ViT
from saccade.parts.position import Grid
from saccade.parts.stack import Stack
from saccade.tasks.caption import Caption
from saccade.tasks.label import Label, picture_shape
from saccade.tasks.language import Language
from saccade.tasks.opening import open_run, task_for
from saccade.tasks.paint import Paint
from saccade.tasks.pair import Pair
from saccade.tasks.pretrain import Pretrain
from saccade.tasks.regress import Regress
from saccade.tasks.run_settings import is_run
from saccade.tasks.tag import Tag, split_words
from saccade.tasks.task import Item, Task, need_tokenizer
from saccade.vision.pixels import pixels

Picture = str | os.PathLike[str] | bytes | np.ndarray
Input = str | os.PathLike[str] | tuple[Any, str] | Pillow.Image | np.ndarray | Batch | Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    """One row to read, the names of what is read, and what is to be written where that is known beforehand."""

    model: Model
    task: Task | None
    batch: Batch
    read: Axis
    texts: tuple[str, ...] = ()
    target: tuple[int, ...] | None = None
    picture: np.ndarray | None = None
    unread: int = 0  # tokens at the end of the text that did not fit into what the model reads

    @property
    def writes(self) -> bool:
        return self.model.capabilities.autoregressive

    @property
    def alone(self) -> bool:
        """Whether what is written continues what is read, in one stack."""
        return self.model.capabilities.continues


def opened(model: Model | str | os.PathLike[str]) -> tuple[Task | None, Model]:
    """A run with its task, or a model and the task that it looks made for; a bare reader has none."""
    if isinstance(model, Model):
        return task_for(model), model
    if isinstance(model, (str, os.PathLike)):
        if is_run(model):
            return open_run(model if isinstance(model, str) else Path(model))
        return opened(load(model if isinstance(model, str) else Path(model)))
    raise UsageError(f"A model or the path of a run is needed; got {type(model).__name__}.")


def ask(task: Task | None, model: Model, input: Input) -> Asked:
    """Make one row of whatever came."""
    if isinstance(input, Batch):
        return of_batch(task, model, input)
    values = _values(task, model, input)
    if isinstance(task, Pair) and "second" not in values and "text" in values:
        task = None  # one text for a model of pairs: it can be read, and there is nothing to answer
    if isinstance(task, Label) and "second" in values:
        task = Pair(labels=model.labels)
    if "image" in values and model.capabilities.input is Modality.IMAGE:
        return _of_picture(task, model, values)
    if "x" in values:
        assert isinstance(task, Regress)
        item = task.items([Example(values)], model)[0]
        return Asked(model, task, task.batch([item]), numbered("points", 1))
    return _of_text(task, model, values)


def _values(task: Task | None, model: Model, input: Any) -> dict[str, Any]:
    """A record by role, from what a person would write."""
    if isinstance(input, Mapping):
        return {name: _plain_picture(value) if name == "image" else value for name, value in input.items()}
    first, second = input if isinstance(input, tuple) and len(input) == 2 else (input, None)
    if model.capabilities.input is Modality.IMAGE:
        return {"image": _plain_picture(first)} | ({"caption": second} if second is not None else {})
    if not isinstance(first, str) or not isinstance(second, str | None):
        raise UsageError(
            f"{model.family.name} reads text: a string, two strings, a record or a Batch; got {type(input).__name__}."
        )
    names = _names(task, model)
    if second is None and len(names) > 1 and not model.capabilities.autoregressive:
        return {"text": first}
    return dict(zip(names, (first, second) if second is not None else (first,), strict=False))


def _names(task: Task | None, model: Model) -> tuple[str, ...]:
    """The roles of a first and a second text."""
    if model.capabilities.autoregressive:
        return ("caption",) if isinstance(task, Paint) else ("source", "target")
    roles = [] if task is None else [role.name for role in task.roles([]) if role.name in ("context", "question")]
    return tuple(roles) if roles else ("first", "second") if not isinstance(task, Tag) else ("text",)


def _plain_picture(picture: Any) -> Picture:
    if isinstance(picture, Pillow.Image):
        return np.asarray(picture.convert("L" if picture.mode in ("1", "L") else "RGB"))
    if isinstance(picture, str | os.PathLike | bytes | np.ndarray):
        return os.fspath(picture) if isinstance(picture, os.PathLike) else picture
    raise UsageError(f"A picture is a file, its bytes, an array or an image of Pillow; got {type(picture).__name__}.")


def _of_picture(task: Task | None, model: Model, values: Mapping[str, Any]) -> Asked:
    seen = pixels(values["image"], picture_shape(model))  # (channels, rows, columns)
    source = Image(torch.from_numpy(seen.copy())[None].float().div_(127.5).sub_(1.0))
    row = Item(Example({"image": values["image"]}), seen, gold=0 if isinstance(task, Caption) else None)
    read, target, texts = picture_axis(model, source), None, ()
    if "caption" in values:
        target = tuple(need_tokenizer(model).target.encode(values["caption"]).ids)
    return Asked(model, task, Batch(source, rows=[row]), read, texts, target, seen.transpose(1, 2, 0))


def picture_axis(model: Model, source: Image) -> Axis:
    """The cells that a model divides a picture into."""
    rows, columns = source.pixels.shape[-2:]
    if isinstance(model.body, ViT):
        grid = model.body.grid()
        return cells(grid.rows, grid.columns, ["[picture]"])
    grids = [m.position for m in model.body.modules() if isinstance(m, Stack) and isinstance(m.position, Grid)]
    if grids:
        return cells(grids[0].rows, grids[0].columns)
    side = getattr(model.body, "side", None)  # of a captioner that has no positions
    return cells(side, side) if isinstance(side, int) else cells(rows, columns)


def _of_text(task: Task | None, model: Model, values: Mapping[str, Any]) -> Asked:
    tokenizer = need_tokenizer(model)
    if "words" in values:
        texts: tuple[str, ...] = (" ".join(values["words"]),)
    else:
        known = ("question", "context") if "question" in values else ("first", "second", "text", "source", "caption")
        texts = tuple(values[name] for name in known if isinstance(values.get(name), str))
    if not texts:
        raise UsageError(f"{model.family.name} reads text, and the record has {', '.join(values) or 'nothing'}.")
    writes, alone = model.capabilities.autoregressive, model.capabilities.continues
    found = tokenizer.encode(*texts[:2], special=not (writes and alone) or isinstance(task, Paint))
    item = _item(task, model, values, texts)
    limit = len(item.source) if item is not None else min(model.limit or len(found), len(found))
    unread = max(0, len(found) - limit)
    found = found.truncate(limit)
    if item is not None and item.source.tolist() == found.ids and task is not None:
        batch = task.batch([item])
    else:
        segments = None if writes else [found.segments]
        batch = Batch(Text.of([found.ids], segments=segments), rows=[] if item is None else [item])
    target = None
    if writes and isinstance(values.get("target"), str):
        target = tuple(tokenizer.target.encode(values["target"], special=not alone).ids)
    return Asked(model, task, batch, read_axis(tokenizer, found, texts), texts, target, unread=unread)


def _item(task: Task | None, model: Model, values: Mapping[str, Any], texts: Sequence[str]) -> Item | None:
    """The example as its task makes it; None where a model is asked for something else than its task's."""
    if task is None or isinstance(task, Language | Pretrain):
        return None
    given = dict(values)
    if isinstance(task, Tag) and "words" not in given:
        words, offsets = split_words(texts[0])
        given = {"words": words, "offsets": offsets, "text": texts[0]}
    elif "first" in given and "second" not in given:
        given["text"] = given.pop("first")
    given.pop("target", None)
    if not all(role.name in given for role in task.roles([])[:1]):
        return None
    return task.items([Example(given)], model)[0]


def of_batch(task: Task | None, model: Model, batch: Batch, row: int = 0) -> Asked:
    """One row of a batch, without its padding."""
    target = None if batch.target is None else tuple(real_ids(batch.target, row))
    rows = batch.rows[row : row + 1]
    source = batch.source
    if isinstance(source, Image):
        one = Image(source.pixels[row : row + 1])
        shown = one.pixels[0].add(1).mul(127.5).clamp(0, 255).byte().permute(1, 2, 0).cpu().numpy()
        return Asked(model, task, Batch(one, rows=rows), picture_axis(model, one), target=target, picture=shown)
    if isinstance(source, Points):
        return Asked(model, task, Batch(Points(source.values[row : row + 1]), rows=rows), numbered("points", 1))
    keep = slice(None) if source.keep is None else source.keep[row]
    beside = (None if x is None else x[row, keep][None] for x in (source.segment, source.marked, source.parts))
    text = Text(source.tokens[row, keep][None], None, *beside)
    read = _named_ids(model, text.tokens[0].tolist())
    return Asked(model, task, Batch(text, rows=rows), *read, target=target)


def real_ids(text: Text, row: int) -> list[int]:
    """The ids of one row, without padding."""
    return text.tokens[row].tolist() if text.keep is None else text.tokens[row, text.keep[row]].tolist()


def _named_ids(model: Model, ids: list[int]) -> tuple[Axis, tuple[str, ...]]:
    """Names for ids whose text is not known: that of the tokenizer, or numbers."""
    if model.tokenizer is None:
        return Axis("read", tuple(Token(f"{id}") for id in ids)), ()
    tokenizer = model.tokenizer
    text = tokenizer.decode(ids)
    found = tokenizer.encode(text)
    if found.ids != ids:
        found = tokenizer.encode(text, special=False)
    if found.ids == ids:
        return read_axis(tokenizer, found, [text]), (text,)
    return Axis("read", tuple(Token(tokenizer.token(id)) for id in ids)), ()
