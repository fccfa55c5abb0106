"""The tensors of a checkpoint that lie in several processes, written by all of them at once: safetensors, never a pickle."""

import warnings
from collections.abc import Mapping
from pathlib import Path

import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint import DefaultSavePlanner, HuggingFaceStorageWriter
from torch.distributed.checkpoint.api import CheckpointException

from saccade.training.distributed.world import World


class ShardWriter:
    """Writes one group of tensors after the other; the first process makes each directory, and the others follow it."""

    def __init__(self, world: World):
        self.world = world

    def write_group(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        """A file of each process; what they all hold alike is written by the first."""
        self.world.run_on_first(lambda: None)  # which has made the directory
        writer = HuggingFaceStorageWriter(str(path), save_distributed=True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                planner = DefaultSavePlanner(dedup_save_to_lowest_rank=True)
                dcp.save({name: x.detach() for name, x in tensors.items()}, storage_writer=writer, planner=planner)
        except CheckpointException as error:  # no Exception to Python, and it tells all processes what happened in one
            rank, (cause, _) = next(iter(error.failures.items()))
            if isinstance(cause, Exception):
                raise cause from None
            raise RuntimeError(f"rank {rank} could not save: {cause}") from error

    def write_groups(self, directory: Path, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """What all processes but the first do while the first saves."""
        for group, named in tensors.items():
            self.write_group(directory / group, named)
