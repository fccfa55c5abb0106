"""How a run looks while it runs: a bar with rate, time to go and the next save on a terminal, plain lines elsewhere."""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

from saccade.cli.terminal import harmless, terminal
from saccade.training.loop import Step
from saccade.training.run import Event, Looked, Result, Said, Saved

EVERY = 10.0  # seconds between plain lines


class Progress(ExitStack):
    """Shows events; opened and closed around a run."""

    def __init__(self, out: Path, stream: TextIO):
        super().__init__()
        self.out, self.stream = out, stream
        self.began = self.last = time.monotonic()
        self.first: int | None = None  # the first step of this call
        self.loss, self.rate = 0.0, 0.0
        self.saved = time.monotonic()
        self.bar: Any = None

    def __enter__(self) -> "Progress":
        if self.stream.isatty():
            from rich.console import Console
            from rich.live import Live

            shown = Live("", console=Console(file=terminal(self.stream)), refresh_per_second=8, transient=True)
            self.bar = self.enter_context(shown)
        return self

    def show(self, event: Event) -> None:
        if isinstance(event, Step):
            self._step(event)
        elif isinstance(event, Looked):
            mark = " (best so far)" if event.best else ""
            self._print(f"step {event.step:>6,}  held out: {', '.join(_short(score) for score in event.scores)}{mark}")
        elif isinstance(event, Saved):
            self.saved = time.monotonic()
        elif isinstance(event, Said):
            self._print(event.text)
        elif isinstance(event, Result):
            self._result(event)

    def _step(self, step: Step) -> None:
        if self.first is None:
            self.first = step.number - 1
        slow = 0.98 if step.number - self.first > 50 else 0.8
        fresh = step.number - self.first == 1
        self.loss = step.loss if fresh else slow * self.loss + (1 - slow) * step.loss
        speed = step.tokens / max(1e-9, step.seconds)
        self.rate = speed if fresh else slow * self.rate + (1 - slow) * speed
        line = (
            f"step {step.number:>6,}  epoch {step.epoch + 1}  loss {self.loss:7.4f}  rate {step.rate:.1e}  "
            f"{self.rate:,.0f} tokens/s"
        )
        now = time.monotonic()
        if self.bar is not None:
            self.bar.update(f"{line}  {_clock(now - self.began)}  saved {_clock(now - self.saved)} ago")
        elif fresh or now - self.last > EVERY:
            self.last = now
            self._print(line)

    def _result(self, result: Result) -> None:
        if result.signal is not None:
            self._print(f"stopped after step {result.steps:,} and saved; the same command goes on from there.")
            return
        self._print(f"ended after {result.steps:,} steps by {result.why}")
        for split, scores in result.scores.items():
            for score in scores:
                self._print(f"{split:<5} {score}")
        for note in result.notes:
            self._print(note)
        self._print(f"written    {self.out}/model, {self.out}/report.html")

    def _print(self, text: str) -> None:
        if self.bar is not None:
            self.bar.console.print(harmless(text), markup=False, highlight=False)
        else:
            print(text, file=self.stream, flush=True)


def _short(score: Any) -> str:
    return f"{score.name} {score.value:.4g}"


def _clock(seconds: float) -> str:
    """
    >>> _clock(75)
    '1:15'
    """
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
