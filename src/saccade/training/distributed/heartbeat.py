"""A heartbeat between processes, so that one that hangs is named and does not keep the others waiting.

A process that dies closes its connections, and the others hear of it at once. One that is stopped, or whose machine is gone,
closes nothing: then its beats stay away. One that goes round in circles beats on, so each beat says how often its main thread
came to where all meet, and whoever waits there knows who is behind.
"""

import os
import sys
import threading
import time
from typing import Any

from saccade.training.exit_report import ExitReport, is_launched, write_exit_report

DEFAULT_HEARTBEAT_TIMEOUT = 60.0  # seconds after which a process is given up


def heartbeat_timeout() -> float:
    """How long a process may be silent; SACCADE_HEARTBEAT_TIMEOUT says otherwise."""
    return float(os.environ.get("SACCADE_HEARTBEAT_TIMEOUT", DEFAULT_HEARTBEAT_TIMEOUT))


class Heartbeat:
    """Beats in the store of the run, and listens to the others; one thread speaks with the store and one watches the time."""

    def __init__(self, store: Any, rank: int, size: int, timeout: float):
        self.store, self.rank, self.size, self.timeout = store, rank, size, timeout
        self.interval = min(1.0, timeout / 10)
        self.beat_count = 0
        self.progress_count, self.last_progress_at = (
            0,
            time.monotonic(),
        )  # how often, and when last, the main thread came to where all meet
        self.last_beats: dict[int, tuple[bytes, float]] = {}  # by rank: its last beat, and when it was new
        self.store_answered_at = time.monotonic()  # when the store did so last
        self.stop_event = threading.Event()

    def start(self) -> None:
        """Beat and watch until `stop`."""
        self._read_beats()
        for work in (self._beat_loop, self._monitor_loop):
            threading.Thread(target=work, daemon=True).start()

    def stop(self) -> None:
        self.stop_event.set()

    def send_beat(self) -> None:
        """One sign of life."""
        self.beat_count += 1
        self.store.set(f"beat/{self.rank}", f"{self.beat_count} {self.progress_count}")

    def report_progress(self) -> None:
        """Said by the main thread where all meet, before it waits for the others."""
        self.progress_count, self.last_progress_at = self.progress_count + 1, time.monotonic()

    def find_silent_rank(self, now: float) -> int | None:
        """The rank that has been silent for too long; the first keeps the store, so a silent store is its silence."""
        if now - self.store_answered_at > self.timeout:
            return 0
        late = [rank for rank, (_, when) in self.last_beats.items() if now - when > self.timeout]
        return late[0] if late else None

    def find_stalled_rank(self, now: float) -> int | None:
        """The rank that lives and has not come, for too long, to where this one waits for it."""
        if now - self.last_progress_at <= self.timeout:
            return None
        # one that has just beaten lives; of any other it will soon be said that it does not answer
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
            except RuntimeError:  # the first has gone; whoever needs it will say so
                pass

    def _monitor_loop(self) -> None:
        last = time.monotonic()
        while not self.stop_event.wait(self.interval):
            now = time.monotonic()
            if now - last > self.timeout / 2:  # it was this process that stood still: all get their time anew
                self.store_answered_at = self.last_progress_at = now
                self.last_beats = {rank: (beat, now) for rank, (beat, _) in self.last_beats.items()}
            last = now
            late, stuck = self.find_silent_rank(now), self.find_stalled_rank(now)
            if late is not None:
                self._abort_run(f"rank {late} did not answer for {self.timeout:g} seconds")
            elif stuck is not None:
                self._abort_run(f"rank {stuck} lives and does not move; others waited {self.timeout:g} seconds for it")

    def _abort_run(self, why: str) -> None:
        text = f"saccade train: {why}, so this run is given up."
        print(text, file=sys.stderr, flush=True)  # now, since what comes of it may be that all goes well
        write_exit_report(ExitReport(5, text if is_launched() else "", is_final=False))
        os._exit(5)  # the main thread may be waiting for the one that hangs
