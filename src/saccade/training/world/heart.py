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

from saccade.training.lastwords import Words, is_launched, leave

SILENCE = 60.0  # seconds after which a process is given up


def silence() -> float:
    """How long a process may be silent; SACCADE_SILENCE says otherwise."""
    return float(os.environ.get("SACCADE_SILENCE", SILENCE))


class Heart:
    """Beats in the store of the run, and listens to the others; one thread speaks with the store and one watches the time."""

    def __init__(self, store: Any, rank: int, size: int, limit: float):
        self.store, self.rank, self.size, self.limit = store, rank, size, limit
        self.every = min(1.0, limit / 10)
        self.count = 0
        self.came, self.last = 0, time.monotonic()  # how often, and when last, the main thread came to where all meet
        self.heard: dict[int, tuple[bytes, float]] = {}  # by rank: its last beat, and when it was new
        self.answered = time.monotonic()  # when the store did so last
        self.over = threading.Event()

    def start(self) -> None:
        """Beat and watch until `stop`."""
        self._hear()
        for work in (self._beats, self._watch):
            threading.Thread(target=work, daemon=True).start()

    def stop(self) -> None:
        self.over.set()

    def beat(self) -> None:
        """One sign of life."""
        self.count += 1
        self.store.set(f"beat/{self.rank}", f"{self.count} {self.came}")

    def come(self) -> None:
        """Said by the main thread where all meet, before it waits for the others."""
        self.came, self.last = self.came + 1, time.monotonic()

    def silent(self, now: float) -> int | None:
        """The rank that has been silent for too long; the first keeps the store, so a silent store is its silence."""
        if now - self.answered > self.limit:
            return 0
        late = [rank for rank, (_, when) in self.heard.items() if now - when > self.limit]
        return late[0] if late else None

    def stuck(self, now: float) -> int | None:
        """The rank that lives and has not come, for too long, to where this one waits for it."""
        if now - self.last <= self.limit:
            return None
        # one that has just beaten lives; of any other it will soon be said that it does not answer
        alive = [(rank, beat) for rank, (beat, when) in self.heard.items() if now - when < self.limit / 2]
        behind = [rank for rank, beat in alive if int(beat.split()[1]) < self.came]
        return behind[0] if behind else None

    def _hear(self) -> None:
        for rank in range(self.size):
            if rank != self.rank:
                beat = self.store.get(f"beat/{rank}")
                if rank not in self.heard or self.heard[rank][0] != beat:
                    self.heard[rank] = (beat, time.monotonic())
        self.answered = time.monotonic()

    def _beats(self) -> None:
        while not self.over.wait(self.every):
            try:
                self.beat()
                self._hear()
            except RuntimeError:  # the first has gone; whoever needs it will say so
                pass

    def _watch(self) -> None:
        last = time.monotonic()
        while not self.over.wait(self.every):
            now = time.monotonic()
            if now - last > self.limit / 2:  # it was this process that stood still: all get their time anew
                self.answered = self.last = now
                self.heard = {rank: (beat, now) for rank, (beat, _) in self.heard.items()}
            last = now
            late, stuck = self.silent(now), self.stuck(now)
            if late is not None:
                self._give_up(f"rank {late} did not answer for {self.limit:g} seconds")
            elif stuck is not None:
                self._give_up(f"rank {stuck} lives and does not move; others waited {self.limit:g} seconds for it")

    def _give_up(self, why: str) -> None:
        text = f"saccade train: {why}, so this run is given up."
        print(text, file=sys.stderr, flush=True)  # now, since what comes of it may be that all goes well
        leave(Words(5, text if is_launched() else "", final=False))
        os._exit(5)  # the main thread may be waiting for the one that hangs
