"""Tokenize a text into token shards: written once, and visible under their final name only when they are complete."""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from saccade.data.streaming.token_shards import DTYPES, FORMAT_VERSION, TokenShards

MAX_BUFFER_CHARACTERS = 2**20  # characters of text that are tokenized at a time

EncodeTexts = Callable[[list[str]], list[list[int]]]


def tokenize_to_shards(
    texts: Iterable[str],
    encode: EncodeTexts,
    directory: str | Path,
    *,
    vocab: int,
    separator: int | None,
    key: str = "",
    shard_tokens: int = 50_000_000,
) -> Iterator[int | TokenShards]:
    """Tokenize texts into a directory, or open it if its shards were written with the same `key` (see `fingerprint`).

    Yields the number of tokens written so far after each chunk, and at last the shards. `separator` is the id that follows each
    text. The directory gets its final name only when it is complete: an interrupted run leaves no partial shards, and starts
    over.
    """
    directory = Path(directory)
    if shard_tokens < 1:
        raise ValueError(f"shard_tokens is {shard_tokens}; it has to be 1 or more.")
    if separator is not None and not 0 <= separator < vocab:
        raise ValueError(f"The separator {separator} is not an id of a vocabulary of {vocab:,} tokens.")
    directory.parent.mkdir(parents=True, exist_ok=True)
    header = {"format": FORMAT_VERSION, "key": key, "vocab": vocab, "separator": separator}
    with _lock_directory(directory):
        existing = _open_existing(directory, header) if key else None
        if existing is not None:
            yield existing
            return
        _refuse_foreign_directory(directory)
        part = directory.with_name(f".{directory.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        dtype = "uint16" if vocab < 2**16 else "uint32"
        writer = _TokenShardWriter(part, DTYPES[dtype], shard_tokens)
        try:
            for ids in _encode_in_chunks(texts, encode, vocab, separator):
                writer.add(ids)
                yield writer.token_count
            writer.finish(header | {"dtype": dtype}, directory)
        except BaseException:
            writer.close()
            shutil.rmtree(part, ignore_errors=True)
            raise
        _replace_directory(part, directory)
    yield TokenShards(directory)


class _TokenShardWriter:
    """Writes ids to shards of equal size, with one file open at a time."""

    def __init__(self, partial_dir: Path, dtype: np.dtype, shard_tokens: int):
        self.partial_dir, self.dtype, self.shard_tokens = partial_dir, dtype, shard_tokens
        self.token_count, self.free_tokens = 0, 0
        self.file: BinaryIO | None = None
        self.hash = hashlib.sha256()
        self.shards: list[dict[str, Any]] = []

    def add(self, ids: np.ndarray) -> None:
        ids = ids.astype(self.dtype)
        while len(ids):
            if not self.free_tokens:
                self._start_shard()
            taken, ids = ids[: self.free_tokens], ids[self.free_tokens :]
            raw = taken.tobytes()
            assert self.file is not None
            self.file.write(raw)
            self.hash.update(raw)
            self.free_tokens -= len(taken)
            self.token_count += len(taken)

    def finish(self, header: dict[str, Any], directory: Path) -> None:
        self.close()
        if not self.token_count:
            raise ValueError(f"No tokens to write to {directory}; give at least one text that is not empty.")
        with (self.partial_dir / "index.json").open("w", encoding="utf-8") as file:
            json.dump(header | {"tokens": self.token_count, "shards": self.shards}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        if self.file is not None:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            tokens = self.shard_tokens - self.free_tokens
            self.shards.append({"file": Path(self.file.name).name, "tokens": tokens, "sha256": self.hash.hexdigest()})
            self.file = None

    def _start_shard(self) -> None:
        self.close()
        self.file = (self.partial_dir / f"{len(self.shards):05d}.bin").open("wb")
        self.hash, self.free_tokens = hashlib.sha256(), self.shard_tokens


def _encode_in_chunks(
    texts: Iterable[str], encode: EncodeTexts, vocab: int, separator: int | None
) -> Iterator[np.ndarray]:
    """The checked ids of a chunk of texts at a time, each text followed by the separator."""
    text_count = 0
    suffix = [] if separator is None else [separator]
    for chunk in _chunk_texts(texts):
        rows = encode(chunk)
        if len(rows) != len(chunk):
            raise ValueError(
                f"encode returned {len(rows)} rows of ids for {len(chunk)} texts; one row per text is needed."
            )
        for i, row in enumerate(rows):
            if row and not 0 <= min(row) <= max(row) < vocab:
                wrong = next(id for id in row if not 0 <= id < vocab)
                raise ValueError(f"Text {text_count + i} has the id {wrong}, beyond a vocabulary of {vocab:,} tokens.")
        text_count += len(chunk)
        yield np.fromiter(chain.from_iterable(chain(row, suffix) for row in rows), dtype=np.int64)


def _chunk_texts(texts: Iterable[str]) -> Iterator[list[str]]:
    chunk, size = [], 0
    for text in texts:
        chunk.append(text)
        size += len(text) + 1  # empty texts count as well
        if size >= MAX_BUFFER_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


@contextmanager
def _lock_directory(directory: Path) -> Iterator[None]:
    """Lock the directory: other processes wait, and then find the shards. The lock of a killed process is released."""
    with directory.with_name(f".{directory.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _open_existing(directory: Path, header: dict[str, Any]) -> TokenShards | None:
    """The shards that are already there, if they are intact and have the same header."""
    try:
        shards = TokenShards(directory)
        shards.verify()
    except ValueError:
        return None
    return shards if all(shards.index[name] == value for name, value in header.items()) else None


def _refuse_foreign_directory(directory: Path) -> None:
    replaceable = directory.is_dir() and ((directory / "index.json").exists() or not any(directory.iterdir()))
    if directory.exists() and not replaceable:
        raise ValueError(
            f"{directory} exists and holds no token shards, so it is not overwritten; name another directory."
        )


def _replace_directory(partial_dir: Path, directory: Path) -> None:
    """Rename the complete directory to its final name, replacing an older one."""
    _sync_directory(partial_dir)
    old = directory.with_name(f".{directory.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if directory.exists():
        directory.rename(old)
    partial_dir.rename(directory)
    _sync_directory(directory.parent)
    shutil.rmtree(old, ignore_errors=True)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
