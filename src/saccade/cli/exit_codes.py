"""What all commands share when something goes wrong: one line for a person, and an exit code for a program."""

import gc
import re
import sys
import traceback
from collections.abc import Callable

from saccade.cli.terminal import escape_output
from saccade.errors import ResourceError, SaccadeError
from saccade.system import available_memory, resident_memory

OUT_OF_MEMORY_PHRASES = ("not enough memory", "out of memory", "allocate memory")  # what torch says then
TRAIN_MEMORY_HINT = "Raise train.micro_batches, which reads a step in more parts, or lower train.batch_tokens."
BUG_REPORT_REQUEST = (
    "This is a bug in saccade, and not your mistake. Please report it to the project with this traceback, the command, "
    "and what `saccade doctor` prints."
)
MEMORY_HINT = "Use a smaller model or shorter texts, or end other programs."


def run_command(name: str, work: Callable[[], int]) -> int:
    """Run a command; errors that a user can cause end in a sentence, not in a traceback."""
    _import_torch()
    with escape_output():
        try:
            return work()
        except (SystemExit, KeyboardInterrupt, BrokenPipeError):
            raise
        except BaseException as error:
            return _report_error(name, error)


def _import_torch() -> None:
    """Import torch, which all commands need, and look for garbage among its half million objects neither now nor later."""
    if "torch" in sys.modules:
        return
    gc.disable()
    try:
        import torch  # noqa: F401 - for those who import it next
    finally:
        gc.enable()
    gc.freeze()


def _report_error(name: str, error: BaseException) -> int:
    """The exit code of an error, which is said."""
    if isinstance(error, MemoryError):
        return _report_message(name, describe_memory_error(name, error), 5)
    if isinstance(error, SaccadeError):
        return _report_message(name, error, error.exit_code, final=not _may_succeed_later(error))
    if isinstance(error, OSError):
        return _report_message(name, error, 5)
    if isinstance(error, RuntimeError) and any(said in str(error) for said in OUT_OF_MEMORY_PHRASES):
        return _report_message(name, describe_memory_error(name, error), 5)
    return _report_bug(error)


def _may_succeed_later(error: SaccadeError) -> bool:
    """Whether starting again may help: another process of the run has gone away."""
    if not isinstance(error, ResourceError):
        return False
    from saccade.training.distributed import PeerLost

    return isinstance(error, PeerLost)


def describe_memory_error(name: str, error: BaseException) -> str:
    """What was too large, how much this process holds and how much is free, and what to do."""
    asked = re.search(r"tried to allocate ([0-9]+) bytes", str(error))
    what = f"{int(asked[1]) / 1e9:,.1f} GB were asked for at once" if asked else str(error).strip().rstrip(".")
    counts = {"this process holds": resident_memory(), "free are": available_memory()}
    known = [f"{words} {count / 1e9:,.1f} GB" for words, count in counts.items() if count is not None]
    sizes = "; ".join([*([what] if what else []), *known])
    return f"there is not enough memory{': ' if sizes else ''}{sizes}. {TRAIN_MEMORY_HINT if name == 'train' else MEMORY_HINT}"


def _report_message(name: str, error: object, code: int, *, final: bool = True) -> int:
    """Say it to the launcher of this process, or to a person where there is none."""
    from saccade.training.exit_report import ExitReport, get_rank, write_exit_report

    where = f" (rank {get_rank()})" if get_rank() else ""
    write_exit_report(ExitReport(code, f"saccade {name}{where}: {error}", final))
    return code


def _report_bug(error: BaseException) -> int:
    """An error of ours, whole; of several processes only one should print it, and as the last thing that is printed."""
    from saccade.training.exit_report import ExitReport, write_exit_report

    write_exit_report(ExitReport(1, f"{''.join(traceback.format_exception(error))}{BUG_REPORT_REQUEST}"))
    return 1
