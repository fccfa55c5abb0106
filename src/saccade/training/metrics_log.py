"""metrics.jsonl: one JSON object a line, only ever appended to, and cut back to a checkpoint when a run goes on."""

import os
from pathlib import Path
from typing import Any

from saccade.errors import ModelError
from saccade.training.checkpoint.disk import disk_full_errors
from saccade.training.checkpoint.serialize import from_json, to_json


class MetricsLog:
    """The lines of one file. A line is there when `add` returns; floats come back exactly, what is not finite is a string.

    Making one touches nothing, so a reader may look at the file of a run that is going on.
    """

    def __init__(self, path: Path):
        self.path = Path(path)
        self._ends_with_newline = False  # whether the file is known to end with a whole line

    def append(self, **values: Any) -> None:
        """Append one line and hand it to the system, which keeps it even if this process is killed."""
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
        """All whole lines; a torn end, as a killed run leaves it, is passed over."""
        return [values for values, _ in self._parse_lines()]

    def truncate(self, step: int, *, without_key: str = "") -> None:
        """Drop what comes after a step, and a torn end, in one stroke: the run that goes on writes it again.

        `without` names a value: a line of that very step that has it goes too.
        """
        size = 0
        for values, end in self._parse_lines():
            after = values.get("step", step)
            if after > step or (after == step and without_key in values):
                break
            size = end
        if self.path.exists():
            self._truncate_file(size, self.path.stat().st_size)
            self._ends_with_newline = True

    def sync(self) -> None:
        """Wait until the lines are on the disk: before a checkpoint, so that it cannot outlive them in a power cut."""
        if self.path.exists():
            with self.path.open("rb") as file:
                os.fsync(file.fileno())

    def _truncate_file(self, size: int, before: int) -> None:
        if size < before:
            with self.path.open("r+b") as file:
                file.truncate(size)
                os.fsync(file.fileno())

    def _parse_lines(self) -> list[tuple[dict[str, Any], int]]:
        """The values of every line and where it ends; only at the end of the file may lines be unreadable."""
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
                    f"{self.path}:{broken}: not a line of metrics, though whole lines follow; the file was changed by "
                    "other means. Mend that line, or move the file away to go on without it."
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
