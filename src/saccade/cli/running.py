"""What all commands share when something goes wrong: one line for a person, and an exit code for a program."""

import sys
from collections.abc import Callable


def guarded(name: str, work: Callable[[], int]) -> int:
    """Run a command; errors that a user can cause end in a sentence, not in a traceback."""
    from saccade.cli.settings import Wrong
    from saccade.data import DataError
    from saccade.training.checkpoint import Busy
    from saccade.training.disk import DiskFull
    from saccade.training.loop import Diverged
    from saccade.training.run import Refused

    try:
        return work()
    except (Refused, Wrong) as error:
        return _said(name, error, 2)
    except DataError as error:
        return _said(name, error, 3)
    except Diverged as error:
        return _said(name, error, 6)
    except (DiskFull, Busy, MemoryError) as error:
        return _said(name, error, 5)
    except ValueError as error:
        return _said(name, error, 4)
    except RuntimeError as error:
        if "not enough memory" in str(error) or "out of memory" in str(error):
            return _said(name, f"there is not enough memory ({error}). Lower train.tokens, or raise train.parts.", 5)
        raise


def _said(name: str, error: object, code: int) -> int:
    print(f"saccade {name}: {error}", file=sys.stderr)
    return code
