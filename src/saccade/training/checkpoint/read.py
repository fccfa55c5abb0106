"""One checkpoint, read only if it is whole: every file as large as it was written, and the same in every byte."""

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

CHECKPOINT_FORMAT = 1  # of checkpoints; higher when an older saccade could not read one
DCP_OFFSETS_KEY = (
    "DCP_SHARDING_INFO"  # where torch writes down, in the header of a file, which part of a tensor it holds
)
MAX_MANIFEST_BYTES = 2**24  # bytes; no manifest comes near


class CorruptCheckpoint(ModelError):
    """A checkpoint that is torn or was changed; the message names the file and what is wrong with it."""


@dataclass(frozen=True)
class Checkpoint:
    """One verified checkpoint."""

    path: Path
    step: int
    facts: dict[str, Any]
    groups: tuple[str, ...]

    def read_tensors(self, group: str) -> dict[str, Tensor]:
        """The tensors of one group, in memory of their own, so that the files may go."""
        if group not in self.groups:
            raise ValueError(f"{self.path} has no group {group!r} of tensors; it has {', '.join(self.groups)}.")
        if (self.path / group).is_dir():
            return merge_shards(sorted((self.path / group).iterdir()))
        with safe_open(self.path / f"{group}.safetensors", framework="pt") as file:
            return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a dictionary


def merge_shards(files: Sequence[Path]) -> dict[str, Tensor]:
    """Whole tensors of the parts that several processes have written; each file tells where in its tensor a part begins."""
    parts: dict[str, list[tuple[list[int], Tensor]]] = {}
    for path in files:
        with safe_open(path, framework="pt") as file:
            starts = json.loads((file.metadata() or {}).get(DCP_OFFSETS_KEY, "{}"))
            for name in file.keys():  # noqa: SIM118 - not a dictionary
                x = file.get_tensor(name)
                start = starts.get(name, {}).get("saved_offsets", [0] * x.dim())
                parts.setdefault(name, []).append((start, x))
    return {name: _merge_parts(found) for name, found in parts.items()}


def _merge_parts(shards: list[tuple[list[int], Tensor]]) -> Tensor:
    if len(shards) == 1:
        return shards[0][1].clone()
    first = shards[0][1]
    ends = [[a + b for a, b in zip(start, x.shape, strict=True)] for start, x in shards]
    out = first.new_empty([max(sizes) for sizes in zip(*ends, strict=True)])
    for start, x in shards:
        out[tuple(slice(a, a + b) for a, b in zip(start, x.shape, strict=True))] = x
    return out


def read_checkpoint(path: Path) -> Checkpoint:
    """A checkpoint whose every file has the size and the SHA-256 of its manifest; else Damaged."""
    try:
        return _verify_files(path, read_with_checksum(path / "manifest.json"))
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptCheckpoint(f"{path / 'manifest.json'}: is not the manifest of a checkpoint") from error


def _verify_files(path: Path, manifest: dict[str, Any]) -> Checkpoint:
    if path.name != checkpoint_name(manifest["step"]):
        raise CorruptCheckpoint(f"{path / 'manifest.json'}: belongs to {checkpoint_name(manifest['step'])}")
    files = manifest["files"]
    for name, what in files.items():
        size = (path / name).stat().st_size if (path / name).is_file() else None
        if size != what["size"]:
            came = "is missing" if size is None else f"has {size:,} bytes where {what['size']:,} were written"
            raise CorruptCheckpoint(f"{path / name}: {came}")
    for name, what in files.items():
        with (path / name).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != what["sha256"]:
                raise CorruptCheckpoint(f"{path / name}: its contents changed since it was written (SHA-256 differs)")
    facts = from_json((path / "facts.json").read_bytes())
    # a group is a file, or a directory with a file of each process
    groups = tuple({name.partition("/")[0].removesuffix(".safetensors"): 0 for name in files if "safetensors" in name})
    return Checkpoint(path, manifest["step"], facts, groups)


def read_with_checksum(path: Path) -> dict[str, Any]:
    """A sealed file of a format that is known here."""
    if not path.is_file():
        raise CorruptCheckpoint(f"{path}: is missing")
    if path.stat().st_size > MAX_MANIFEST_BYTES:
        raise CorruptCheckpoint(f"{path}: has {format_megabytes(path.stat().st_size)}, far more than was written")
    try:
        body = load_with_checksum(path.read_bytes())
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error
    if not isinstance(body.get("format"), int):
        raise CorruptCheckpoint(f"{path}: is no file of a checkpoint")
    if body["format"] > CHECKPOINT_FORMAT:
        raise ModelError(
            f"{path}: written by a newer saccade, in format {body['format']}; this one reads up to format {CHECKPOINT_FORMAT}. "
            "Install the newer saccade to go on from it, or start a run in another directory."
        )
    return body


def checkpoint_name(step: int) -> str:
    """
    >>> checkpoint_name(1200)
    'step-00001200'
    """
    return f"step-{step:08d}"
