"""A step out of which nothing can be learnt: how many of them a run may leave out, and their examples written down."""

from pathlib import Path

from saccade.models.model import Model
from saccade.training.lines import Lines
from saccade.training.loop import Diverged

SKIPS = 3  # in one run: more of them are not an accident


def write_down(error: Diverged, out: Path, model: Model, *, new: bool) -> None:
    """The examples of the step that diverged, for a person to look at: where they stand, and what they say."""
    bad = Lines(out / "diverged.jsonl")
    bad.cut(0 if new else error.step - 1)
    tokenizer = model.tokenizer
    for item in (item for batch in error.batches for item in batch.rows):
        values = {
            key: value for key, value in item.example.values.items() if isinstance(value, str | int | float | list)
        }
        if not values and item.source.ndim == 1 and tokenizer is not None:  # a window of running text
            values = {"text": tokenizer.decode(item.source.tolist(), special=True)}
        told = {f"example_{key}": value for key, value in values.items()}
        bad.add(step=error.step, file=item.example.file, line=item.example.line, **told)
