"""Launches several processes on this machine for one run, by torch.distributed.elastic with settings for reliable restarts.

If a process is killed or hangs, all are restarted and the run resumes from its newest checkpoint. An error that would occur
again ends the run: its cause is printed last, and its exit code becomes the exit code of the launcher.
"""

import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from saccade.system import cpu_count
from saccade.training.exit_report import EXIT_REPORT_VARIABLE, read_exit_report

MAX_RESTARTS = 3
FORWARDED_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")  # that torchrun forwards to its processes


def make_environment(processes: int, report_directory: Path) -> dict[str, str]:
    """The environment variables of the processes; OMP_NUM_THREADS divides the cores among them unless it is set already."""
    variables = {
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # the shared store makes some restarts fail
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # saccade reports broken connections itself
        EXIT_REPORT_VARIABLE: str(report_directory),
    }
    return {"OMP_NUM_THREADS": str(max(1, cpu_count() // processes)), **variables} | {
        name: os.environ[name] for name in ("OMP_NUM_THREADS",) if name in os.environ
    }


def signals_to_handle() -> list[str]:
    """The signals that the launcher handles, without those ignored by a shell for background jobs or by `nohup`."""
    known = [name for name in FORWARDED_SIGNALS if hasattr(signal, name)]
    return [name for name in known if signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN]


def launch(processes: int, command: Sequence[str]) -> int:
    """Run `saccade COMMAND` in this number of processes; returns the exit code."""
    return launch_python(processes, ["-m", "saccade", *command])


def launch_python(processes: int, arguments: Sequence[str]) -> int:
    """Run Python with these arguments in this number of processes, with up to MAX_RESTARTS restarts; returns the exit code."""
    with TemporaryDirectory(prefix="saccade-") as scratch, _set_environment(make_environment(processes, Path(scratch))):
        code, text = _launch_elastic(processes, list(arguments), Path(scratch))
        report = read_exit_report(scratch)
    if code and report is not None and (report.is_final or code not in (130, 143)):
        code, text = report.exit_code, report.text if report.is_final else f"{report.text}\n{text}".strip()
    if text:
        sys.stdout.flush()
        print(text, file=sys.stderr, flush=True)
    return code


def _launch_elastic(processes: int, arguments: list[str], scratch: Path) -> tuple[int, str]:
    """The exit code and an error message, as far as the exit codes of the processes tell."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    (scratch / "logs").mkdir()
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=scratch.name,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        max_restarts=MAX_RESTARTS,
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(log_dir=str(scratch / "logs")),
        signals_to_handle=",".join(signals_to_handle()),
    )
    try:
        elastic_launch(config, sys.executable)(*arguments)
    except SignalException as error:
        return 128 + error.sigval, ""
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode >= 0:
            return failure.exitcode, ""
        name = signal.Signals(-failure.exitcode).name
        return 5, (
            f"saccade train: rank {rank} was killed by {name}, and {MAX_RESTARTS} restarts did not help. "
            "It may have run out of memory. Run the same command to resume from the newest checkpoint."
        )
    return 0, ""


@contextmanager
def _set_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for child processes and silence torchrun's logging: the exit report holds the cause."""
    previous = {name: os.environ.get(name) for name in values}
    os.environ |= values
    previous_level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(previous_level)
        for name, value in previous.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
