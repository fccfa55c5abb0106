"""A bar for whoever waits at a terminal longer than two seconds; elsewhere nothing is shown."""

import sys
import time
from contextlib import ExitStack
from typing import Any, TextIO

MIN_SECONDS_BEFORE_BAR = 2.0  # seconds without a bar


class ProgressBar(ExitStack):
    """Opened and closed around the work; `told` hears how many of how many are done, None if nobody knows."""

    def __init__(self, stream: TextIO | None = None):
        super().__init__()
        self.stream = stream or sys.stderr
        self.started_at = time.monotonic()
        self.bar: Any = None

    def update(self, done: int, total: int | None = None) -> None:
        if self.bar is None:
            if not self.stream.isatty() or time.monotonic() - self.started_at < MIN_SECONDS_BEFORE_BAR:
                return
            self.bar = self._open_bar()
        self.bar.update(self.bar.task_ids[0], completed=done, total=total)

    def _open_bar(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        bar = self.enter_context(Progress(*columns, console=Console(file=self.stream), transient=True))
        bar.add_task("", total=None)
        return bar
