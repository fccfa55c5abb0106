"""Where a training takes place: which process this is, of how many, and on which device."""

from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class World:
    """A value that is handed around, so that nobody asks the environment."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def is_first(self) -> bool:
        """The one that speaks and writes."""
        return self.rank == 0


def alone(device: str = "auto") -> World:
    """One process, on the named device or on the best there is: cuda, mps, cpu."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    able = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if device in able and not able[device]():
        raise ValueError(
            f"train.device is {device}, which this machine or this build of torch does not have; use auto."
        )
    return World(device=torch.device(device))
