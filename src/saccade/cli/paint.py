"""`saccade paint RUN TEXT...`: a picture for each text, written as a PNG file."""

import base64
import json as json_text
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import tyro


def main(
    run: tyro.conf.Positional[str],
    text: tyro.conf.Positional[tuple[str, ...]] = (),
    *,
    out: Path = Path("pictures"),
    data: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE")] = (),
    columns: str = "",
    seed: int | None = None,
    temperature: float | None = None,
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """A picture of each text, one PNG file each, named by the text.

    saccade paint runs/world "a red circle left of a blue square" --out pictures

    Args:
        run: A run of the task paint.
        text: Texts; none, and no --data: one text a line from standard input.
        out: The directory for the pictures.
        data: Files to read the texts from, in any format that training reads.
        columns: Which column is what: caption=description.
        seed: Another seed, another picture of the same text.
        temperature: How bold the draws are; 0: the likeliest code each time.
        json: One JSON object a line.
    """
    from saccade.cli.running import guarded

    changed = {"seed": seed, "temperature": temperature}
    given = {name: value for name, value in changed.items() if value is not None}
    return guarded("paint", lambda: _paint(run, text, data, columns, out, given, json))


def _paint(
    run: str,
    texts: Sequence[str],
    data: Sequence[str],
    columns: str,
    out: Path,
    given: dict[str, Any],
    as_json: bool,
) -> int:
    from saccade.cli.asking import examples_of, opened
    from saccade.tasks.answering import answers

    task, model = opened(run, "paint")
    task = type(task)(replace(task.config, **given))
    found, asked = answers(task, model, examples_of(task, texts, data, columns))
    out.mkdir(parents=True, exist_ok=True)
    taken = {path.stem for path in out.glob("*.png")}  # nothing that is there is painted over
    for answer, example in zip(found, asked, strict=True):
        shown = task.shown(answer, example)
        path = out / f"{free_name(shown['text'], taken)}.png"
        path.write_bytes(base64.b64decode(shown["png"]))
        told = {"text": shown["text"], "file": str(path)}
        print(json_text.dumps(told, ensure_ascii=False) if as_json else path, flush=True)
    return 0


def free_name(text: str, taken: set[str]) -> str:
    """A file name of the text's own words that no other picture has.

    >>> taken = set()
    >>> free_name("A red circle, above: ../x", taken), free_name("a red circle above x", taken), free_name("…", taken)
    ('a-red-circle-above-x', 'a-red-circle-above-x-2', 'picture')
    """
    plain = "-".join(re.findall(r"\w+", text.lower()))[:80].strip("-") or "picture"
    name, number = plain, 1
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    taken.add(name)
    return name
