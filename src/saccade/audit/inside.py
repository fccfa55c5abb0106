"""A picture for the card: where a model looks in one text, of which its people say which, or which we wrote."""

import base64
import re
from pathlib import Path

from saccade.audit.records import Records
from saccade.audit.render import Picture
from saccade.explain.figures import heat, save_figure, write_figure
from saccade.explain.look import look
from saccade.tasks.task import Task
from saccade.text.languages import languages

FILE = "looks.png"
CAPTION = (
    "The map that says most, the mean of its heads: a row for each token that looks, a column for each that is looked at. A "
    "weight is the share that the value of a token has in the sum at this place. It does not say how large that value is, nor "
    "that the answer depends on it."
)


def draw(records: Records, task: Task | None) -> Path | None:
    """Look at the text of a card and draw it beside the weights; None where a model reads no texts."""
    path, text = records.model / FILE, text_of(records)
    path.unlink(missing_ok=True)
    try:
        looks = (
            look(records.home, (text, text) if task is not None and task.takes_two_texts else text)
            if reads(task)
            else None
        )
    except ValueError:  # such as a model that came without a tokenizer
        return None
    if looks is None or not looks.maps:
        return None
    seen = looks.telling()
    if seen.kind not in ("self", "across"):
        return write_figure(looks, path)
    return save_figure(heat(seen.mean, seen.rows, seen.columns, f"{seen.title}, mean of its heads"), path)


def picture(records: Records) -> Picture | None:
    """What `draw` left, for both forms of the card; None where it left nothing."""
    path = records.model / FILE
    if not path.is_file():
        return None
    data = base64.b64encode(path.read_bytes()).decode()
    return Picture(FILE, f"Where it looked in: {text_of(records)}", CAPTION, f"data:image/png;base64,{data}")


def reads(task: Task | None) -> bool:
    """Whether a sentence is something that a model for a task can be given."""
    return task is None or task.reads_sentences


def text_of(records: Records) -> str:
    """The text that was stated; else a sentence of ours in the first language that was stated, or in English."""
    stated = records.statements.get("model", "example")
    if stated:
        return str(stated)
    told = records.statements.get("model", "languages")
    code = next((code for code in (told if isinstance(told, list) else ()) if code in languages()), "en")
    return re.split(r"(?<=[.。।])\s*", languages()[code].text)[1]
