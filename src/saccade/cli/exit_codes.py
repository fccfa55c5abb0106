"""Error handling of all commands: one line for the user, and an exit code for programs."""

import gc
import re
import sys
import traceback
from collections.abc import Callable

from saccade.cli.terminal import escape_output
from saccade.errors import ResourceError, SaccadeError
from saccade.plugins import find_plugin_frame
from saccade.system import available_memory, resident_memory

OUT_OF_MEMORY_PHRASES = ("not enough memory", "out of memory", "allocate memory")  # in the errors of torch
TRAIN_MEMORY_HINT = "Raise --train.micro-batches (gradient accumulation), or lower --train.batch-tokens."
BUG_REPORT_REQUEST = (
    "This is a bug in saccade, not a mistake of yours. Please report it with this traceback, the command, and the output of "
    "`saccade doctor`."
)
PLUGIN_BUG_NOTE = (
    "The error passes through a plugin, at {}: look there first. `saccade check` tests the entries of plugins."
)
MEMORY_HINT = "Use a smaller model or shorter texts, or close other programs."


def run_command(name: str, work: Callable[[], int]) -> int:
    """Run a command and return its exit code; errors that a user can cause are printed in one line, without a traceback."""
    _import_torch()
    with escape_output():
        try:
            return work()
        except (SystemExit, KeyboardInterrupt, BrokenPipeError):
            raise
        except BaseException as error:
            return _report_error(name, error)


def _import_torch() -> None:
    """Import torch with garbage collection off, and freeze its half million objects so that it never scans them."""
    if "torch" in sys.modules:
        return
    gc.disable()
    try:
        import torch  # noqa: F401 - later imports find it loaded
    finally:
        gc.enable()
    gc.freeze()


def _report_error(name: str, error: BaseException) -> int:
    """Print an error and return its exit code."""
    if isinstance(error, MemoryError):
        return _report_message(name, describe_memory_error(name, error), 5)
    if isinstance(error, SaccadeError):
        return _report_message(name, error, error.exit_code, final=not _may_succeed_later(error))
    if isinstance(error, OSError):
        return _report_message(name, error, 5)
    if isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in OUT_OF_MEMORY_PHRASES):
        return _report_message(name, describe_memory_error(name, error), 5)
    return _report_bug(error)


def _may_succeed_later(error: SaccadeError) -> bool:
    """Whether a restart may help: another process of the run was lost."""
    if not isinstance(error, ResourceError):
        return False
    from saccade.training.distributed import PeerLost

    return isinstance(error, PeerLost)


def describe_memory_error(name: str, error: BaseException) -> str:
    """An out-of-memory message: the size of the failed allocation, the memory used and available, and what to do."""
    allocation = re.search(r"tried to allocate ([0-9]+) bytes", str(error))
    problem = f"cannot allocate {int(allocation[1]) / 1e9:,.1f} GB" if allocation else str(error).strip().rstrip(".")
    counts = {"this process uses {:,.1f} GB": resident_memory(), "{:,.1f} GB are available": available_memory()}
    known = [text.format(count / 1e9) for text, count in counts.items() if count is not None]
    sizes = "; ".join([*([problem] if problem else []), *known])
    return f"not enough memory{': ' if sizes else ''}{sizes}. {TRAIN_MEMORY_HINT if name == 'train' else MEMORY_HINT}"


def _report_message(name: str, error: object, code: int, *, final: bool = True) -> int:
    """Report an error to the launcher of this process, or print it if there is none."""
    from saccade.training.exit_report import ExitReport, get_rank, write_exit_report

    rank = f" (rank {get_rank()})" if get_rank() else ""
    write_exit_report(ExitReport(code, f"saccade {name}{rank}: {error}", final))
    return code


def _report_bug(error: BaseException) -> int:
    """Report a bug with its traceback; of several processes one prints it, after all other output."""
    from saccade.training.exit_report import ExitReport, write_exit_report

    place = find_plugin_frame(error)
    request = PLUGIN_BUG_NOTE.format(place) if place else BUG_REPORT_REQUEST
    write_exit_report(ExitReport(1, f"{''.join(traceback.format_exception(error))}{request}"))
    return 1
