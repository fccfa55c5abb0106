"""Memory-mapped token shards: the token ids of a text larger than memory, read in windows; `token_writer` writes them."""

import hashlib
import json
import re
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

FORMAT_VERSION = 1
DTYPES = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
MAX_INDEX_BYTES = 2**24  # the index of a thousand shards takes about 100,000 bytes


class TokenShards:
    """Token ids on disk as one array; only the windows that are requested are read."""

    def __init__(self, directory: str | Path):
        self.directory: Path = Path(directory)
        self.index: dict[str, Any] = _read_index(self.directory / "index.json")
        dtype, counts = DTYPES[self.index["dtype"]], [shard["tokens"] for shard in self.index["shards"]]
        self.files: list[Any] = [self.directory / shard["file"] for shard in self.index["shards"]]
        for path, count in zip(self.files, counts, strict=True):
            _check_size(path, count * dtype.itemsize)
        self._memmaps = [np.memmap(path, dtype, mode="r") for path in self.files]
        self._shard_ends = list(accumulate(counts))

    def __len__(self) -> int:
        return self._shard_ends[-1]

    def __getitem__(self, token_slice: slice) -> np.ndarray:
        """The tokens of a slice, so that shards can be used in place of an array of ids."""
        start, end, step = token_slice.indices(len(self))
        if step != 1:
            raise ValueError(f"{self.directory}: slices of tokens have to have a step of 1; got {step}.")
        return self.read_window(start, max(0, end - start))

    def read_window(self, start: int, length: int) -> np.ndarray:
        """Read `length` tokens from `start` on, (length,) int64, across shard boundaries."""
        if start < 0 or length < 0 or start + length > len(self):
            raise ValueError(
                f"{self.directory}: tokens {start:,} to {start + length:,} are out of range; there are {len(self):,}."
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
        """Read every file and compare its SHA-256 with the index."""
        for path, shard in zip(self.files, self.index["shards"], strict=True):
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != shard["sha256"]:
                raise ValueError(
                    f"{path}: the checksum differs from that in the index; remove {self.directory} to tokenize again."
                )


def fingerprint(*parts: str | bytes | Path) -> str:
    """A SHA-256 digest of strings, bytes and files, such as a text and its tokenizer: shards are reused only if it is the same.

    >>> fingerprint("ab", "c") == fingerprint("a", "bc")
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            with part.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        else:
            digest.update(hashlib.sha256(part.encode() if isinstance(part, str) else part).digest())
    return digest.hexdigest()


def _read_index(path: Path) -> dict[str, Any]:
    _check_size(path, None)
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        names = [shard["file"] for shard in index["shards"]]
        counts = [shard["tokens"] for shard in index["shards"]]
        keys = [(shard["sha256"], index[name]) for shard in index["shards"] for name in ("key", "vocab", "separator")]
        valid = index["format"] == FORMAT_VERSION and index["dtype"] in DTYPES and len(keys) > 0
        valid = valid and all(re.fullmatch(r"\d{5,9}\.bin", name) for name in names)
        valid = valid and all(type(count) is int and count > 0 for count in counts) and index["tokens"] == sum(counts)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{path}: not an index of shards ({error!r}); remove {path.parent} to tokenize again."
        ) from error
    if not valid:
        raise ValueError(
            f"{path}: not an index of shards in format {FORMAT_VERSION}; remove {path.parent} to tokenize again."
        )
    return index


def _check_size(path: Path, expected_bytes: int | None) -> None:
    if not path.is_file() or path.is_symlink():
        raise ValueError(f"{path}: is missing or not a regular file; remove {path.parent} to tokenize again.")
    size = path.stat().st_size
    if expected_bytes is None and size > MAX_INDEX_BYTES:
        raise ValueError(f"{path}: {size:,} bytes, but an index has at most {MAX_INDEX_BYTES:,}; this is not an index.")
    if expected_bytes is not None and size != expected_bytes:
        raise ValueError(
            f"{path}: {size:,} bytes, but {expected_bytes:,} were written; remove {path.parent} to tokenize again."
        )
