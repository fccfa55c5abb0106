"""The memory of this process and of the machine; it needs nothing of the library, so that every part may ask it."""

import ctypes
import os
from contextlib import suppress
from pathlib import Path

CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def trim_heap() -> None:
    """Let go of what is free: glibc keeps it, unless it is told not to."""
    with suppress(OSError, AttributeError):  # other systems do so by themselves, or cannot be told
        ctypes.CDLL(None).malloc_trim(0)


def available_memory() -> int | None:
    """Bytes that a new process can have: what the system says is free, or the limit of our container; None = not known."""
    known = [int(x.split()[1]) * 1024 for x in read_lines("/proc/meminfo") if x.startswith("MemAvailable:")]
    if not known:
        with suppress(AttributeError, ValueError, OSError):
            known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in CGROUP_LIMITS:
        known += [int(x) for x in read_lines(path) if x.strip().isdigit()]
    return min(known, default=None)


def resident_memory() -> int | None:
    """Bytes of memory that this process holds now; None = not known."""
    held = [int(x.split()[1]) * 1024 for x in read_lines("/proc/self/status") if x.startswith("VmRSS:")]
    return held[0] if held else None


def read_lines(path: str) -> list[str]:
    """Of a file of the system; none where it is not there."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
