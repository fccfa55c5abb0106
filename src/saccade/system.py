"""Processor cores and memory of this machine: CPU count, available memory, resident memory, and freeing the heap.

This module imports nothing from the rest of saccade, so that every package can use it.
"""

import ctypes
import os
from contextlib import suppress
from pathlib import Path

CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def cpu_count() -> int:
    """The number of cores that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def trim_heap() -> None:
    """Return freed memory to the operating system; glibc otherwise keeps it in the process."""
    with suppress(OSError, AttributeError):  # no malloc_trim outside glibc
        ctypes.CDLL(None).malloc_trim(0)


def available_memory() -> int | None:
    """Bytes that a new process can allocate: the free memory of the machine, or the limit of this container if that is less.

    None if unknown.
    """
    candidates = [int(x.split()[1]) * 1024 for x in read_lines("/proc/meminfo") if x.startswith("MemAvailable:")]
    if not candidates:
        with suppress(AttributeError, ValueError, OSError):
            candidates.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in CGROUP_LIMITS:
        candidates += [int(x) for x in read_lines(path) if x.strip().isdigit()]
    return min(candidates, default=None)


def resident_memory() -> int | None:
    """Resident set size of this process in bytes; None if unknown."""
    sizes = [int(x.split()[1]) * 1024 for x in read_lines("/proc/self/status") if x.startswith("VmRSS:")]
    return sizes[0] if sizes else None


def read_lines(path: str) -> list[str]:
    """The lines of a system file such as /proc/meminfo; an empty list if it does not exist."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
