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
from saccade.audit.suite import SuiteResult
from saccade.data.read import hash_data
from saccade.models.io.model_dir import find_tensor_files

MAX_DIGEST_CHARACTERS_SHOWN = 12  # letters of a hash that a person is shown


@dataclass(frozen=True)
class Fingerprint:
    """The weights and the data of one audit; `files` are the data where they are files."""

    weights_digest: str
    data_digest: str = ""
    files: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    builtin_data_digest: str = ""  # of what the suite brought along

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> "Fingerprint":
        return cls(
            raw["weights_digest"],
            raw["data_digest"],
            tuple(raw["files"]),
            dict(raw.get("columns", {})),
            raw.get("builtin_data_digest", ""),
        )


@dataclass(frozen=True)
class AuditRecord:
    """One finding, and what it was made of."""

    result: SuiteResult
    fingerprint: Fingerprint
    version: str = __version__


def hash_weights(directory: Path) -> str:
    """The SHA-256 of the names, kinds, shapes and values of all tensors; what else a file says of itself does not count."""
    made = hashlib.sha256()
    found: dict[str, Path] = {}
    for path in find_tensor_files(directory):
        with safe_open(path, "pt") as file:
            found |= dict.fromkeys(file.keys(), path)
    for name in sorted(found):
        with safe_open(found[name], "pt") as file:
            tensor = file.get_tensor(name).contiguous()
        made.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        made.update(tensor.flatten().view(torch.uint8).numpy().data if tensor.numel() else b"")
    return made.hexdigest()


def count_weights(directory: Path) -> int:
    """How many numbers the weights' files hold."""
    total = 0
    for path in find_tensor_files(directory):
        with safe_open(path, "pt") as file:
            total += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 - no mapping
    return total


def fingerprint_data(files: Sequence[str], columns: Mapping[str, str], sample: str) -> Fingerprint:
    """A mark of the data alone: of the bytes of files, or the name of a built-in sample."""
    return Fingerprint("", hash_data(files, columns) if files else sample, tuple(files), dict(columns))


def stale_reason(fingerprint: Fingerprint, weights_digest: str) -> str:
    """What has changed since an audit was made; "" where nothing has, as far as the files are still there."""
    if fingerprint.weights_digest != weights_digest:
        return f"the weights were {fingerprint.weights_digest[:MAX_DIGEST_CHARACTERS_SHOWN]} and are {weights_digest[:MAX_DIGEST_CHARACTERS_SHOWN]}"
    if fingerprint.files and all(Path(file).exists() for file in fingerprint.files):
        now = hash_data(fingerprint.files, fingerprint.columns)
        if now != fingerprint.data_digest:
            return f"the data ({', '.join(fingerprint.files)}) were {fingerprint.data_digest[:MAX_DIGEST_CHARACTERS_SHOWN]} and are {now[:MAX_DIGEST_CHARACTERS_SHOWN]}"
    return ""
