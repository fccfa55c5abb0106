"""The first request to stop is a flag, so that the loop can finish its step and save; the second acts at once."""

import signal
import threading
from time import monotonic
from types import FrameType, TracebackType
from typing import Any

ECHO = 1.0  # seconds in which a launcher passes on what the terminal has already sent to everyone


class Stops:
    """Hears SIGINT and SIGTERM while it is open; outside the main thread, where nobody can, it does nothing.

    A signal that was ignored before stays ignored: a shell starts its background jobs so, and Ctrl-C is not meant for them.

    >>> with Stops() as stops:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     stops.asked == signal.SIGTERM
    True
    """

    def __init__(self) -> None:
        self.asked: int | None = None  # the number of the signal
        self._when = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Stops":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before.clear()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.asked is None:
            self.asked, self._when = number, monotonic()
        elif number == self.asked or monotonic() - self._when > ECHO:
            signal.signal(number, signal.SIG_DFL)  # the process ends here, as one that never listened would
            signal.raise_signal(number)
