"""Running text larger than memory: tokenised once into files of raw numbers, then read in windows through the page cache."""

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

FORMAT = 1
DTYPES = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
CHARACTERS = 2**20  # of text that are in memory, as text and as ids, at one time
INDEX_LIMIT = 2**24  # bytes; a thousand shards need a hundred thousand

Encode = Callable[[list[str]], list[list[int]]]


class Shards:
    """Tokens on disk as if they were one array; only the windows asked for are read."""

    def __init__(self, directory: str | Path):
        self.directory = Path(directory)
        self.index = _read_index(self.directory / "index.json")
        dtype, counts = DTYPES[self.index["dtype"]], [shard["tokens"] for shard in self.index["shards"]]
        self.files = [self.directory / shard["file"] for shard in self.index["shards"]]
        for path, count in zip(self.files, counts, strict=True):
            _check_size(path, count * dtype.itemsize)
        self._maps = [np.memmap(path, dtype, mode="r") for path in self.files]
        self._ends = list(accumulate(counts))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, part: slice) -> np.ndarray:
        """The tokens of a slice, so that shards stand where an array of ids would."""
        start, end, step = part.indices(len(self))
        if step != 1:
            raise ValueError(f"{self.directory}: tokens are read one after the other, not in steps of {step}.")
        return self.window(start, max(0, end - start))

    def window(self, start: int, length: int) -> np.ndarray:
        """`length` tokens from `start` on, (length,) int64, across the borders of files."""
        if start < 0 or length < 0 or start + length > len(self):
            raise ValueError(
                f"{self.directory}: tokens {start:,} to {start + length:,} were asked for; there are {len(self):,}."
            )
        out = np.empty(length, dtype=np.int64)
        first = 0
        for tokens, last in zip(self._maps, self._ends, strict=True):
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


def write_shards(
    texts: Iterable[str],
    encode: Encode,
    directory: str | Path,
    *,
    vocab: int,
    separator: int | None,
    key: str = "",
    shard_tokens: int = 50_000_000,
    progress: Callable[[int], None] | None = None,
) -> Shards:
    """Tokenise texts into a directory, or open it where the same `key` (see `fingerprint`) has done so already.

    `separator` follows each text. `progress` hears of the tokens written so far.
    """
    done: Shards | None = None
    work = writing(texts, encode, directory, vocab=vocab, separator=separator, key=key, shard_tokens=shard_tokens)
    for found in work:
        if isinstance(found, Shards):
            done = found
        elif progress is not None:
            progress(found)
    assert done is not None, "writing ends with the shards"
    return done


def writing(
    texts: Iterable[str],
    encode: Encode,
    directory: str | Path,
    *,
    vocab: int,
    separator: int | None,
    key: str = "",
    shard_tokens: int = 50_000_000,
) -> Iterator[int | Shards]:
    """The same, step by step: gives the number of tokens written so far, again and again, and then the shards.

    What is written appears under its name only when it is whole: an interrupted writing leaves nothing that could be mistaken
    for it, and is redone.
    """
    directory = Path(directory)
    if shard_tokens < 1:
        raise ValueError(f"shard_tokens is {shard_tokens}; a file holds one token at least.")
    if separator is not None and not 0 <= separator < vocab:
        raise ValueError(f"The separator {separator} is no id of a vocabulary of {vocab:,}.")
    directory.parent.mkdir(parents=True, exist_ok=True)
    about = {"format": FORMAT, "key": key, "vocab": vocab, "separator": separator}
    with _alone(directory):
        known = _known(directory, about) if key else None
        if known is not None:
            yield known
            return
        _refuse_others(directory)
        part = directory.with_name(f".{directory.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        dtype = "uint16" if vocab < 2**16 else "uint32"
        writer = _Writer(part, DTYPES[dtype], shard_tokens)
        try:
            for ids in _encoded(texts, encode, vocab, separator):
                writer.add(ids)
                yield writer.total
            writer.finish(about | {"dtype": dtype}, directory)
        except BaseException:
            writer.close()
            shutil.rmtree(part, ignore_errors=True)
            raise
        _put(part, directory)
    yield Shards(directory)


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


class _Writer:
    """Files of equally many tokens, one open at a time."""

    def __init__(self, part: Path, dtype: np.dtype, most: int):
        self.part, self.dtype, self.most = part, dtype, most
        self.total, self.room = 0, 0
        self.file: BinaryIO | None = None
        self.hash = hashlib.sha256()
        self.shards: list[dict[str, Any]] = []

    def add(self, ids: np.ndarray) -> None:
        ids = ids.astype(self.dtype)
        while len(ids):
            if not self.room:
                self._next()
            taken, ids = ids[: self.room], ids[self.room :]
            raw = taken.tobytes()
            assert self.file is not None
            self.file.write(raw)
            self.hash.update(raw)
            self.room -= len(taken)
            self.total += len(taken)

    def finish(self, about: dict[str, Any], directory: Path) -> None:
        self.close()
        if not self.total:
            raise ValueError(f"There is no text to write to {directory}; give at least one text that is not empty.")
        with (self.part / "index.json").open("w", encoding="utf-8") as file:
            json.dump(about | {"tokens": self.total, "shards": self.shards}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        if self.file is not None:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            tokens = self.most - self.room
            self.shards.append({"file": Path(self.file.name).name, "tokens": tokens, "sha256": self.hash.hexdigest()})
            self.file = None

    def _next(self) -> None:
        self.close()
        self.file = (self.part / f"{len(self.shards):05d}.bin").open("wb")
        self.hash, self.room = hashlib.sha256(), self.most


def _encoded(texts: Iterable[str], encode: Encode, vocab: int, separator: int | None) -> Iterator[np.ndarray]:
    """The ids of some texts at a time, checked, each text followed by the separator."""
    seen = 0
    end = [] if separator is None else [separator]
    for some in _chunks(texts):
        rows = encode(some)
        if len(rows) != len(some):
            raise ValueError(f"encode gave {len(rows)} rows of ids for {len(some)} texts; one for each is needed.")
        for i, row in enumerate(rows):
            if row and not 0 <= min(row) <= max(row) < vocab:
                wrong = next(id for id in row if not 0 <= id < vocab)
                raise ValueError(f"Text {seen + i} has the id {wrong}, beyond a vocabulary of {vocab:,}.")
        seen += len(some)
        yield np.fromiter(chain.from_iterable(chain(row, end) for row in rows), dtype=np.int64)


def _chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    some, size = [], 0
    for text in texts:
        some.append(text)
        size += len(text) + 1  # an empty text takes room, too
        if size >= CHARACTERS:
            yield some
            some, size = [], 0
    if some:
        yield some


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One writer at a time; the others wait, and find the work done. A killed writer's lock goes with it."""
    with directory.with_name(f".{directory.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _known(directory: Path, about: dict[str, Any]) -> Shards | None:
    """What was written before, if it is whole and of the same making."""
    try:
        found = Shards(directory)
    except ValueError:
        return None
    return found if all(found.index[name] == value for name, value in about.items()) else None


def _refuse_others(directory: Path) -> None:
    ours = directory.is_dir() and ((directory / "index.json").exists() or not any(directory.iterdir()))
    if directory.exists() and not ours:
        raise ValueError(f"{directory} is something else than shards and is left alone; name another directory.")


def _put(part: Path, directory: Path) -> None:
    """Give the finished directory its name, in the place of an older one."""
    _sync_directory(part)
    old = directory.with_name(f".{directory.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if directory.exists():
        directory.rename(old)
    part.rename(directory)
    _sync_directory(directory.parent)
    shutil.rmtree(old, ignore_errors=True)


def _read_index(path: Path) -> dict[str, Any]:
    _check_size(path, None)
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        names = [shard["file"] for shard in index["shards"]]
        counts = [shard["tokens"] for shard in index["shards"]]
        keys = [(shard["sha256"], index[name]) for shard in index["shards"] for name in ("key", "vocab", "separator")]
        good = index["format"] == FORMAT and index["dtype"] in DTYPES and len(keys) > 0
        good = good and all(re.fullmatch(r"\d{5,9}\.bin", name) for name in names)
        good = good and all(type(count) is int and count > 0 for count in counts) and index["tokens"] == sum(counts)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: no index of shards ({error!r}); remove {path.parent} to redo it.") from error
    if not good:
        raise ValueError(f"{path}: no index of shards in format {FORMAT}; remove {path.parent} to redo it.")
    return index


def _check_size(path: Path, wanted: int | None) -> None:
    if not path.is_file() or path.is_symlink():
        raise ValueError(f"{path}: is missing or no ordinary file; remove {path.parent} to redo it.")
    size = path.stat().st_size
    if wanted is None and size > INDEX_LIMIT:
        raise ValueError(f"{path}: {size:,} bytes where at most {INDEX_LIMIT:,} make sense; this is no index.")
    if wanted is not None and size != wanted:
        raise ValueError(f"{path}: {size:,} bytes where {wanted:,} were written; remove {path.parent} to redo it.")


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
