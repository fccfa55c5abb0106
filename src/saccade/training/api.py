"""Training in one call: `saccade.train("label", "reviews.tsv", out="runs/reviews")`."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from saccade.notebook import get_notebook_display
from saccade.training.notebook import NotebookProgress
from saccade.training.prepare import Job, prepare
from saccade.training.run import Event, RunResult, run_training


def train(
    task: str,
    data: str | Sequence[str] = (),
    *,
    out: str | Path,
    model: str = "",
    columns: Mapping[str, str] | None = None,
    on_event: Callable[[Event], None] | None = None,
    **settings: Mapping[str, Any],
) -> RunResult:
    """Train, or go on training, and write the run to `out`; `saccade.load(out)` is then the model.

    `settings` are tables by name, such as `model_fields={"width": 128}` and `train_fields={"max_time": 5}`. `told` hears of
    every step, look and save; without it, a notebook shows the progress, and a script is silent.
    """
    if on_event is None:
        display = get_notebook_display()
        on_event = (lambda event: None) if display is None else NotebookProgress(display)
    paths = (data,) if isinstance(data, str) else tuple(data)
    result: Event | None = None
    ready = prepare(Job(task, paths, model, columns or {}, **settings))  # type: ignore[arg-type]
    with closing(run_training(ready, Path(out))) as events:  # an error in `told` lets go of the directory at once
        for event in events:
            on_event(event)
            result = event
    assert isinstance(result, RunResult), "a run ends with its result"
    return result
