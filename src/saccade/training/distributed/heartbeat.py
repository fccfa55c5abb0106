"""A heartbeat between the processes of a distributed run: a process that hangs is named and does not block the others.

The connections of a process that dies are closed, and the others notice at once. Those of a process that is suspended, or whose
machine is gone, stay open, but its heartbeats stop. The heartbeats of a process in an endless loop continue, so each of them
holds the number of synchronization points that its main thread has reached, which shows who is behind.
"""

import os
import sys
import threading
import time
from typing import Any

from saccade.training.exit_report import ExitReport, is_launched, write_exit_report

DEFAULT_HEARTBEAT_TIMEOUT = 60.0  # seconds


def heartbeat_timeout() -> float:
    """Seconds without a heartbeat after which a process counts as lost; set by SACCADE_HEARTBEAT_TIMEOUT."""
    return float(os.environ.get("SACCADE_HEARTBEAT_TIMEOUT", DEFAULT_HEARTBEAT_TIMEOUT))


class Heartbeat:
    """Writes heartbeats to the store of the run and reads those of the others; one thread for the store, one for the timeouts."""

    def __init__(self, store: Any, rank: int, size: int, timeout: float):
        self.store, self.rank, self.size, self.timeout = store, rank, size, timeout
        self.interval = min(1.0, timeout / 10)
        self.beat_count = 0
        self.progress_count, self.last_progress_at = 0, time.monotonic()  # synchronization points of the main thread
        self.last_beats: dict[int, tuple[bytes, float]] = {}  # by rank: its last beat, and when it was first seen
        self.store_answered_at = time.monotonic()
        self.stop_event = threading.Event()

    def start(self) -> None:
        """Start both threads, which run until `stop`."""
        self._read_beats()
        for work in (self._beat_loop, self._monitor_loop):
            threading.Thread(target=work, daemon=True).start()

    def stop(self) -> None:
        self.stop_event.set()

    def send_beat(self) -> None:
        """Send one heartbeat."""
        self.beat_count += 1
        self.store.set(f"beat/{self.rank}", f"{self.beat_count} {self.progress_count}")

    def report_progress(self) -> None:
        """Called by the main thread at a synchronization point, before it waits for the others."""
        self.progress_count, self.last_progress_at = self.progress_count + 1, time.monotonic()

    def find_silent_rank(self, now: float) -> int | None:
        """A rank without heartbeats for too long; rank 0 hosts the store, so if the store does not answer it is rank 0."""
        if now - self.store_answered_at > self.timeout:
            return 0
        late = [rank for rank, (_, when) in self.last_beats.items() if now - when > self.timeout]
        return late[0] if late else None

    def find_stalled_rank(self, now: float) -> int | None:
        """A rank that sends heartbeats but for too long has not reached the synchronization point where this process waits."""
        if now - self.last_progress_at <= self.timeout:
            return None
        # only ranks with a recent heartbeat; any other will soon be reported as silent
        alive = [(rank, beat) for rank, (beat, when) in self.last_beats.items() if now - when < self.timeout / 2]
        behind = [rank for rank, beat in alive if int(beat.split()[1]) < self.progress_count]
        return behind[0] if behind else None

    def _read_beats(self) -> None:
        for rank in range(self.size):
            if rank != self.rank:
                beat = self.store.get(f"beat/{rank}")
                if rank not in self.last_beats or self.last_beats[rank][0] != beat:
                    self.last_beats[rank] = (beat, time.monotonic())
        self.store_answered_at = time.monotonic()

    def _beat_loop(self) -> None:
        while not self.stop_event.wait(self.interval):
            try:
                self.send_beat()
                self._read_beats()
            except RuntimeError:  # rank 0 is lost; the main thread will notice
                pass

    def _monitor_loop(self) -> None:
        last = time.monotonic()
        while not self.stop_event.wait(self.interval):
            now = time.monotonic()
            if now - last > self.timeout / 2:  # this process was suspended: restart all timeouts
                self.store_answered_at = self.last_progress_at = now
                self.last_beats = {rank: (beat, now) for rank, (beat, _) in self.last_beats.items()}
            last = now
            silent, stalled = self.find_silent_rank(now), self.find_stalled_rank(now)
            if silent is not None:
                self._abort_run(f"rank {silent} did not answer for {self.timeout:g} seconds")
            elif stalled is not None:
                self._abort_run(
                    f"rank {stalled} is running but makes no progress; others waited {self.timeout:g} seconds for it"
                )

    def _abort_run(self, reason: str) -> None:
        text = f"saccade train: {reason}, so this run is aborted."
        print(text, file=sys.stderr, flush=True)  # now, since a restart may succeed and print no error
        write_exit_report(ExitReport(5, text if is_launched() else "", is_final=False))
        os._exit(5)  # the main thread may be waiting for the process that hangs
