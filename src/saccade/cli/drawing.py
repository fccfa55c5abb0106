"""Pictures that a command draws: what their fonts lack is said in one line, as everything else is."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def report_missing_fonts(command: str) -> Iterator[None]:
    """Print which characters no font of this machine has, and the package that brings one; other warnings stay warnings."""
    from saccade.render.fonts import FontWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FontWarning)
        yield
    for one in caught:
        if issubclass(one.category, FontWarning):
            print(f"saccade {command}: {one.message}", file=sys.stderr)
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
