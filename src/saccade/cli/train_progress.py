"""Training progress: a live line with loss, speed and time since the last checkpoint on a terminal, plain lines elsewhere."""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

from saccade.cli.terminal import escape_control_characters, unwrap_stream
from saccade.training.loop import TrainStep
from saccade.training.run import CheckpointSaved, DevEvaluation, Event, Message, RunResult

MIN_SECONDS_BETWEEN_LINES = 10.0  # for plain lines


class TrainProgress(ExitStack):
    """A context manager that prints the events of a training run."""

    def __init__(self, out: Path, stream: TextIO):
        super().__init__()
        self.out, self.stream = out, stream
        self.started_at = self.last_line_at = time.monotonic()
        self.first_step: int | None = None  # the first step of this call
        self.smoothed_loss, self.tokens_per_second = 0.0, 0.0
        self.saved_at = time.monotonic()
        self.live_display: Any = None

    def __enter__(self) -> "TrainProgress":
        if self.stream.isatty():
            from rich.console import Console
            from rich.live import Live

            display = Live("", console=Console(file=unwrap_stream(self.stream)), refresh_per_second=8, transient=True)
            self.live_display = self.enter_context(display)
        return self

    def show(self, event: Event) -> None:
        if isinstance(event, TrainStep):
            self._show_step(event)
        elif isinstance(event, DevEvaluation):
            scores = ", ".join(_format_score(score) for score in event.scores)
            self._print(f"step {event.step:>6,}  held-out {scores}{' (best so far)' if event.best else ''}")
        elif isinstance(event, CheckpointSaved):
            self.saved_at = time.monotonic()
        elif isinstance(event, Message):
            self._print(event.text)
        elif isinstance(event, RunResult):
            self._show_result(event)

    def _show_step(self, step: TrainStep) -> None:
        if self.first_step is None:
            self.first_step = step.number - 1
        decay = 0.98 if step.number - self.first_step > 50 else 0.8
        is_first = step.number - self.first_step == 1
        self.smoothed_loss = step.loss if is_first else decay * self.smoothed_loss + (1 - decay) * step.loss
        speed = step.tokens / max(1e-9, step.seconds)
        self.tokens_per_second = speed if is_first else decay * self.tokens_per_second + (1 - decay) * speed
        line = (
            f"step {step.number:>6,}  epoch {step.epoch + 1}  loss {self.smoothed_loss:7.4f}  lr {step.lr:.1e}  "
            f"{self.tokens_per_second:,.0f} tokens/s"
        )
        now = time.monotonic()
        if self.live_display is not None:
            self.live_display.update(
                f"{line}  {_format_duration(now - self.started_at)}  saved {_format_duration(now - self.saved_at)} ago"
            )
        elif is_first or now - self.last_line_at > MIN_SECONDS_BETWEEN_LINES:
            self.last_line_at = now
            self._print(line)

    def _show_result(self, result: RunResult) -> None:
        if result.signal is not None:
            self._print(f"interrupted at step {result.steps:,}, checkpoint saved; run the same command to resume")
            return
        self._print(f"finished after {result.steps:,} steps ({result.stop_reason})")
        for line in [*result.score_lines(), *result.notes]:
            self._print(line)
        self._print(f"written    {self.out}/model, {self.out}/report.html")

    def _print(self, text: str) -> None:
        if self.live_display is not None:
            self.live_display.console.print(escape_control_characters(text), markup=False, highlight=False)
        else:
            print(text, file=self.stream, flush=True)


def _format_score(score: Any) -> str:
    return f"{score.name} {score.value:.4g}"


def _format_duration(seconds: float) -> str:
    """
    >>> _format_duration(75)
    '1:15'
    """
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
