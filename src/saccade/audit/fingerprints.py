"""Fingerprints of audits: hashes of the weights and the data, by which stale audits are detected."""

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

MAX_DIGEST_CHARACTERS_SHOWN = 12  # characters of a hash in messages


@dataclass(frozen=True)
class Fingerprint:
    """The weights and the data of an audit, by their hashes; `files` and `columns` are set if the data come from files."""

    weights_digest: str
    data_digest: str = ""
    files: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    builtin_data_digest: str = ""  # of the built-in test sentences of the suite

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
    """The result of one suite, and the weights and data that it was measured on."""

    result: SuiteResult
    fingerprint: Fingerprint
    version: str = __version__


def hash_weights(directory: Path) -> str:
    """The SHA-256 of the names, dtypes, shapes and values of all tensors; other metadata of the files does not count."""
    digest = hashlib.sha256()
    files: dict[str, Path] = {}
    for path in find_tensor_files(directory):
        with safe_open(path, "pt") as file:
            files |= dict.fromkeys(file.keys(), path)
    for name in sorted(files):
        with safe_open(files[name], "pt") as file:
            tensor = file.get_tensor(name).contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data if tensor.numel() else b"")
    return digest.hexdigest()


def count_weights(directory: Path) -> int:
    """The number of values in the weight files."""
    total = 0
    for path in find_tensor_files(directory):
        with safe_open(path, "pt") as file:
            total += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 - no mapping
    return total


def fingerprint_data(files: Sequence[str], columns: Mapping[str, str], sample: str) -> Fingerprint:
    """The fingerprint of data alone: the hash of the files, or the name of a built-in sample."""
    return Fingerprint("", hash_data(files, columns) if files else sample, tuple(files), dict(columns))


def stale_reason(fingerprint: Fingerprint, weights_digest: str) -> str:
    """What has changed since an audit; "" if nothing has. Data files that no longer exist are not checked."""
    if fingerprint.weights_digest != weights_digest:
        return f"the weights {_describe_change(fingerprint.weights_digest, weights_digest)}"
    if fingerprint.files and all(Path(file).exists() for file in fingerprint.files):
        data_digest = hash_data(fingerprint.files, fingerprint.columns)
        if data_digest != fingerprint.data_digest:
            change = _describe_change(fingerprint.data_digest, data_digest)
            return f"the data ({', '.join(fingerprint.files)}) {change}"
    return ""


def _describe_change(before: str, now: str) -> str:
    return f"were {before[:MAX_DIGEST_CHARACTERS_SHOWN]} and are now {now[:MAX_DIGEST_CHARACTERS_SHOWN]}"
