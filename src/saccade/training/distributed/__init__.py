"""Distributed training (DDP, FSDP): devices and processes, and everything that uses torch.distributed."""

from saccade.training.distributed.comm import PeerLost
from saccade.training.distributed.world import World, join_world, single_process_world

__all__ = ["PeerLost", "World", "join_world", "single_process_world"]
