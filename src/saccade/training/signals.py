"""Handles SIGINT and SIGTERM: the first signal sets a flag, so that the loop finishes its step and saves; a second one kills."""

import signal
import threading
from time import monotonic
from types import FrameType, TracebackType
from typing import Any

ECHO_SECONDS = 1.0  # in which a launcher may forward a signal that the terminal has already sent to all processes


class StopSignals:
    """A context manager that catches SIGINT and SIGTERM; outside the main thread, where Python cannot, it does nothing.

    A signal that was ignored before stays ignored: shells start background jobs that way, so that Ctrl-C does not stop them.

    >>> with StopSignals() as stops:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     stops.signal_number == signal.SIGTERM
    True
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None  # of the first signal received
        self._received_at = 0.0
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous_handlers[number] = signal.signal(number, self._handle_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous_handlers.clear()

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        if self.signal_number is None:
            self.signal_number, self._received_at = number, monotonic()
        elif number == self.signal_number or monotonic() - self._received_at > ECHO_SECONDS:
            signal.signal(number, signal.SIG_DFL)  # the process ends here, as without a handler
            signal.raise_signal(number)
