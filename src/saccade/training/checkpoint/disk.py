"""File operations of checkpointing: all of them go through one small class, so that tests can make each of them fail."""

import errno
import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from saccade.errors import ResourceError

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
CHUNK_BYTES = 2**22  # hashed and written at a time, small enough to be still in the CPU cache when it is written


class DiskFull(ResourceError, OSError):
    """The disk is full; `bytes_needed` and `bytes_free` are None if unknown."""

    def __init__(self, where: Path, *, bytes_needed: int | None, bytes_free: int | None):
        self.bytes_needed, self.bytes_free = bytes_needed, bytes_free
        needed = "more space" if bytes_needed is None else format_megabytes(bytes_needed)
        free = "" if bytes_free is None else f"; {format_megabytes(bytes_free)} are free"
        super().__init__(f"{where}: the disk is full. Saving needs {needed}{free}. Free some space and start again.")
        self.errno = errno.ENOSPC


def format_megabytes(count: int) -> str:
    """
    >>> format_megabytes(1_234_567_890)
    '1,234.6 MB'
    """
    return f"{count / 1e6:,.1f} MB"


def is_disk_full_error(error: BaseException) -> bool:
    """Whether the disk or the user's quota is full; libraries that write files report it only in the message.

    >>> [is_disk_full_error(e) for e in (OSError(28, ""), RuntimeError("I/O error: ... (os error 28)"), OSError(5, ""))]
    [True, True, False]
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in DISK_FULL_ERRNOS
    return any(f"(os error {number})" in str(error) for number in DISK_FULL_ERRNOS)


@contextmanager
def disk_full_errors(where: Path) -> Iterator[None]:
    """Context manager around code that writes into a directory; turns every disk-full error into DiskFull."""
    try:
        yield
    except DiskFull:
        raise
    except Exception as error:
        if not is_disk_full_error(error):
            raise
        raise DiskFull(where, bytes_needed=None, bytes_free=_free_bytes(where)) from error


def _free_bytes(where: Path) -> int | None:
    try:
        return Disk().free_bytes(next(path for path in (where, *where.parents) if path.exists()))
    except (OSError, StopIteration):
        return None


class Disk:
    """The file system. Each operation succeeds or raises OSError; only `sync` and `sync_directory` make it durable."""

    def create(self, path: Path) -> FileIO:
        """Create an empty file, opened for unbuffered writing."""
        return FileIO(path, "wb")

    def write(self, file: FileIO, buffer: memoryview) -> None:
        while buffer:
            buffer = buffer[file.write(buffer) :]

    def sync(self, file: FileIO) -> None:
        os.fsync(file.fileno())

    def sync_directory(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno != errno.EINVAL:  # some network file systems do not support it and do not need it
                raise
        finally:
            os.close(handle)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def mkdir(self, path: Path) -> None:
        os.mkdir(path)

    def remove(self, path: Path) -> None:
        """Remove one file or one empty directory."""
        if path.is_dir() and not path.is_symlink():
            os.rmdir(path)
        else:
            os.unlink(path)

    def free_bytes(self, path: Path) -> int:
        """Bytes available to this user."""
        stats = os.statvfs(path)
        return stats.f_bavail * stats.f_frsize


def make_directory(disk: Disk, path: Path) -> None:
    """Create a directory and its parents durably."""
    if not path.is_dir():
        make_directory(disk, path.parent)
        disk.mkdir(path)
        disk.sync_directory(path.parent)


def write_file(disk: Disk, path: Path, chunks: Iterable[memoryview]) -> dict[str, int | str]:
    """Write a file durably; returns its size and the SHA-256 of the data in memory, not of what is on disk."""
    digest, size = hashlib.sha256(), 0
    with disk.create(path) as file:
        for chunk in chunks:
            for start in range(0, len(chunk), CHUNK_BYTES):
                block = chunk[start : start + CHUNK_BYTES]
                digest.update(block)
                disk.write(file, block)
            size += len(chunk)
        disk.sync(file)
    return {"size": size, "sha256": digest.hexdigest()}


def hash_with_size(path: Path) -> dict[str, int | str]:
    """The size and SHA-256 of an existing file."""
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def replace_file(disk: Disk, path: Path, content: bytes) -> None:
    """Replace a small file atomically: a reader sees the old content or the new one, never a part."""
    temporary = path.with_name(f".part-{path.name}")
    write_file(disk, temporary, [memoryview(content)])
    disk.rename(temporary, path)
    disk.sync_directory(path.parent)


def remove_tree(disk: Disk, path: Path) -> None:
    """Remove a file, or a directory with its contents; of a symbolic link only the link is removed."""
    if path.is_dir() and not path.is_symlink():
        for child in sorted(path.iterdir()):
            remove_tree(disk, child)
    disk.remove(path)


@contextmanager
def lock_directory(path: Path) -> Iterator[None]:
    """Lock a directory against other writers; the operating system releases the lock when the process ends, however it ends.

    Raises BlockingIOError if another process holds the lock, and another OSError if the file system does not support locks.
    """
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)
