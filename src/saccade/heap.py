"""Memory that was freed, given back to the system; it needs nothing of the library, so that every part may ask it."""

import ctypes
from contextlib import suppress


def give_back() -> None:
    """Let go of what is free: glibc keeps it, unless it is told not to."""
    with suppress(OSError, AttributeError):  # other systems do so by themselves, or cannot be told
        ctypes.CDLL(None).malloc_trim(0)
