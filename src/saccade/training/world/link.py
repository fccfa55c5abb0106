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
from saccade.training.packing import from_json, to_json
from saccade.training.world.heart import Heart, silence

PATIENCE = timedelta(minutes=30)  # with processes that live and do not come to where they are waited for
GOODBYE = 10.0  # seconds in which the others should have left
WAIT = 0.02  # seconds between two questions whether the first has finished


class Lost(ResourceError):
    """Another process of the run has gone away, so this one cannot go on."""


class Link:
    """The connection of one process to the others."""

    def __init__(self, rank: int, size: int, store: dist.Store, heart: Heart):
        self.rank, self.size, self.store, self.heart = rank, size, store, heart
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        self.turns = 0  # how often something was left to the first

    def gather(self, values: Sequence[float]) -> list[list[float]]:
        """The numbers of every process, by rank; who lives and does not come in time is given up by name."""
        self.heart.come()
        return self.meet(values)

    def meet(self, values: Sequence[float] = (0.0,)) -> list[list[float]]:
        """The same, where some have more to read or to prepare than others: waits as long as torch does."""
        mine = torch.tensor(values, dtype=torch.float64)
        all_of_them = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(all_of_them, mine)
        return [one.tolist() for one in all_of_them]

    def first(self, work: Callable[[], Any]) -> Any:
        """What the first makes of some work; it may take longer than any collective would wait, so the others look in."""
        self.turns += 1
        key = f"first/{self.turns}"
        if self.rank == 0:
            try:
                made = work()
            except BaseException as error:
                self.store.set(key, to_json({"stopped": type(error).__name__}))
                raise
            self.store.set(key, to_json({"made": made}))
            return made
        while not self.store.check([key]):
            time.sleep(WAIT)
        told = from_json(self.store.get(key))
        if "stopped" in told:
            raise Lost(f"the first process stopped ({told['stopped']}).")
        return told["made"]

    def leave(self) -> None:
        """Say goodbye; the first, which keeps the meeting place, waits a little for the others to do so."""
        limit = time.monotonic() + GOODBYE
        with suppress(RuntimeError):  # the first has left without waiting: nothing is lost by that any more
            left = self.store.add("left", 1)
            while self.rank == 0 and left < self.size and time.monotonic() < limit:
                time.sleep(WAIT)
                left = self.store.add("left", 0)


@contextmanager
def _reached(rank: int) -> Iterator[None]:
    """What torch says when a peer has gone becomes Lost, wherever it is said: in meeting, learning, saving or parting."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, Lost) or not _is_of_the_network(error):
            raise
        late = f"no answer for {PATIENCE.seconds // 60} minutes" if "imed out" in str(error) else "it has gone"
        raise Lost(f"rank {rank} cannot reach another process of this run: {late}.") from error


def _is_of_the_network(error: RuntimeError) -> bool:
    said = str(error)
    return isinstance(error, dist.DistError) or any(
        word in said for word in ("gloo", "NCCL", "Connection", "Broken pipe")
    )


@lru_cache(1)
def _meeting() -> dist.Store:
    """The place where all processes meet, as torchrun's environment names it; it stays open as long as the process lives."""
    store, _, _ = next(iter(rendezvous("env://", timeout=PATIENCE)))
    return store


_runs = iter(range(2**62))  # the runs of this process, each with messages of its own
_groups: list[Any] = []  # of the runs that are over


@contextmanager
def linked(rank: int, size: int, *, cuda: bool) -> Iterator[Link]:
    """Meet the others, and stay in touch until the work is done or has failed; if one of them goes away, this one is Lost."""
    with _reached(rank):
        store: Any = dist.PrefixStore(f"run{next(_runs)}", _meeting())
        if cuda:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
        heart = Heart(store.clone(), rank, size, silence())
        link = Link(rank, size, store, heart)
        try:
            heart.beat()
            link.gather([0.0])  # from here on everybody's heart can be heard
            heart.start()
            yield link
            link.leave()
        finally:
            heart.stop()
            # torch joins the threads of a group that nobody holds any more; one of them may just then need the interpreter,
            # which whoever joins it does not let go: so groups are kept, and the threads get a moment to finish
            _groups.append(dist.group.WORLD)
            time.sleep(WAIT)
            dist.destroy_process_group()
