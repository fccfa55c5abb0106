"""Run the web server on the loopback interface until Ctrl-C."""

import signal
import socket
import webbrowser
from collections.abc import Callable
from types import FrameType
from urllib.parse import urlencode

import uvicorn
from fastapi import FastAPI

from saccade.errors import UsageError

HOST = "127.0.0.1"
MAX_PORT = 65_535
MAX_SHUTDOWN_SECONDS = 5  # for open requests after Ctrl-C


class Server(uvicorn.Server):
    """A Uvicorn server that keeps ignoring signals that were ignored at its start, as in background jobs of a shell."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ignored_signals = [number for number in signal.Signals if signal.getsignal(number) is signal.SIG_IGN]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig not in self.ignored_signals:
            super().handle_exit(sig, frame)


def run_server(
    app: FastAPI,
    listener: socket.socket,
    on_start: Callable[[str], None],
    *,
    open_browser: bool = False,
    query: dict[str, str] | None = None,
) -> None:
    """Serve until stopped. `on_start` is called with the address; `query` has the text that the browser shows first."""
    with listener:
        address = f"http://{HOST}:{listener.getsockname()[1]}/" + (f"?{urlencode(query)}" if query else "")
        on_start(address)
        if open_browser:
            webbrowser.open(address)
        config = uvicorn.Config(
            app,
            log_level="warning",
            timeout_graceful_shutdown=MAX_SHUTDOWN_SECONDS,
            timeout_keep_alive=MAX_SHUTDOWN_SECONDS,
            server_header=False,
        )
        Server(config).run([listener])


def open_listener(port: int) -> socket.socket:
    """A listening socket; port 0 selects a free port."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        message = f"--port: {port} is not available ({error.strerror}); give another port, or 0 to select a free one."
        raise UsageError(message) from error
    listener.listen(64)
    return listener
