"""Skipped steps (train.on_nan skip): how many steps with a non-finite loss a run may skip, and a file of their examples."""

from pathlib import Path

from saccade.models.model import Model
from saccade.training.loop import NonFiniteLoss
from saccade.training.metrics_log import MetricsLog

MAX_SKIPPED_STEPS = 3  # per run; more than that is not an accident


def write_bad_batch(error: NonFiniteLoss, out: Path, model: Model, *, overwrite: bool) -> None:
    """Write the examples of a diverged step to diverged.jsonl: the file, line and values of each."""
    bad = MetricsLog(out / "diverged.jsonl")
    bad.truncate(0 if overwrite else error.step - 1)
    tokenizer = model.tokenizer
    for item in (item for batch in error.batches for item in batch.items):
        values = {
            key: value for key, value in item.example.values.items() if isinstance(value, str | int | float | list)
        }
        if not values and item.source.ndim == 1 and tokenizer is not None:  # a window of a text stream
            values = {"text": tokenizer.decode(item.source.tolist(), keep_special_tokens=True)}
        fields = {f"example_{key}": value for key, value in values.items()}
        bad.append(step=error.step, file=item.example.file, line=item.example.line, **fields)
