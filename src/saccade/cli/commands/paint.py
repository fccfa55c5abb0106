"""`saccade paint RUN TEXT...`: text-to-image generation, one PNG file per text."""

import base64
import json as json_text
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from saccade.cli.argument_types import ColumnsFlag, FileFlag, RunArgument, TextArguments, optional_argument


def main(
    run: RunArgument,
    text: TextArguments = (),
    *,
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("images"),
    data: FileFlag = (),
    columns: ColumnsFlag = "",
    seed: Annotated[int | None, optional_argument("INT")] = None,
    temperature: Annotated[float | None, optional_argument("FLOAT")] = None,
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Text-to-image generation: one PNG file per text, named after the text.

    saccade paint runs/world "a red circle left of a blue square" --out images

    Args:
        run: A run of the task paint.
        text: Texts to paint. Default: one per line from standard input, or those of --data.
        out: Output directory of the images.
        data: Data files with texts, in any format that training reads.
        columns: Columns of the data by role: caption=description.
        seed: Random seed of sampling; another seed gives another image. Default: the seed of the run.
        temperature: Sampling temperature of the image codes; 0 is greedy decoding. Default: that of the run.
        json: Print one JSON object per line.
    """
    from saccade.cli.exit_codes import run_command

    settings = {"seed": seed, "temperature": temperature}
    overrides = {name: value for name, value in settings.items() if value is not None}
    return run_command("paint", lambda: _paint_texts(run, text, data, columns, out, overrides, json))


def _paint_texts(
    run: str,
    texts: Sequence[str],
    data: Sequence[str],
    columns: str,
    out: Path,
    overrides: dict[str, Any],
    as_json: bool,
) -> int:
    from saccade.cli.inputs import open_run_for_task, read_examples
    from saccade.tasks.interface.predictions import ImagePrediction
    from saccade.tasks.predict import predict

    opened = open_run_for_task(run, "paint")
    task, model = type(opened.task)(replace(opened.task.config, **overrides)), opened.model
    outputs, examples = predict(task, model, read_examples(task, texts, data, columns))
    out.mkdir(parents=True, exist_ok=True)
    used_names = {path.stem for path in out.glob("*.png")}  # existing images are kept
    for output, example in zip(outputs, examples, strict=True):
        image = task.to_prediction(output, example)
        assert isinstance(image, ImagePrediction)
        path = out / f"{choose_file_name(image.text, used_names)}.png"
        path.write_bytes(base64.b64decode(image.png))
        record = {"text": image.text, "file": str(path)}
        print(json_text.dumps(record, ensure_ascii=False) if as_json else path, flush=True)
    return 0


def choose_file_name(text: str, used_names: set[str]) -> str:
    """A file name from the words of a text, with a number if the name is used; adds it to `used_names`.

    >>> used = set()
    >>> [choose_file_name(text, used) for text in ("A red circle, above: ../x", "a red circle above x", "…")]
    ['a-red-circle-above-x', 'a-red-circle-above-x-2', 'image']
    """
    stem = "-".join(re.findall(r"\w+", text.lower()))[:80].strip("-") or "image"
    name, number = stem, 1
    while name in used_names:
        number += 1
        name = f"{stem}-{number}"
    used_names.add(name)
    return name
