"""Progress bar of operations that take longer than two seconds, on a terminal or in a notebook; elsewhere nothing is shown."""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, TextIO, TypeVar

from saccade.notebook import get_notebook_display

MIN_SECONDS_BEFORE_BAR = 2.0
MIN_SECONDS_BETWEEN_UPDATES = 0.2  # of a notebook cell
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
            display = get_notebook_display()
            waited = time.monotonic() - self.started_at >= MIN_SECONDS_BEFORE_BAR
            if not waited or not (display is not None or self.stream.isatty()):
                return
            self.bar = self.enter_context(_TerminalBar(self.stream) if display is None else _NotebookBar(display))
        self.bar.update(done, total)


class _TerminalBar(ExitStack):
    def __init__(self, stream: TextIO):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        super().__init__()
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = self.enter_context(Progress(*columns, console=Console(file=stream), transient=True))
        self.bar.add_task("", total=None)

    def update(self, done: int, total: int | None) -> None:
        self.bar.update(self.bar.task_ids[0], completed=done, total=total)


class _NotebookBar(ExitStack):
    """A cell output with an HTML progress element, which is cleared at the end; it needs no widgets."""

    def __init__(self, display: Any):
        super().__init__()
        self.done = 0
        self.total: int | None = None
        self.updated_at = time.monotonic()
        self.is_finished = False
        self.handle = display(self, display_id=True)
        self.callback(self._clear)

    def update(self, done: int, total: int | None) -> None:
        self.done, self.total = done, total
        if time.monotonic() - self.updated_at >= MIN_SECONDS_BETWEEN_UPDATES:
            self.updated_at = time.monotonic()
            self.handle.update(self)

    def _clear(self) -> None:
        self.is_finished = True
        self.handle.update(self)

    def __repr__(self) -> str:
        return (
            "" if self.is_finished else f"{self.done:,}" if self.total is None else f"{self.done:,} of {self.total:,}"
        )

    def _repr_html_(self) -> str:
        if self.is_finished:
            return ""
        range_ = "" if self.total is None else f' value="{self.done}" max="{self.total}"'
        return f"<progress{range_}></progress> {self!r}"


def track(items: Iterable[T], enabled: bool = True, total: int | None = None) -> Iterator[T]:
    """Yield the items, with a progress bar.

    >>> list(track(range(3)))
    [0, 1, 2]
    """
    with ProgressBar(enabled=enabled) as bar:
        for done, item in enumerate(items, 1):
            yield item
            bar.update(done, total)
