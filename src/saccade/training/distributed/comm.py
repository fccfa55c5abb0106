"""Communication between the processes of a distributed run: gather numbers, run work on rank 0, and detect lost processes."""

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

COLLECTIVE_TIMEOUT = timedelta(minutes=30)  # for collectives that a process never joins
MAX_DISCONNECT_SECONDS = 10.0  # how long rank 0 waits for the others to disconnect
POLL_SECONDS = 0.02  # interval at which the other processes check whether rank 0 has finished


class PeerLost(ResourceError):
    """Another process of the run is lost, so this one cannot continue."""


class Communicator:
    """The connection of one process to the others."""

    def __init__(self, rank: int, size: int, store: dist.Store, heartbeat: Heartbeat):
        self.rank, self.size, self.store, self.heartbeat = rank, size, store, heartbeat
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        self.first_call_count = 0  # calls of `run_on_first` so far

    def all_gather(self, values: Sequence[float]) -> list[list[float]]:
        """The numbers of every process, by rank; a process that stalls is reported by its rank and ends the run."""
        self.heartbeat.report_progress()
        return self.all_gather_unmonitored(values)

    def all_gather_unmonitored(self, values: Sequence[float] = (0.0,)) -> list[list[float]]:
        """The same without the heartbeat timeout, for processes that differ in preparation time; waits for COLLECTIVE_TIMEOUT."""
        local = torch.tensor(values, dtype=torch.float64)
        gathered = [torch.empty_like(local) for _ in range(self.size)]
        dist.all_gather(gathered, local)
        return [row.tolist() for row in gathered]

    def run_on_first(self, work: Callable[[], Any]) -> Any:
        """The result of work that rank 0 does; the others poll, since the work may outlast the timeout of a collective."""
        self.first_call_count += 1
        key = f"first/{self.first_call_count}"
        if self.rank == 0:
            try:
                result = work()
            except BaseException as error:
                self.store.set(key, to_json({"error": type(error).__name__}))
                raise
            self.store.set(key, to_json({"result": result}))
            return result
        while not self.store.check([key]):
            time.sleep(POLL_SECONDS)
        reply = from_json(self.store.get(key))
        if "error" in reply:
            raise PeerLost(f"rank 0 stopped with {reply['error']}.")
        return reply["result"]

    def disconnect(self) -> None:
        """Leave the run; rank 0, which hosts the store, waits a little for the others to leave."""
        limit = time.monotonic() + MAX_DISCONNECT_SECONDS
        with suppress(RuntimeError):  # rank 0 left without waiting, which does no harm at this point
            left = self.store.add("left", 1)
            while self.rank == 0 and left < self.size and time.monotonic() < limit:
                time.sleep(POLL_SECONDS)
                left = self.store.add("left", 0)


@contextmanager
def _peer_lost_errors(rank: int) -> Iterator[None]:
    """Turn the errors that torch raises for a lost process into PeerLost, wherever they occur."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, PeerLost) or not _is_network_error(error):
            raise
        timed_out = "imed out" in str(error)
        reason = f"no answer for {COLLECTIVE_TIMEOUT.seconds // 60} minutes" if timed_out else "connection lost"
        raise PeerLost(f"rank {rank} cannot reach another process of this run: {reason}.") from error


def _is_network_error(error: RuntimeError) -> bool:
    markers = ("gloo", "NCCL", "Connection", "Broken pipe")
    return isinstance(error, dist.DistError) or any(marker in str(error) for marker in markers)


@lru_cache(1)
def _rendezvous_store() -> dist.Store:
    """The rendezvous store of torchrun's environment; it stays open for the life of the process."""
    store, _, _ = next(iter(rendezvous("env://", timeout=COLLECTIVE_TIMEOUT)))
    return store


_run_numbers = iter(range(2**62))  # prefixes that keep the messages of the runs of this process apart
_finished_groups: list[Any] = []  # process groups of finished runs


@contextmanager
def connect(rank: int, size: int, *, cuda: bool) -> Iterator[Communicator]:
    """Join the process group until the block ends; raises PeerLost if another process is lost."""
    with _peer_lost_errors(rank):
        store: Any = dist.PrefixStore(f"run{next(_run_numbers)}", _rendezvous_store())
        if cuda:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=COLLECTIVE_TIMEOUT)
        heartbeat = Heartbeat(store.clone(), rank, size, heartbeat_timeout())
        communicator = Communicator(rank, size, store, heartbeat)
        try:
            heartbeat.send_beat()
            communicator.all_gather([0.0])  # from here on every process has sent a heartbeat
            heartbeat.start()
            yield communicator
            communicator.disconnect()
        finally:
            heartbeat.stop()
            # when a group is garbage-collected, torch joins its threads while holding the GIL; a thread that needs the GIL
            # would deadlock, so groups are kept alive and their threads get a moment to finish
            _finished_groups.append(dist.group.WORLD)
            time.sleep(POLL_SECONDS)
            dist.destroy_process_group()
