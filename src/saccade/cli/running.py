"""What all commands share when something goes wrong: one line for a person, and an exit code for a program."""

import gc
import re
import sys
import traceback
from collections.abc import Callable

from saccade.cli.terminal import harmless_output
from saccade.errors import ResourceError, SaccadeError
from saccade.heap import available, resident

SHORT = ("not enough memory", "out of memory", "allocate memory")  # what torch says then
TRAIN_CURE = "Raise train.parts, which reads a step in more parts, or lower train.tokens."
REPORT = (
    "This is a bug in saccade, and not your mistake. Please report it to the project with this traceback, the command, "
    "and what `saccade doctor` prints."
)
CURE = "Use a smaller model or shorter texts, or end other programs."


def guarded(name: str, work: Callable[[], int]) -> int:
    """Run a command; errors that a user can cause end in a sentence, not in a traceback."""
    _begin()
    with harmless_output():
        try:
            return work()
        except (SystemExit, KeyboardInterrupt, BrokenPipeError):
            raise
        except BaseException as error:
            return _ended(name, error)


def _begin() -> None:
    """Import torch, which all commands need, and look for garbage among its half million objects neither now nor later."""
    if "torch" in sys.modules:
        return
    gc.disable()
    try:
        import torch  # noqa: F401 - for those who import it next
    finally:
        gc.enable()
    gc.freeze()


def _ended(name: str, error: BaseException) -> int:
    """The exit code of an error, which is said."""
    if isinstance(error, MemoryError):
        return _said(name, describe_memory_error(name, error), 5)
    if isinstance(error, SaccadeError):
        return _said(name, error, error.exit_code, final=not _may_pass(error))
    if isinstance(error, OSError):
        return _said(name, error, 5)
    if isinstance(error, RuntimeError) and any(said in str(error) for said in SHORT):
        return _said(name, describe_memory_error(name, error), 5)
    return _bug(error)


def _may_pass(error: SaccadeError) -> bool:
    """Whether starting again may help: another process of the run has gone away."""
    if not isinstance(error, ResourceError):
        return False
    from saccade.training.world import Lost

    return isinstance(error, Lost)


def describe_memory_error(name: str, error: BaseException) -> str:
    """What was too large, how much this process holds and how much is free, and what to do."""
    asked = re.search(r"tried to allocate ([0-9]+) bytes", str(error))
    what = f"{int(asked[1]) / 1e9:,.1f} GB were asked for at once" if asked else str(error).strip().rstrip(".")
    counts = {"this process holds": resident(), "free are": available()}
    known = [f"{words} {count / 1e9:,.1f} GB" for words, count in counts.items() if count is not None]
    sizes = "; ".join([*([what] if what else []), *known])
    return f"there is not enough memory{': ' if sizes else ''}{sizes}. {TRAIN_CURE if name == 'train' else CURE}"


def _said(name: str, error: object, code: int, *, final: bool = True) -> int:
    """Say it to the launcher of this process, or to a person where there is none."""
    from saccade.training.lastwords import Words, leave, rank

    where = f" (rank {rank()})" if rank() else ""
    leave(Words(code, f"saccade {name}{where}: {error}", final))
    return code


def _bug(error: BaseException) -> int:
    """An error of ours, whole; of several processes only one should print it, and as the last thing that is printed."""
    from saccade.training.lastwords import Words, leave

    leave(Words(1, f"{''.join(traceback.format_exception(error))}{REPORT}"))
    return 1
