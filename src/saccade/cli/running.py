"""What all commands share when something goes wrong: one line for a person, and an exit code for a program."""

import traceback
from collections.abc import Callable


def guarded(name: str, work: Callable[[], int]) -> int:
    """Run a command; errors that a user can cause end in a sentence, not in a traceback."""
    from saccade.cli.settings import Wrong
    from saccade.data import DataError
    from saccade.training.checkpoint import Busy
    from saccade.training.disk import DiskFull
    from saccade.training.loop import Diverged
    from saccade.training.run import Refused
    from saccade.training.world import Lost
    from saccade.vision.open import BadPicture

    try:
        return work()
    except (Refused, Wrong) as error:
        return _said(name, error, 2)
    except (DataError, BadPicture) as error:
        return _said(name, error, 3)
    except Diverged as error:
        return _said(name, error, 6)
    except (DiskFull, Busy, MemoryError) as error:
        return _said(name, error, 5)
    except ValueError as error:
        return _said(name, error, 4)
    except Lost as error:
        return _said(name, error, 5, final=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _said(name, error, 5)
    except RuntimeError as error:
        if any(said in str(error) for said in ("not enough memory", "out of memory", "allocate memory")):
            cure = "Raise train.parts, which reads a step in more parts, or lower train.tokens."
            return _said(name, f"there is not enough memory ({error}). {cure}", 5)
        return _bug(error)
    except BaseException as error:
        return _bug(error)


def _said(name: str, error: object, code: int, *, final: bool = True) -> int:
    """Say it to the launcher of this process, or to a person where there is none."""
    from saccade.training.lastwords import Words, leave, rank

    where = f" (rank {rank()})" if rank() else ""
    leave(Words(code, f"saccade {name}{where}: {error}", final))
    return code


def _bug(error: BaseException) -> int:
    """An error of ours, whole; of several processes only one should print it, and as the last thing that is printed."""
    from saccade.training.lastwords import Words, is_launched, leave

    if isinstance(error, SystemExit | KeyboardInterrupt) or not is_launched():
        raise error
    leave(Words(1, "".join(traceback.format_exception(error)).rstrip()))
    return 1
