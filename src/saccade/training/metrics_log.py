"""metrics.jsonl: an append-only log of metrics, one JSON object per line, truncated to the checkpoint when a run resumes."""

import os
from pathlib import Path
from typing import Any

from saccade.errors import ModelError
from saccade.training.checkpoint.disk import disk_full_errors
from saccade.training.checkpoint.serialize import from_json, to_json


class MetricsLog:
    """The lines of one file. A line is in the file when `append` returns; floats are restored exactly, also NaN and infinity.

    The constructor touches no file, so another process may read the log of a run that is still training.
    """

    def __init__(self, path: Path):
        self.path = Path(path)
        self._ends_with_newline = False  # whether the file is known to end with a complete line

    def append(self, **values: Any) -> None:
        """Append one line, unbuffered, so that it is kept even if this process is killed."""
        line = (to_json(values) + "\n").encode()
        if not self._ends_with_newline and self.path.exists():
            content = self.path.read_bytes()
            self._truncate_file(content.rfind(b"\n") + 1, len(content))
        self._ends_with_newline = False
        with disk_full_errors(self.path), self.path.open("ab", buffering=0) as file:
            while line:
                line = line[file.write(line) :]
        self._ends_with_newline = True

    def read(self) -> list[dict[str, Any]]:
        """All complete lines; an incomplete last line, as a killed run leaves it, is ignored."""
        return [values for values, _ in self._parse_lines()]

    def truncate(self, step: int, *, without_key: str = "") -> None:
        """Remove the lines after a step and an incomplete last line, atomically; the resumed run writes them again.

        A line of `step` itself is removed too if it has the key `without_key`.
        """
        size = 0
        for values, end in self._parse_lines():
            line_step = values.get("step", step)
            if line_step > step or (line_step == step and without_key in values):
                break
            size = end
        if self.path.exists():
            self._truncate_file(size, self.path.stat().st_size)
            self._ends_with_newline = True

    def sync(self) -> None:
        """Flush the lines to disk (fsync); done before a checkpoint is saved, so that a power cut cannot lose them alone."""
        if self.path.exists():
            with self.path.open("rb") as file:
                os.fsync(file.fileno())

    def _truncate_file(self, size: int, before: int) -> None:
        if size < before:
            with self.path.open("r+b") as file:
                file.truncate(size)
                os.fsync(file.fileno())

    def _parse_lines(self) -> list[tuple[dict[str, Any], int]]:
        """The values of every line and the offset of its end; raises ModelError if complete lines follow an unreadable one."""
        if not self.path.exists():
            return []
        parsed: list[tuple[dict[str, Any], int]] = []
        broken, end = 0, 0
        for number, line in enumerate(self.path.read_bytes().splitlines(keepends=True), start=1):
            end += len(line)
            values = _parse_line(line)
            if values is None:
                broken = broken or number
            elif broken:
                raise ModelError(
                    f"{self.path}:{broken}: not a line of metrics, although complete lines follow; something else changed the "
                    "file. Repair that line, or move the file away to resume without it."
                )
            else:
                parsed.append((values, end))
        return parsed


def _parse_line(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        values = from_json(line)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None
