"""A picture for the card: where a model looks in one text, of which its people say which, or which we wrote."""

import base64
import re
from pathlib import Path

from saccade.audit.render import CardImage
from saccade.audit.run_records import RunRecords
from saccade.explain.look import look
from saccade.explain.plots import save_attention_plot
from saccade.render.panel_grid import plot_heatmap
from saccade.render.plot import save_figure
from saccade.tasks.base import Task
from saccade.text.language_id import load_languages

CARD_FIGURE_FILE = "looks.png"
FIGURE_CAPTION = (
    "The map that says most, the mean of its heads: a row for each token that looks, a column for each that is looked at. A "
    "weight is the share that the value of a token has in the sum at this place. It does not say how large that value is, nor "
    "that the answer depends on it."
)


def write_card_figure(records: RunRecords, task: Task | None) -> Path | None:
    """Look at the text of a card and draw it beside the weights; None where a model reads no texts."""
    path, text = records.model_directory / CARD_FIGURE_FILE, example_text(records)
    path.unlink(missing_ok=True)
    try:
        looks = (
            look(records.directory, (text, text) if task is not None and task.takes_two_texts else text)
            if can_read_sentence(task)
            else None
        )
    except ValueError:  # such as a model that came without a tokenizer
        return None
    if looks is None or not looks.maps:
        return None
    seen = looks.most_informative()
    if seen.kind not in ("self", "cross"):
        return save_attention_plot(looks, path)
    return save_figure(
        plot_heatmap(seen.mean, seen.query_names, seen.key_names, f"{seen.title}, mean of its heads"), path
    )


def read_card_figure(records: RunRecords) -> CardImage | None:
    """What `draw` left, for both forms of the card; None where it left nothing."""
    path = records.model_directory / CARD_FIGURE_FILE
    if not path.is_file():
        return None
    data = base64.b64encode(path.read_bytes()).decode()
    return CardImage(
        CARD_FIGURE_FILE,
        f"Where it looked in: {example_text(records)}",
        FIGURE_CAPTION,
        f"data:image/png;base64,{data}",
    )


def can_read_sentence(task: Task | None) -> bool:
    """Whether a sentence is something that a model for a task can be given."""
    return task is None or task.reads_sentences


def example_text(records: RunRecords) -> str:
    """The text that was stated; else a sentence of ours in the first language that was stated, or in English."""
    stated = records.statements.get("model", "example")
    if stated:
        return str(stated)
    told = records.statements.get("model", "languages")
    code = next((code for code in (told if isinstance(told, list) else ()) if code in load_languages()), "en")
    return re.split(r"(?<=[.。।])\s*", load_languages()[code].sample_text)[1]
