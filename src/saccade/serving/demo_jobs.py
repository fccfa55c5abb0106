"""Trainings that a lesson asks for: `saccade demo` in a process of its own, one at a time, and how far it is."""

import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, Popen, TimeoutExpired
from threading import Lock, Thread
from typing import Any

from saccade.errors import UsageError

DEMO_NAMES = ("dates", "lengths")  # what `saccade demo` trains
DEMO_COMMAND = (sys.executable, "-m", "saccade", "demo")


class DemoJobs:
    """The demo that is trained now, or was last; it ends with the server."""

    def __init__(self, out: Path):
        self.out, self.name, self.last_line = out, "", ""
        self.process: Popen[str] | None = None
        self.lock = Lock()

    def start(self, name: str) -> dict[str, Any]:
        """Start to train, unless something is trained already."""
        if name not in DEMO_NAMES:
            raise UsageError(f"There is no demo {name!r}; known are {', '.join(DEMO_NAMES)}.")
        with self.lock:
            if self.is_running:
                raise UsageError(f"The demo {self.name!r} is being trained; wait until it has ended.")
            self.name, self.last_line = name, "starting"
            asked = [*DEMO_COMMAND, name, "--out", str(self.out)]
            pipes: dict[str, Any] = {"stdin": DEVNULL, "stdout": PIPE, "stderr": STDOUT}
            self.process = Popen(asked, **pipes, encoding="utf-8", errors="replace")
            Thread(target=self._read_output, args=(self.process,), daemon=True).start()
        return self.status()

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def status(self) -> dict[str, Any]:
        """Which demo, whether it is still being trained, whether it failed, and the last line it said."""
        code = None if self.process is None else self.process.poll()  # asked once: it may end between two questions
        running = self.process is not None and code is None
        return {"demo": self.name, "running": running, "failed": code not in (None, 0), "last_line": self.last_line}

    def stop(self) -> None:
        """Stop what is being trained; it has a moment to save."""
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
                if process is self.process:  # not one before it, whose own processes may still speak
                    self.last_line = line.strip() or self.last_line
