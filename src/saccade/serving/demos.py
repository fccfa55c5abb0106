"""Trainings that a lesson asks for: `saccade demo` in a process of its own, one at a time, and how far it is."""

import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, Popen, TimeoutExpired
from threading import Lock, Thread
from typing import Any

from saccade.errors import UsageError

KNOWN = ("dates", "lengths")  # what `saccade demo` trains
COMMAND = (sys.executable, "-m", "saccade", "demo")


class Demos:
    """The demo that is trained now, or was last; it ends with the server."""

    def __init__(self, out: Path):
        self.out, self.name, self.line = out, "", ""
        self.work: Popen[str] | None = None
        self.lock = Lock()

    def begin(self, name: str) -> dict[str, Any]:
        """Start to train, unless something is trained already."""
        if name not in KNOWN:
            raise UsageError(f"There is no demo {name!r}; known are {', '.join(KNOWN)}.")
        with self.lock:
            if self.running:
                raise UsageError(f"The demo {self.name!r} is being trained; wait until it has ended.")
            self.name, self.line = name, "beginning"
            asked = [*COMMAND, name, "--out", str(self.out)]
            pipes: dict[str, Any] = {"stdin": DEVNULL, "stdout": PIPE, "stderr": STDOUT}
            self.work = Popen(asked, **pipes, encoding="utf-8", errors="replace")
            Thread(target=self._listen, args=(self.work,), daemon=True).start()
        return self.told()

    @property
    def running(self) -> bool:
        return self.work is not None and self.work.poll() is None

    def told(self) -> dict[str, Any]:
        """Which demo, whether it is still being trained, whether it failed, and the last line it said."""
        code = None if self.work is None else self.work.poll()  # asked once: it may end between two questions
        running = self.work is not None and code is None
        return {"demo": self.name, "running": running, "failed": code not in (None, 0), "line": self.line}

    def end(self) -> None:
        """Stop what is being trained; it has a moment to save."""
        if self.work is not None and self.running:
            self.work.terminate()
            try:
                self.work.wait(timeout=5)
            except TimeoutExpired:
                self.work.kill()
                self.work.wait()

    def _listen(self, work: "Popen[str]") -> None:
        assert work.stdout is not None
        with work.stdout:
            for line in work.stdout:
                if work is self.work:  # not one before it, whose own processes may still speak
                    self.line = line.strip() or self.line
