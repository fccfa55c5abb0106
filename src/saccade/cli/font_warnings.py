"""Font warnings of plots, printed as one line of the command."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def report_missing_fonts(command: str) -> Iterator[None]:
    """Print which characters no installed font has, and the package to install; other warnings are passed on."""
    from saccade.render.fonts import FontWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FontWarning)
        yield
    for warning in caught:
        if issubclass(warning.category, FontWarning):
            print(f"saccade {command}: {warning.message}", file=sys.stderr)
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
