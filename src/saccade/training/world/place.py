"""Where a training takes place: which process this is, of how many, on which device, and how they speak to each other."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from saccade.errors import UsageError
from saccade.training import lastwords
from saccade.training.world.link import Link, linked


@dataclass(frozen=True)
class World:
    """A value that is handed around, so that nobody asks the environment. All processes have to call what one calls."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    link: Link | None = field(default=None, repr=False, compare=False)

    @property
    def is_first(self) -> bool:
        """The one that speaks and writes."""
        return self.rank == 0

    def gather(self, *values: float) -> list[list[float]]:
        """The numbers of every process, by rank; all have to come within the time after which a process is given up.

        >>> World().gather(2, 0.5)
        [[2, 0.5]]
        """
        return [list(values)] if self.link is None else self.link.gather(values)

    def come(self) -> None:
        """Say that this process has come so far; all come here equally often, and who does not come is given up."""
        if self.link is not None:
            self.link.heart.come()

    def meet(self) -> None:
        """Wait for all processes, where some have more to read or to prepare than others: half an hour at most."""
        if self.link is not None:
            self.link.meet()

    def first(self, work: Callable[[], Any]) -> Any:
        """What the first process makes of some work, told to all others, which wait however long it takes; plain values only."""
        return work() if self.link is None else self.link.first(work)


def alone(device: str = "auto") -> World:
    """One process, on the named device or on the best there is: cuda, mps, cpu."""
    return World(device=_device(device))


@contextmanager
def joined(device: str = "auto") -> Iterator[World]:
    """The processes that a launcher such as torchrun started, in touch with each other; one where there was no launcher."""
    if lastwords.size() == 1:
        yield alone(device)
        return
    here = _device(device)
    if here.type == "mps":
        here = torch.device("cpu")  # one such device is all a machine has
    with linked(lastwords.rank(), lastwords.size(), cuda=here.type == "cuda") as link:
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
