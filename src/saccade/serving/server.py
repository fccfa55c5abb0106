"""Start the server on this machine's own address and stop it with Ctrl-C."""

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
MAX_SHUTDOWN_SECONDS = 5  # seconds that requests may take to end after Ctrl-C


class Server(uvicorn.Server):
    """Uvicorn, for which a signal that was ignored before, as a shell does for background jobs, stays ignored."""

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
    """Serve until somebody stops it; `show` opens a browser, with `ask` as what is looked at first."""
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
    """A socket that listens; port 0 takes any that is free."""
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind((HOST, port))
    except OSError as error:
        door.close()
        raise UsageError(
            f"--port: {port} is taken ({error.strerror}); give another, or 0 for any that is free."
        ) from error
    door.listen(64)
    return door
