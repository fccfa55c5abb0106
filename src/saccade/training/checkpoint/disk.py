"""Every file operation by which training saves, in one small object, so that tests can make each of them fail."""

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
CHUNK_BYTES = (
    2**22
)  # bytes hashed and written at a time, so that what is hashed is still in the processor's cache when written


class DiskFull(ResourceError, OSError):
    """There is no room for what has to be written; `needed` and `free` are bytes, None where nobody knows."""

    def __init__(self, where: Path, *, bytes_needed: int | None, bytes_free: int | None):
        self.bytes_needed, self.bytes_free = bytes_needed, bytes_free
        asked = "more than there is" if bytes_needed is None else f"{format_megabytes(bytes_needed)} to be free"
        there = (
            ""
            if bytes_free is None
            else f", {format_megabytes(bytes_free)}"
            if bytes_needed is None
            else f"; {format_megabytes(bytes_free)} are"
        )
        super().__init__(f"{where}: the disk is full. Saving needs {asked}{there}. Make room and start again.")
        self.errno = errno.ENOSPC


def format_megabytes(count: int) -> str:
    """
    >>> format_megabytes(1_234_567_890)
    '1,234.6 MB'
    """
    return f"{count / 1e6:,.1f} MB"


def is_disk_full_error(error: BaseException) -> bool:
    """The disk, or this user's share of it, is used up; libraries that write by themselves say so in words alone.

    >>> is_disk_full_error(OSError(28, "")), is_disk_full_error(RuntimeError("I/O error: ... (os error 28)")), is_disk_full_error(OSError(5, ""))
    (True, True, False)
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in DISK_FULL_ERRNOS
    return any(f"(os error {number})" in str(error) for number in DISK_FULL_ERRNOS)


@contextmanager
def disk_full_errors(where: Path) -> Iterator[None]:
    """Around all that writes into a directory: whoever finds the disk full, it is said in the same way."""
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
    """A real disk. Each operation happens or raises OSError; only `sync` and `sync_directory` make it last."""

    def create(self, path: Path) -> FileIO:
        """An empty file, open for writing and not buffered."""
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
            if error.errno != errno.EINVAL:  # some network file systems cannot, and need not
                raise
        finally:
            os.close(handle)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def mkdir(self, path: Path) -> None:
        os.mkdir(path)

    def remove(self, path: Path) -> None:
        """Take away one file or one empty directory."""
        if path.is_dir() and not path.is_symlink():
            os.rmdir(path)
        else:
            os.unlink(path)

    def free_bytes(self, path: Path) -> int:
        """The bytes that this user may still write there."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize


def make_directory(disk: Disk, path: Path) -> None:
    """A directory with its parents, all of which last."""
    if not path.is_dir():
        make_directory(disk, path.parent)
        disk.mkdir(path)
        disk.sync_directory(path.parent)


def write_file(disk: Disk, path: Path, chunks: Iterable[memoryview]) -> dict[str, int | str]:
    """Write a file so that it lasts; its size and SHA-256, taken from what was meant and not from what was written."""
    digest, size = hashlib.sha256(), 0
    with disk.create(path) as file:
        for piece in chunks:
            for start in range(0, len(piece), CHUNK_BYTES):
                part = piece[start : start + CHUNK_BYTES]
                digest.update(part)
                disk.write(file, part)
            size += len(piece)
        disk.sync(file)
    return {"size": size, "sha256": digest.hexdigest()}


def hash_with_size(path: Path) -> dict[str, int | str]:
    """The size and SHA-256 of a file that somebody else has written."""
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def replace_file(disk: Disk, path: Path, content: bytes) -> None:
    """Put a small file in the place of another: a reader sees the old one or the new one, never a half."""
    fresh = path.with_name(f".part-{path.name}")
    write_file(disk, fresh, [memoryview(content)])
    disk.rename(fresh, path)
    disk.sync_directory(path.parent)


def remove_tree(disk: Disk, path: Path) -> None:
    """Take away a file, or a directory with all that is in it; a link goes, what it leads to stays."""
    if path.is_dir() and not path.is_symlink():
        for child in sorted(path.iterdir()):
            remove_tree(disk, child)
    disk.remove(path)


@contextmanager
def lock_directory(path: Path) -> Iterator[None]:
    """Hold a directory against other writers; the system lets go of it when the process dies, however it dies.

    Raises BlockingIOError while another holds it, and another OSError where the file system knows no locks.
    """
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)
