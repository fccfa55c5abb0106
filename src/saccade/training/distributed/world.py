"""The processes of a distributed run: rank, world size, device, and how they communicate."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from saccade.errors import UsageError
from saccade.training import exit_report
from saccade.training.distributed.comm import Communicator, connect


@dataclass(frozen=True)
class World:
    """Passed explicitly instead of read from the environment. Its methods are collective: all processes must call them."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    communicator: Communicator | None = field(default=None, repr=False, compare=False)

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which prints and writes files."""
        return self.rank == 0

    def all_gather(self, *values: float) -> list[list[float]]:
        """The numbers of every process, by rank; every process must call it within the heartbeat timeout.

        >>> World().all_gather(2, 0.5)
        [[2, 0.5]]
        """
        return [list(values)] if self.communicator is None else self.communicator.all_gather(values)

    def report_progress(self) -> None:
        """Report a synchronization point; all processes reach the same number of them, and one that falls behind ends the run."""
        if self.communicator is not None:
            self.communicator.heartbeat.report_progress()

    def barrier(self) -> None:
        """Wait for all processes, at most half an hour; for work that takes some processes longer than others."""
        if self.communicator is not None:
            self.communicator.all_gather_unmonitored()

    def run_on_first(self, work: Callable[[], Any]) -> Any:
        """Run work on rank 0 and send its result, plain values only, to the others, which wait however long it takes."""
        return work() if self.communicator is None else self.communicator.run_on_first(work)


def single_process_world(device: str = "auto") -> World:
    """A single process on a device; `auto` chooses cuda, mps or cpu, in this order."""
    return World(device=_device(device))


@contextmanager
def join_world(device: str = "auto") -> Iterator[World]:
    """Connect the processes that a launcher such as torchrun started; a single process if there was none."""
    if exit_report.get_world_size() == 1:
        yield single_process_world(device)
        return
    local = _device(device)
    if local.type == "mps":
        local = torch.device("cpu")  # a machine has only one such device
    is_cuda = local.type == "cuda"
    with connect(exit_report.get_rank(), exit_report.get_world_size(), cuda=is_cuda) as comm:
        yield World(comm.rank, comm.size, comm.device if is_cuda else local, comm)


def _device(device: str) -> torch.device:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    is_available = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if device in is_available and not is_available[device]():
        raise UsageError(
            f"Device {device} is not available on this machine or in this build of torch; use auto or cpu."
        )
    return torch.device(device)
