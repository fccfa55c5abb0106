"""System information: CPU name and core count, available and resident memory; and freeing the heap.

This module imports nothing from the rest of saccade, so that every package can use it.
"""

import ctypes
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path

CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def cpu_count() -> int:
    """The number of cores that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def cpu_name() -> str:
    """The model name of the processor and its widest vector instructions, or the name of its architecture."""
    return parse_cpu_name(read_lines("/proc/cpuinfo")) or platform.processor() or platform.machine()


def trim_heap() -> None:
    """Return freed memory to the operating system; glibc otherwise keeps it in the process."""
    with suppress(OSError, AttributeError):  # no malloc_trim outside glibc
        ctypes.CDLL(None).malloc_trim(0)


def available_memory() -> int | None:
    """Available memory in bytes: the free memory of the machine or the limit of this container, if lower; None if unknown."""
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
    """The lines of a system file such as /proc/meminfo; an empty list if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def describe_machine() -> dict[str, object]:
    """The processor, memory, operating system and versions, and the date, to record with a measurement."""
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "free_gb": round((available_memory() or 0) / 1e9, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "saccade": version("saccade"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def parse_cpu_name(cpuinfo_lines: Sequence[str]) -> str:
    """The model name of the first processor and its widest vector instructions, which also determine its speed.

    >>> parse_cpu_name(["model name\t: A Processor", "flags\t\t: fpu avx avx2 avx512f"])
    'A Processor, AVX-512'
    >>> parse_cpu_name(["flags\t\t: avx2"])
    ''
    """
    pairs = [line.partition(":") for line in cpuinfo_lines]
    facts = {key.strip(): value.strip() for key, _, value in reversed(pairs)}
    flags = facts.get("flags", "").split()
    vector = next((f", {name}" for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags), "")
    return facts["model name"] + vector if "model name" in facts else ""
