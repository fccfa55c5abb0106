"""How the processes of one run keep in touch: small messages, waiting for the first, and noticing who has gone or hangs."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from saccade.errors import ResourceError
from saccade.training.checkpoint.serialize import from_json, to_json
from saccade.training.distributed.heartbeat import Heartbeat, heartbeat_timeout

COLLECTIVE_TIMEOUT = timedelta(minutes=30)  # with processes that live and do not come to where they are waited for
MAX_DISCONNECT_SECONDS = 10.0  # seconds in which the others should have left
POLL_SECONDS = 0.02  # seconds between two questions whether the first has finished


class PeerLost(ResourceError):
    """Another process of the run has gone away, so this one cannot go on."""


class Communicator:
    """The connection of one process to the others."""

    def __init__(self, rank: int, size: int, store: dist.Store, heartbeat: Heartbeat):
        self.rank, self.size, self.store, self.heartbeat = rank, size, store, heartbeat
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        self.first_call_count = 0  # how often something was left to the first

    def all_gather(self, values: Sequence[float]) -> list[list[float]]:
        """The numbers of every process, by rank; who lives and does not come in time is given up by name."""
        self.heartbeat.report_progress()
        return self.all_gather_unmonitored(values)

    def all_gather_unmonitored(self, values: Sequence[float] = (0.0,)) -> list[list[float]]:
        """The same, where some have more to read or to prepare than others: waits as long as torch does."""
        mine = torch.tensor(values, dtype=torch.float64)
        all_of_them = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(all_of_them, mine)
        return [one.tolist() for one in all_of_them]

    def run_on_first(self, work: Callable[[], Any]) -> Any:
        """What the first makes of some work; it may take longer than any collective would wait, so the others look in."""
        self.first_call_count += 1
        key = f"first/{self.first_call_count}"
        if self.rank == 0:
            try:
                made = work()
            except BaseException as error:
                self.store.set(key, to_json({"error": type(error).__name__}))
                raise
            self.store.set(key, to_json({"result": made}))
            return made
        while not self.store.check([key]):
            time.sleep(POLL_SECONDS)
        told = from_json(self.store.get(key))
        if "error" in told:
            raise PeerLost(f"the first process stopped ({told['error']}).")
        return told["result"]

    def disconnect(self) -> None:
        """Say goodbye; the first, which keeps the meeting place, waits a little for the others to do so."""
        limit = time.monotonic() + MAX_DISCONNECT_SECONDS
        with suppress(RuntimeError):  # the first has left without waiting: nothing is lost by that any more
            left = self.store.add("left", 1)
            while self.rank == 0 and left < self.size and time.monotonic() < limit:
                time.sleep(POLL_SECONDS)
                left = self.store.add("left", 0)


@contextmanager
def _peer_lost_errors(rank: int) -> Iterator[None]:
    """What torch says when a peer has gone becomes Lost, wherever it is said: in meeting, learning, saving or parting."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, PeerLost) or not _is_network_error(error):
            raise
        late = (
            f"no answer for {COLLECTIVE_TIMEOUT.seconds // 60} minutes" if "imed out" in str(error) else "it has gone"
        )
        raise PeerLost(f"rank {rank} cannot reach another process of this run: {late}.") from error


def _is_network_error(error: RuntimeError) -> bool:
    said = str(error)
    return isinstance(error, dist.DistError) or any(
        word in said for word in ("gloo", "NCCL", "Connection", "Broken pipe")
    )


@lru_cache(1)
def _rendezvous_store() -> dist.Store:
    """The place where all processes meet, as torchrun's environment names it; it stays open as long as the process lives."""
    store, _, _ = next(iter(rendezvous("env://", timeout=COLLECTIVE_TIMEOUT)))
    return store


_run_numbers = iter(range(2**62))  # the runs of this process, each with messages of its own
_finished_groups: list[Any] = []  # of the runs that are over


@contextmanager
def connect(rank: int, size: int, *, cuda: bool) -> Iterator[Communicator]:
    """Meet the others, and stay in touch until the work is done or has failed; if one of them goes away, this one is Lost."""
    with _peer_lost_errors(rank):
        store: Any = dist.PrefixStore(f"run{next(_run_numbers)}", _rendezvous_store())
        if cuda:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=COLLECTIVE_TIMEOUT)
        heart = Heartbeat(store.clone(), rank, size, heartbeat_timeout())
        link = Communicator(rank, size, store, heart)
        try:
            heart.send_beat()
            link.all_gather([0.0])  # from here on everybody's heart can be heard
            heart.start()
            yield link
            link.disconnect()
        finally:
            heart.stop()
            # torch joins the threads of a group that nobody holds any more; one of them may just then need the interpreter,
            # which whoever joins it does not let go: so groups are kept, and the threads get a moment to finish
            _finished_groups.append(dist.group.WORLD)
            time.sleep(POLL_SECONDS)
            dist.destroy_process_group()
