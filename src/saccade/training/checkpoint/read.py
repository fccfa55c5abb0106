"""Reads a checkpoint after verifying it: every file must have the size and the SHA-256 in its manifest."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from saccade.errors import ModelError
from saccade.training.checkpoint.disk import format_megabytes
from saccade.training.checkpoint.serialize import from_json, load_with_checksum

CHECKPOINT_FORMAT = 1  # version; raised when an older saccade could not read new checkpoints
DCP_OFFSETS_KEY = "DCP_SHARDING_INFO"  # header entry in which torch stores which part of a tensor a file holds
MAX_MANIFEST_BYTES = 2**24  # far above the size of any manifest


class CorruptCheckpoint(ModelError):
    """A checkpoint is incomplete or was modified; the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint."""

    path: Path
    step: int
    facts: dict[str, Any]
    groups: tuple[str, ...]

    def read_tensors(self, group: str) -> dict[str, Tensor]:
        """The tensors of one group, copied into memory, so that the files may be removed."""
        if group not in self.groups:
            raise ValueError(f"{self.path} has no group {group!r} of tensors; it has {', '.join(self.groups)}.")
        if (self.path / group).is_dir():
            return merge_shards(sorted((self.path / group).iterdir()))
        with safe_open(self.path / f"{group}.safetensors", framework="pt") as file:
            return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a dictionary


def merge_shards(files: Sequence[Path]) -> dict[str, Tensor]:
    """Full tensors from the shards of several processes; the header of each file has the offsets of its shards."""
    shards: dict[str, list[tuple[list[int], Tensor]]] = {}
    for path in files:
        with safe_open(path, framework="pt") as file:
            starts = json.loads((file.metadata() or {}).get(DCP_OFFSETS_KEY, "{}"))
            for name in file.keys():  # noqa: SIM118 - not a dictionary
                x = file.get_tensor(name)
                start = starts.get(name, {}).get("saved_offsets", [0] * x.dim())
                shards.setdefault(name, []).append((start, x))
    return {name: _merge_parts(pieces) for name, pieces in shards.items()}


def _merge_parts(shards: list[tuple[list[int], Tensor]]) -> Tensor:
    if len(shards) == 1:
        return shards[0][1].clone()
    first = shards[0][1]
    ends = [[begin + size for begin, size in zip(start, x.shape, strict=True)] for start, x in shards]
    out = first.new_empty([max(sizes) for sizes in zip(*ends, strict=True)])
    for start, x in shards:
        out[tuple(slice(begin, begin + size) for begin, size in zip(start, x.shape, strict=True))] = x
    return out


def read_checkpoint(path: Path) -> Checkpoint:
    """Read and verify a checkpoint; raises CorruptCheckpoint if a file differs from the manifest in size or SHA-256."""
    try:
        return _verify_files(path, read_with_checksum(path / "manifest.json"))
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptCheckpoint(f"{path / 'manifest.json'}: not a checkpoint manifest") from error


def _verify_files(path: Path, manifest: dict[str, Any]) -> Checkpoint:
    if path.name != checkpoint_name(manifest["step"]):
        raise CorruptCheckpoint(f"{path / 'manifest.json'}: belongs to {checkpoint_name(manifest['step'])}")
    files = manifest["files"]
    for name, expected in files.items():
        size = (path / name).stat().st_size if (path / name).is_file() else None
        if size != expected["size"]:
            problem = "is missing" if size is None else f"has {size:,} bytes instead of {expected['size']:,}"
            raise CorruptCheckpoint(f"{path / name}: {problem}")
    for name, expected in files.items():
        with (path / name).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != expected["sha256"]:
                raise CorruptCheckpoint(f"{path / name}: modified since it was written (SHA-256 differs)")
    facts = from_json((path / "facts.json").read_bytes())
    # a group is one file, or a directory with a file per process
    groups = tuple({name.partition("/")[0].removesuffix(".safetensors"): 0 for name in files if "safetensors" in name})
    return Checkpoint(path, manifest["step"], facts, groups)


def read_with_checksum(path: Path) -> dict[str, Any]:
    """Read a JSON file with checksum, and check its format version."""
    if not path.is_file():
        raise CorruptCheckpoint(f"{path}: is missing")
    if path.stat().st_size > MAX_MANIFEST_BYTES:
        raise CorruptCheckpoint(f"{path}: has {format_megabytes(path.stat().st_size)}, far too large for this file")
    try:
        body = load_with_checksum(path.read_bytes())
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error
    if not isinstance(body.get("format"), int):
        raise CorruptCheckpoint(f"{path}: not a checkpoint file")
    if body["format"] > CHECKPOINT_FORMAT:
        raise ModelError(
            f"{path}: written by a newer saccade, in format {body['format']}; this one reads up to format {CHECKPOINT_FORMAT}. "
            "Upgrade saccade to resume from it, or start a run in another directory."
        )
    return body


def checkpoint_name(step: int) -> str:
    """
    >>> checkpoint_name(1200)
    'step-00001200'
    """
    return f"step-{step:08d}"
