"""The input of `look`: a text, a pair, an image, a recording, a record or a batch, as a batch of one row with token names."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image as Pillow
from torch import nn

from saccade.audio.spectrogram import draw_spectrogram, load_spectrogram
from saccade.data import Audio, Batch, Example, Features, Image, Text
from saccade.errors import UsageError
from saccade.explain.axis import Axis, Token, make_cell_axis, make_input_axis, make_numbered_axis, make_time_axis
from saccade.models.capabilities import Generates, Modality
from saccade.models.families.vit import ViT
from saccade.models.model import Model
from saccade.parts.position import LearnedGrid
from saccade.parts.stack import Stack
from saccade.tasks.base import Item, Task, require_tokenizer
from saccade.tasks.label import image_shape
from saccade.tasks.runs.run import Run, task_from_model
from saccade.tasks.speech.spectrograms import mel_config
from saccade.vision.pixels import load_pixels

ImageInput = str | os.PathLike[str] | bytes | np.ndarray
RawInput = str | os.PathLike[str] | tuple[Any, str] | Pillow.Image | np.ndarray | Batch | Mapping[str, Any]


@dataclass(frozen=True)
class LookInput:
    """A batch of one row, the axis that names its tokens, and the target ids if they are given."""

    model: Model
    task: Task | None
    batch: Batch
    input_axis: Axis
    texts: tuple[str, ...] = ()
    target: tuple[int, ...] | None = None
    image: np.ndarray | None = None
    truncated_input_tokens: int = 0  # tokens cut off at the end of the text, which is longer than the model can read

    @property
    def is_autoregressive(self) -> bool:
        return self.model.capabilities.is_autoregressive

    @property
    def continues_input(self) -> bool:
        """Whether the model is decoder-only, so that its output continues its input."""
        return self.model.capabilities.is_decoder_only


def open_with_task(model: nn.Module | str | os.PathLike[str]) -> tuple[Task | None, Model]:
    """Load a run with its task, or infer the task of a model; a bare encoder has none."""
    if isinstance(model, Model):
        return task_from_model(model), model
    if isinstance(model, (str, os.PathLike)):
        run = Run(model if isinstance(model, str) else Path(model))
        return run.find_task(), run.model
    raise UsageError(f"Expected a model or the path of a run; got {type(model).__name__}.")


TEXT_ROLES = ("first", "second", "text", "source")  # fields with the texts of a record without a task


def make_input(task: Task | None, model: Model, input: RawInput) -> LookInput:
    """Convert any input that `look` takes to a batch of one row."""
    if isinstance(input, Batch):
        return make_input_from_batch(task, model, input)
    values = _to_roles(task, model, input)
    if task is not None:
        task = task.task_for_record(values) or task
    if model.capabilities.input is Modality.IMAGE and "image" in values:
        return _make_image_input(task, model, values)
    if model.capabilities.input is Modality.AUDIO and "audio" in values:
        return _make_audio_input(task, model, values)
    if model.capabilities.input is Modality.FEATURES and task is not None:
        item = task.encode([Example(values)], model)[0]
        return LookInput(model, task, task.batch([item]), make_numbered_axis("points", 1))
    return _make_text_input(task, model, values)


def _to_roles(task: Task | None, model: Model, input: Any) -> dict[str, Any]:
    """Convert a text, a pair, an image or a record to a record by role."""
    if isinstance(input, Mapping):
        return {name: _to_image_input(value) if name == "image" else value for name, value in input.items()}
    first, second = input if isinstance(input, tuple) and len(input) == 2 else (input, None)
    if model.capabilities.input is Modality.IMAGE:
        return {"image": _to_image_input(first)} | ({"caption": second} if second is not None else {})
    if model.capabilities.input is Modality.AUDIO:
        recording = os.fspath(first) if isinstance(first, os.PathLike) else first
        return {"audio": recording} | ({"text": second} if second is not None else {})
    if not isinstance(first, str) or not isinstance(second, str | None):
        raise UsageError(
            f"{model.family.name} reads text: a string, two strings, a record or a Batch; got {type(input).__name__}."
        )
    texts = (first,) if second is None else (first, second)
    if task is None:
        return {"text": first} if second is None else {"first": first, "second": second}
    return {"text": first} if task.takes_two_texts and second is None else task.make_record(*texts)


def _to_image_input(image: Any) -> ImageInput:
    if isinstance(image, Pillow.Image):
        return np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))
    if isinstance(image, str | os.PathLike | bytes | np.ndarray):
        return os.fspath(image) if isinstance(image, os.PathLike) else image
    raise UsageError(f"An image is a file, its bytes, an array or a Pillow image; got {type(image).__name__}.")


def _make_image_input(task: Task | None, model: Model, values: Mapping[str, Any]) -> LookInput:
    pixels = load_pixels(values["image"], image_shape(model))  # (channels, rows, columns)
    source = Image(torch.from_numpy(pixels.copy())[None].float().div_(127.5).sub_(1.0))
    item = Item(Example({"image": values["image"]}), pixels)
    target = None
    if "caption" in values:
        target = tuple(require_tokenizer(model).target.encode(values["caption"]).ids)
    axis = make_image_axis(model, source)
    return LookInput(model, task, Batch(source, items=[item]), axis, (), target, pixels.transpose(1, 2, 0))


def _make_audio_input(task: Task | None, model: Model, values: Mapping[str, Any]) -> LookInput:
    frames = load_spectrogram(values["audio"], mel_config(model))
    source = Audio(torch.from_numpy(frames)[None])
    target = None
    if "text" in values and model.capabilities.is_autoregressive:
        target = tuple(require_tokenizer(model).target.encode(values["text"]).ids)
    return _look_at_audio(task, model, source, [Item(Example({"audio": values["audio"]}), frames, gold=0)], target)


def _look_at_audio(
    task: Task | None, model: Model, source: Audio, items: list[Item], target: tuple[int, ...] | None
) -> LookInput:
    """A recording with the times that its vectors stand for, and its spectrogram as an image."""
    seconds = model.capabilities.stride / mel_config(model).frames_per_second
    axis = make_time_axis(-(-source.frames.size(1) // model.capabilities.stride), seconds)
    image = draw_spectrogram(source.frames[0].numpy())
    return LookInput(model, task, Batch(source, items=items), axis, target=target, image=image)


def make_image_axis(model: Model, source: Image) -> Axis:
    """The cells (patches) into which a model divides an image."""
    rows, columns = source.pixels.shape[-2:]
    if isinstance(model.body, ViT):
        grid = model.body.position_grid()
        return make_cell_axis(grid.rows, grid.columns, ["[image]"])
    grids = [m.position for m in model.body.modules() if isinstance(m, Stack) and isinstance(m.position, LearnedGrid)]
    if grids:
        return make_cell_axis(grids[0].rows, grids[0].columns)
    side = getattr(model.body, "grid_size", None)  # a captioner without position embeddings
    return make_cell_axis(side, side) if isinstance(side, int) else make_cell_axis(rows, columns)


def _make_text_input(task: Task | None, model: Model, values: Mapping[str, Any]) -> LookInput:
    tokenizer, capabilities = require_tokenizer(model), model.capabilities
    if "words" in values:
        texts: tuple[str, ...] = (" ".join(values["words"]),)
    else:
        texts = () if task is None else task.get_input_texts(values)
        texts = texts or tuple(values[name] for name in TEXT_ROLES if isinstance(values.get(name), str))
    if not texts:
        raise UsageError(
            f"{model.family.name} reads text, but the record has no text field, only {', '.join(values) or 'nothing'}."
        )
    add_special_tokens = capabilities.generates is not Generates.CONTINUATION
    encoding = tokenizer.encode(*texts[:2], add_special_tokens=add_special_tokens)
    example = None if task is None else task.parse_input({k: v for k, v in values.items() if k != "target"})
    item = None if task is None or example is None else task.encode([example], model)[0]
    limit = len(item.source) if item is not None else min(model.max_positions or len(encoding), len(encoding))
    truncated = max(0, len(encoding) - limit)
    encoding = encoding.truncate(limit)
    if item is not None and item.source.tolist() == encoding.ids and task is not None:
        batch = task.batch([item])
    else:
        segment_ids = None if capabilities.is_autoregressive else [encoding.segment_ids]
        batch = Batch(Text.pad([encoding.ids], segment_ids=segment_ids), items=[] if item is None else [item])
    target = None
    if capabilities.is_autoregressive and isinstance(values.get("target"), str):
        target = tuple(
            tokenizer.target.encode(values["target"], add_special_tokens=not capabilities.is_decoder_only).ids
        )
    axis = make_input_axis(tokenizer, encoding, texts)
    return LookInput(model, task, batch, axis, texts, target, truncated_input_tokens=truncated)


def make_input_from_batch(task: Task | None, model: Model, batch: Batch, row: int = 0) -> LookInput:
    """Take one row of a batch, without its padding."""
    target = None if batch.target is None else tuple(strip_padding(batch.target, row))
    items = batch.items[row : row + 1]
    source = batch.source.row(row)
    if isinstance(source, Image):
        image = source.pixels[0].add(1).mul(127.5).clamp(0, 255).byte().permute(1, 2, 0).cpu().numpy()
        axis = make_image_axis(model, source)
        return LookInput(model, task, Batch(source, items=items), axis, target=target, image=image)
    if isinstance(source, Audio):
        return _look_at_audio(task, model, source, items, target)
    if isinstance(source, Features):
        return LookInput(model, task, Batch(source, items=items), make_numbered_axis("points", 1))
    axis, texts = _name_ids(model, source.tokens[0].tolist())
    return LookInput(model, task, Batch(source, items=items), axis, texts, target=target)


def strip_padding(text: Text, row: int) -> list[int]:
    """The token ids of one row, without padding."""
    return text.tokens[row].tolist() if text.keep is None else text.tokens[row, text.keep[row]].tolist()


def _name_ids(model: Model, ids: list[int]) -> tuple[Axis, tuple[str, ...]]:
    """Name token ids whose text is not known: by decoding them, else by the names in the vocabulary, else by number."""
    if model.tokenizer is None:
        return Axis("input", tuple(Token(f"{id}") for id in ids)), ()
    tokenizer = model.tokenizer
    text = tokenizer.decode(ids)
    encoding = tokenizer.encode(text)
    if encoding.ids != ids:
        encoding = tokenizer.encode(text, add_special_tokens=False)
    if encoding.ids == ids:
        return make_input_axis(tokenizer, encoding, [text]), (text,)
    return Axis("input", tuple(Token(tokenizer.id_to_token(id)) for id in ids)), ()
