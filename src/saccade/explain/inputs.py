"""What a model is asked to look at: a text, two texts, a picture, a record or a batch, made into one row with names."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image as Pillow

from saccade.data import Batch, Example, Image, Points, Text
from saccade.errors import UsageError
from saccade.explain.axis import Axis, Token, cells, numbered, read_axis
from saccade.models.capabilities import Generates, Modality
from saccade.models.load import load
from saccade.models.model import Model
from saccade.models.vit import ViT
from saccade.parts.position import Grid
from saccade.parts.stack import Stack
from saccade.tasks.label import picture_shape
from saccade.tasks.opening import open_run, task_for
from saccade.tasks.run_settings import is_run
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
        where = model if isinstance(model, str) else Path(model)
        return open_run(where) if is_run(where) else opened(load(where))
    raise UsageError(f"A model or the path of a run is needed; got {type(model).__name__}.")


TEXT_ROLES = ("first", "second", "text", "source")  # of a record that asks nothing of its task, or of a bare encoder


def ask(task: Task | None, model: Model, input: Input) -> Asked:
    """Make one row of whatever came."""
    if isinstance(input, Batch):
        return of_batch(task, model, input)
    values = _by_role(task, model, input)
    if task is not None:
        task = task.suited_to(values) or task  # which then has nothing to answer
    if model.capabilities.input is Modality.IMAGE and "image" in values:
        return _of_picture(task, model, values)
    if model.capabilities.input is Modality.POINTS and task is not None:
        item = task.items([Example(values)], model)[0]
        return Asked(model, task, task.batch([item]), numbered("points", 1))
    return _of_text(task, model, values)


def _by_role(task: Task | None, model: Model, input: Any) -> dict[str, Any]:
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
    texts = (first,) if second is None else (first, second)
    if task is None:
        return {"text": first} if second is None else {"first": first, "second": second}
    return {"text": first} if task.takes_two_texts and second is None else task.name_texts(*texts)


def _plain_picture(picture: Any) -> Picture:
    if isinstance(picture, Pillow.Image):
        return np.asarray(picture.convert("L" if picture.mode in ("1", "L") else "RGB"))
    if isinstance(picture, str | os.PathLike | bytes | np.ndarray):
        return os.fspath(picture) if isinstance(picture, os.PathLike) else picture
    raise UsageError(f"A picture is a file, its bytes, an array or an image of Pillow; got {type(picture).__name__}.")


def _of_picture(task: Task | None, model: Model, values: Mapping[str, Any]) -> Asked:
    seen = pixels(values["image"], picture_shape(model))  # (channels, rows, columns)
    source = Image(torch.from_numpy(seen.copy())[None].float().div_(127.5).sub_(1.0))
    row = Item(Example({"image": values["image"]}), seen)
    target = None
    if "caption" in values:
        target = tuple(need_tokenizer(model).target.encode(values["caption"]).ids)
    read = picture_axis(model, source)
    return Asked(model, task, Batch(source, rows=[row]), read, (), target, seen.transpose(1, 2, 0))


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
    tokenizer, capabilities = need_tokenizer(model), model.capabilities
    if "words" in values:
        texts: tuple[str, ...] = (" ".join(values["words"]),)
    else:
        texts = () if task is None else task.read_texts(values)
        texts = texts or tuple(values[name] for name in TEXT_ROLES if isinstance(values.get(name), str))
    if not texts:
        raise UsageError(f"{model.family.name} reads text, and the record has {', '.join(values) or 'nothing'}.")
    special = capabilities.generates is not Generates.CONTINUATION
    found = tokenizer.encode(*texts[:2], special=special)
    question = None if task is None else task.parse_input({k: v for k, v in values.items() if k != "target"})
    item = None if task is None or question is None else task.items([question], model)[0]
    limit = len(item.source) if item is not None else min(model.limit or len(found), len(found))
    unread = max(0, len(found) - limit)
    found = found.truncate(limit)
    if item is not None and item.source.tolist() == found.ids and task is not None:
        batch = task.batch([item])
    else:
        segments = None if capabilities.autoregressive else [found.segments]
        batch = Batch(Text.of([found.ids], segments=segments), rows=[] if item is None else [item])
    target = None
    if capabilities.autoregressive and isinstance(values.get("target"), str):
        target = tuple(tokenizer.target.encode(values["target"], special=not capabilities.continues).ids)
    return Asked(model, task, batch, read_axis(tokenizer, found, texts), texts, target, unread=unread)


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
