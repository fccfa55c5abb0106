"""Where a training takes place: which process this is, of how many, on which device, and how they speak to each other."""

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
    """A value that is handed around, so that nobody asks the environment. All processes have to call what one calls."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    communicator: Communicator | None = field(default=None, repr=False, compare=False)

    @property
    def is_first(self) -> bool:
        """The one that speaks and writes."""
        return self.rank == 0

    def all_gather(self, *values: float) -> list[list[float]]:
        """The numbers of every process, by rank; all have to come within the time after which a process is given up.

        >>> World().all_gather(2, 0.5)
        [[2, 0.5]]
        """
        return [list(values)] if self.communicator is None else self.communicator.all_gather(values)

    def report_progress(self) -> None:
        """Say that this process has come so far; all come here equally often, and who does not come is given up."""
        if self.communicator is not None:
            self.communicator.heartbeat.report_progress()

    def barrier(self) -> None:
        """Wait for all processes, where some have more to read or to prepare than others: half an hour at most."""
        if self.communicator is not None:
            self.communicator.all_gather_unmonitored()

    def run_on_first(self, work: Callable[[], Any]) -> Any:
        """What the first process makes of some work, told to all others, which wait however long it takes; plain values only."""
        return work() if self.communicator is None else self.communicator.run_on_first(work)


def single_process_world(device: str = "auto") -> World:
    """One process, on the named device or on the best there is: cuda, mps, cpu."""
    return World(device=_device(device))


@contextmanager
def join_world(device: str = "auto") -> Iterator[World]:
    """The processes that a launcher such as torchrun started, in touch with each other; one where there was no launcher."""
    if exit_report.get_world_size() == 1:
        yield single_process_world(device)
        return
    here = _device(device)
    if here.type == "mps":
        here = torch.device("cpu")  # one such device is all a machine has
    with connect(exit_report.get_rank(), exit_report.get_world_size(), cuda=here.type == "cuda") as link:
        yield World(link.rank, link.size, link.device if here.type == "cuda" else here, link)


def _device(device: str) -> torch.device:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    able = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if device in able and not able[device]():
        raise UsageError(
            f"The device {device} is asked for, which this machine or this build of torch does not have; use auto or cpu."
        )
    return torch.device(device)
