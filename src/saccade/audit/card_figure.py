"""The attention map on a model card, for the example text of the statements or for a default sentence."""

import base64
import re
from pathlib import Path

from saccade.audit.card_format import CardImage
from saccade.audit.run_records import RunRecords
from saccade.explain.look import look
from saccade.explain.plots import save_attention_plot
from saccade.render.panel_grid import plot_heatmap
from saccade.render.plot import save_figure
from saccade.tasks.base import Task
from saccade.text.language_id import load_languages

CARD_FIGURE_FILE = "looks.png"
FIGURE_CAPTION = (
    "The most informative attention map, averaged over its heads: queries in rows, keys in columns. A weight is the fraction of "
    "a token's value in the weighted sum at a position. It says neither how large that value is, nor that the prediction depends "
    "on it."
)


def write_card_figure(records: RunRecords, task: Task | None) -> Path | None:
    """Draw the attention map of the card's example text next to the weights; None if the model takes no text."""
    path, text = records.model_directory / CARD_FIGURE_FILE, example_text(records)
    path.unlink(missing_ok=True)
    try:
        looks = (
            look(records.directory, (text, text) if task is not None and task.takes_two_texts else text)
            if can_read_sentence(task)
            else None
        )
    except ValueError:  # for example a model without a tokenizer
        return None
    if looks is None or not looks.maps:
        return None
    best = looks.most_informative()
    if best.kind not in ("self", "cross"):
        return save_attention_plot(looks, path)
    return save_figure(
        plot_heatmap(best.mean, best.query_names, best.key_names, f"{best.title}, mean over heads"), path
    )


def read_card_figure(records: RunRecords) -> CardImage | None:
    """The image that `write_card_figure` wrote, as a file and as a data URI; None if there is none."""
    path = records.model_directory / CARD_FIGURE_FILE
    if not path.is_file():
        return None
    data = base64.b64encode(path.read_bytes()).decode()
    return CardImage(
        CARD_FIGURE_FILE,
        f"Attention for: {example_text(records)}",
        FIGURE_CAPTION,
        f"data:image/png;base64,{data}",
    )


def can_read_sentence(task: Task | None) -> bool:
    """Whether models for a task take sentences as input."""
    return task is None or task.reads_sentences


def example_text(records: RunRecords) -> str:
    """The example text of the statements; else a built-in sentence in the first stated language, or in English."""
    stated = records.statements.get("model", "example")
    if stated:
        return str(stated)
    languages = records.statements.get("model", "languages")
    codes = languages if isinstance(languages, list) else ()
    code = next((code for code in codes if code in load_languages()), "en")
    return re.split(r"(?<=[.。।])\s*", load_languages()[code].sample_text)[1]
