"""A bar for whoever waits at a terminal longer than two seconds; elsewhere nothing is shown."""

import sys
import time
from contextlib import ExitStack
from typing import Any, TextIO

AFTER = 2.0  # seconds without a bar


class Waiting(ExitStack):
    """Opened and closed around the work; `told` hears how many of how many are done, None if nobody knows."""

    def __init__(self, stream: TextIO | None = None):
        super().__init__()
        self.stream = stream or sys.stderr
        self.began = time.monotonic()
        self.bar: Any = None

    def told(self, done: int, of: int | None = None) -> None:
        if self.bar is None:
            if not self.stream.isatty() or time.monotonic() - self.began < AFTER:
                return
            self.bar = self._opened()
        self.bar.update(self.bar.task_ids[0], completed=done, total=of)

    def _opened(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        bar = self.enter_context(Progress(*columns, console=Console(file=self.stream), transient=True))
        bar.add_task("", total=None)
        return bar
