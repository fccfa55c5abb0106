"""A step out of which nothing can be learnt: how many of them a run may leave out, and their examples written down."""

from pathlib import Path

from saccade.models.model import Model
from saccade.training.loop import NonFiniteLoss
from saccade.training.metrics_log import MetricsLog

MAX_SKIPPED_STEPS = 3  # in one run: more of them are not an accident


def write_bad_batch(error: NonFiniteLoss, out: Path, model: Model, *, overwrite: bool) -> None:
    """The examples of the step that diverged, for a person to look at: where they stand, and what they say."""
    bad = MetricsLog(out / "diverged.jsonl")
    bad.truncate(0 if overwrite else error.step - 1)
    tokenizer = model.tokenizer
    for item in (item for batch in error.batches for item in batch.items):
        values = {
            key: value for key, value in item.example.values.items() if isinstance(value, str | int | float | list)
        }
        if not values and item.source.ndim == 1 and tokenizer is not None:  # a window of running text
            values = {"text": tokenizer.decode(item.source.tolist(), keep_special_tokens=True)}
        told = {f"example_{key}": value for key, value in values.items()}
        bad.append(step=error.step, file=item.example.file, line=item.example.line, **told)
