"""Progress of `saccade.train` in a notebook: one cell output that is updated during training."""

import time
from typing import Any

from saccade.notebook import html_table, html_text
from saccade.training.events import DevEvaluation, Event, Message, RunResult
from saccade.training.loop import TrainStep

MIN_SECONDS_BETWEEN_UPDATES = 0.5
MAX_LINES_SHOWN = 8  # of messages, and of evaluations


class NotebookProgress:
    """A callback for the events of a run that shows them in a notebook; `display` is IPython's function."""

    def __init__(self, display: Any):
        self.step: TrainStep | None = None
        self.evaluations: list[DevEvaluation] = []
        self.messages: list[str] = []
        self.updated_at = time.monotonic()
        self.handle = display(self, display_id=True)

    def __call__(self, event: Event) -> None:
        if isinstance(event, TrainStep):
            self.step = event
        elif isinstance(event, DevEvaluation):
            self.evaluations.append(event)
        elif isinstance(event, Message):
            self.messages.append(event.text)
        now = time.monotonic()
        if now - self.updated_at >= MIN_SECONDS_BETWEEN_UPDATES or isinstance(event, DevEvaluation | RunResult):
            self.updated_at = now
            self.handle.update(self)

    def __repr__(self) -> str:
        step = self.step
        line = "training" if step is None else f"step {step.number:,}, epoch {step.epoch + 1}, loss {step.loss:.4f}"
        return "\n".join([*self.messages[-MAX_LINES_SHOWN:], line])

    def _repr_html_(self) -> str:
        if not self.evaluations:
            return html_text(repr(self))
        names = [score.name for score in self.evaluations[-1].scores]
        rows = [
            (f"{event.step:,}", *(f"{score.value:.4g}" for score in event.scores), "best so far" if event.best else "")
            for event in self.evaluations[-MAX_LINES_SHOWN:]
        ]
        return html_text(repr(self)) + html_table(["step", *names, ""], rows, caption="on held-out data")
