"""Progress bar of operations that take longer than two seconds, on a terminal or in a notebook; elsewhere nothing is shown."""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, TextIO, TypeVar

from saccade.notebook import get_notebook_display

MIN_SECONDS_BEFORE_BAR = 2.0
T = TypeVar("T")


class ProgressBar(ExitStack):
    """A context manager; `update(done, total)` advances the bar, and a total of None is unknown."""

    stream: TextIO | Any
    enabled: bool

    def __init__(self, stream: TextIO | None = None, *, enabled: bool = True):
        super().__init__()
        self.stream, self.enabled = stream or sys.stderr, enabled
        self.started_at: float = time.monotonic()
        self.bar: Any = None

    def update(self, done: int, total: int | None = None) -> None:
        if not self.enabled:
            return
        if self.bar is None:
            waited = time.monotonic() - self.started_at >= MIN_SECONDS_BEFORE_BAR
            if not waited or not (self.stream.isatty() or get_notebook_display() is not None):
                return
            self.bar = self._open_bar()
        self.bar.update(self.bar.task_ids[0], completed=done, total=total)

    def _open_bar(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        console = Console(file=self.stream) if self.stream.isatty() else Console(force_jupyter=True)
        bar = self.enter_context(Progress(*columns, console=console, transient=True))
        bar.add_task("", total=None)
        return bar


def track(items: Iterable[T], enabled: bool = True, total: int | None = None) -> Iterator[T]:
    """Yield the items, with a progress bar.

    >>> list(track(range(3)))
    [0, 1, 2]
    """
    with ProgressBar(enabled=enabled) as bar:
        for done, item in enumerate(items, 1):
            yield item
            bar.update(done, total)
