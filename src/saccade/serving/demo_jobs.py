"""Background training of the models of a lesson: runs `saccade demo` in a subprocess, one at a time, with its progress."""

import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, Popen, TimeoutExpired
from threading import Lock, Thread
from typing import Any

from saccade.errors import UsageError

DEMO_NAMES = ("dates", "lengths")  # the demos of `saccade demo` that train models
DEMO_COMMAND = (sys.executable, "-m", "saccade", "demo")


class DemoJobs:
    """The demo that is training or was trained last; it is stopped with the server."""

    def __init__(self, out: Path):
        self.out, self.name, self.last_line = out, "", ""
        self.process: Popen[str] | None = None
        self.lock = Lock()

    def start(self, name: str) -> dict[str, Any]:
        """Start training; raises `UsageError` if another demo is training."""
        if name not in DEMO_NAMES:
            raise UsageError(f"There is no demo {name!r}; known are {', '.join(DEMO_NAMES)}.")
        with self.lock:
            if self.is_running:
                raise UsageError(f"The demo {self.name!r} is being trained; wait until it has finished.")
            self.name, self.last_line = name, "starting"
            command = [*DEMO_COMMAND, name, "--out", str(self.out)]
            pipes: dict[str, Any] = {"stdin": DEVNULL, "stdout": PIPE, "stderr": STDOUT}
            self.process = Popen(command, **pipes, encoding="utf-8", errors="replace")
            Thread(target=self._read_output, args=(self.process,), daemon=True).start()
        return self.status()

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def status(self) -> dict[str, Any]:
        """The demo, whether it is running, whether it failed, and its last line of output."""
        code = (
            None if self.process is None else self.process.poll()
        )  # polled once: the process may end between two calls
        running = self.process is not None and code is None
        return {"demo": self.name, "running": running, "failed": code not in (None, 0), "last_line": self.last_line}

    def stop(self) -> None:
        """Stop the training; it has five seconds to save a checkpoint."""
        if self.process is not None and self.is_running:
            self.process.terminate()
            try:
                self.process.wait(timeout=5)
            except TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def _read_output(self, process: "Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if process is self.process:  # ignores output of children of an earlier process
                    self.last_line = line.strip() or self.last_line
