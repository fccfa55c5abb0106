"""Running text larger than memory: files of raw numbers, read in windows through the page cache; `sharding` writes them."""

import hashlib
import json
import re
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

FORMAT_VERSION = 1
DTYPES = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
MAX_INDEX_BYTES = 2**24  # bytes; a thousand shards need a hundred thousand


class TokenShards:
    """Tokens on disk as if they were one array; only the windows asked for are read."""

    def __init__(self, directory: str | Path):
        self.directory = Path(directory)
        self.index = _read_index(self.directory / "index.json")
        dtype, counts = DTYPES[self.index["dtype"]], [shard["tokens"] for shard in self.index["shards"]]
        self.files = [self.directory / shard["file"] for shard in self.index["shards"]]
        for path, count in zip(self.files, counts, strict=True):
            _check_size(path, count * dtype.itemsize)
        self._memmaps = [np.memmap(path, dtype, mode="r") for path in self.files]
        self._shard_ends = list(accumulate(counts))

    def __len__(self) -> int:
        return self._shard_ends[-1]

    def __getitem__(self, token_slice: slice) -> np.ndarray:
        """The tokens of a slice, so that shards stand where an array of ids would."""
        start, end, step = token_slice.indices(len(self))
        if step != 1:
            raise ValueError(f"{self.directory}: tokens are read one after the other, not in steps of {step}.")
        return self.read_window(start, max(0, end - start))

    def read_window(self, start: int, length: int) -> np.ndarray:
        """`length` tokens from `start` on, (length,) int64, across the borders of files."""
        if start < 0 or length < 0 or start + length > len(self):
            raise ValueError(
                f"{self.directory}: tokens {start:,} to {start + length:,} were asked for; there are {len(self):,}."
            )
        out = np.empty(length, dtype=np.int64)
        first = 0
        for tokens, last in zip(self._memmaps, self._shard_ends, strict=True):
            low, high = max(start, first), min(start + length, last)
            if low < high:
                out[low - start : high - start] = tokens[low - first : high - first]
            first = last
        return out

    def verify(self) -> None:
        """Read every file and compare its SHA-256 with the index; takes as long as the disk does."""
        for path, shard in zip(self.files, self.index["shards"], strict=True):
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != shard["sha256"]:
                raise ValueError(
                    f"{path}: its bytes are not those that were written; remove {self.directory} to redo it."
                )


def fingerprint(*parts: str | bytes | Path) -> str:
    """A digest of strings, bytes and whole files: of a text and of what turns it into ids, so that re-use is exact.

    >>> fingerprint("ab", "c") == fingerprint("a", "bc")
    False
    """
    whole = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            with part.open("rb") as file:
                whole.update(hashlib.file_digest(file, "sha256").digest())
        else:
            whole.update(hashlib.sha256(part.encode() if isinstance(part, str) else part).digest())
    return whole.hexdigest()


def _read_index(path: Path) -> dict[str, Any]:
    _check_size(path, None)
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        names = [shard["file"] for shard in index["shards"]]
        counts = [shard["tokens"] for shard in index["shards"]]
        keys = [(shard["sha256"], index[name]) for shard in index["shards"] for name in ("key", "vocab", "separator")]
        good = index["format"] == FORMAT_VERSION and index["dtype"] in DTYPES and len(keys) > 0
        good = good and all(re.fullmatch(r"\d{5,9}\.bin", name) for name in names)
        good = good and all(type(count) is int and count > 0 for count in counts) and index["tokens"] == sum(counts)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: no index of shards ({error!r}); remove {path.parent} to redo it.") from error
    if not good:
        raise ValueError(f"{path}: no index of shards in format {FORMAT_VERSION}; remove {path.parent} to redo it.")
    return index


def _check_size(path: Path, expected_bytes: int | None) -> None:
    if not path.is_file() or path.is_symlink():
        raise ValueError(f"{path}: is missing or no ordinary file; remove {path.parent} to redo it.")
    size = path.stat().st_size
    if expected_bytes is None and size > MAX_INDEX_BYTES:
        raise ValueError(f"{path}: {size:,} bytes where at most {MAX_INDEX_BYTES:,} make sense; this is no index.")
    if expected_bytes is not None and size != expected_bytes:
        raise ValueError(
            f"{path}: {size:,} bytes where {expected_bytes:,} were written; remove {path.parent} to redo it."
        )
