"""What an audit was made of, as hashes: of the weights and of the data, so that a change of either is seen."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from saccade import __version__
from saccade.audit.suite import Finding
from saccade.data.read import digest
from saccade.models.files import tensor_files

SHORT = 12  # letters of a hash that a person is shown


@dataclass(frozen=True)
class Mark:
    """The weights and the data of one audit; `files` are the data where they are files."""

    weights: str
    data: str = ""
    files: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    source: str = ""  # of what the suite brought along

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "Mark":
        return cls(
            raw["weights"], raw["data"], tuple(raw["files"]), dict(raw.get("columns", {})), raw.get("source", "")
        )


@dataclass(frozen=True)
class Audited:
    """One finding, and what it was made of."""

    finding: Finding
    mark: Mark
    version: str = __version__


def weights_mark(directory: Path) -> str:
    """The SHA-256 of the names, kinds, shapes and values of all tensors; what else a file says of itself does not count."""
    made = hashlib.sha256()
    found: dict[str, Path] = {}
    for path in tensor_files(directory):
        with safe_open(path, "pt") as file:
            found |= dict.fromkeys(file.keys(), path)
    for name in sorted(found):
        with safe_open(found[name], "pt") as file:
            tensor = file.get_tensor(name).contiguous()
        made.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        made.update(tensor.flatten().view(torch.uint8).numpy().data if tensor.numel() else b"")
    return made.hexdigest()


def weights_size(directory: Path) -> int:
    """How many numbers the weights' files hold."""
    total = 0
    for path in tensor_files(directory):
        with safe_open(path, "pt") as file:
            total += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 - no mapping
    return total


def data_mark(files: Sequence[str], columns: Mapping[str, str], sample: str) -> Mark:
    """A mark of the data alone: of the bytes of files, or the name of a built-in sample."""
    return Mark("", digest(files, columns) if files else sample, tuple(files), dict(columns))


def changed(mark: Mark, weights: str) -> str:
    """What has changed since an audit was made; "" where nothing has, as far as the files are still there."""
    if mark.weights != weights:
        return f"the weights were {mark.weights[:SHORT]} and are {weights[:SHORT]}"
    if mark.files and all(Path(file).exists() for file in mark.files):
        now = digest(mark.files, mark.columns)
        if now != mark.data:
            return f"the data ({', '.join(mark.files)}) were {mark.data[:SHORT]} and are {now[:SHORT]}"
    return ""
