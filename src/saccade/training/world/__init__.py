"""Where a training takes place, and everything that touches torch.distributed."""

from saccade.training.world.link import Lost
from saccade.training.world.place import World, alone, joined

__all__ = ["Lost", "World", "alone", "joined"]
