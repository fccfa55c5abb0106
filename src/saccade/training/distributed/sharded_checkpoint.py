"""Sharded checkpoints: tensors that are spread over several processes are written by all of them at once, as safetensors."""

import warnings
from collections.abc import Mapping
from pathlib import Path

import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint import DefaultSavePlanner, HuggingFaceStorageWriter
from torch.distributed.checkpoint.api import CheckpointException

from saccade.training.distributed.world import World


class ShardWriter:
    """Writes the groups of tensors one by one; rank 0 creates each directory."""

    def __init__(self, world: World):
        self.world = world

    def write_group(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        """Write one file per process; replicated tensors are written by rank 0."""
        self.world.run_on_first(lambda: None)  # wait until rank 0 has created the directory
        writer = HuggingFaceStorageWriter(str(path), save_distributed=True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                planner = DefaultSavePlanner(dedup_save_to_lowest_rank=True)
                dcp.save({name: x.detach() for name, x in tensors.items()}, storage_writer=writer, planner=planner)
        except CheckpointException as error:  # a BaseException that holds the errors of all processes
            rank, (cause, _) = next(iter(error.failures.items()))
            if isinstance(cause, Exception):
                raise cause from None
            raise RuntimeError(f"rank {rank} could not save: {cause}") from error

    def write_groups(self, directory: Path, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Called by all processes but rank 0 while rank 0 saves."""
        for group, named in tensors.items():
            self.write_group(directory / group, named)
