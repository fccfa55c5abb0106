"""How many processor cores there are for a process; it needs nothing of the library, so that every part may ask it."""

import os


def cpu_count() -> int:
    """Those that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
