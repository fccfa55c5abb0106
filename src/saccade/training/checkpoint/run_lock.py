"""The lock of a run directory: one training run owns it from its first write to its report.

It is a file lock (flock) on `RUN/.lock`, which the operating system releases when the process ends, however it ends, so that no
lock is ever stale. While it is held, the file names its owner, for the error message of a second training run.
"""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from saccade.errors import ResourceError

LOCK_FILE = ".lock"
MAX_TRIES, SECONDS_BETWEEN_TRIES = 5, 0.05  # a process that only checks the lock holds it for an instant
MAX_OWNER_BYTES = 1000


class RunLocked(ResourceError):
    """Another process is training or saving in the same directory."""


@contextmanager
def lock_run(directory: Path) -> Iterator[str]:
    """Lock a run directory, creating it if necessary; raises RunLocked if another process owns it.

    Yields a warning if the file system does not support locks; otherwise an empty string.
    """
    directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        if not _acquire(handle, directory):
            yield f"{directory} is on a file system without locks: make sure that no other process trains in it"
            return
        _write_owner(handle)
        yield ""
        with suppress(OSError):
            os.ftruncate(handle, 0)  # so that equal runs leave equal files
    finally:
        os.close(handle)


def check_unlocked(directory: Path) -> None:
    """Raise RunLocked if a process owns a run directory now; writes nothing."""
    try:
        handle = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # no lock file, or no permission to open it
        return
    try:
        _acquire(handle, directory)
    finally:
        os.close(handle)


def _acquire(handle: int, directory: Path) -> bool:
    """Acquire the lock; False if the file system does not support locks."""
    for left in reversed(range(MAX_TRIES)):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if not left:
                raise RunLocked(_lock_message(handle, directory)) from None
            time.sleep(SECONDS_BETWEEN_TRIES)
        except OSError:
            return False
    raise AssertionError("the last try returns or raises")


def _write_owner(handle: int) -> None:
    owner = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "started": datetime.now().astimezone().isoformat(" ", "seconds"),
    }
    with suppress(OSError):  # disk full: the lock holds anyway, only its message is shorter
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(owner).encode(), 0)


def _lock_message(handle: int, directory: Path) -> str:
    try:
        owner = json.loads(os.pread(handle, MAX_OWNER_BYTES, 0))
        host = "" if owner["host"] == socket.gethostname() else f" on {owner['host']}"
        holder = f"process {int(owner['pid'])}{host} has been training here since {owner['started']}"
    except (OSError, ValueError, TypeError, KeyError):
        holder = "another process is training here"
    return (
        f"{directory} is in use: {holder}. Wait until it has finished, stop it, or name another directory with --out. "
        "Nothing was written."
    )
