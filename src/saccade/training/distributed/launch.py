"""Several processes on this machine for one run: torchrun's own machinery, with the settings that make starting again reliable.

A process that is killed, or that hangs, is started again with all others, and the run goes on from its newest checkpoint. An
error that would come again ends the run: its cause is the last thing that is printed, and its code is the code of the whole.
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
FORWARDED_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")  # which torchrun passes on to its processes


def make_environment(processes: int, report_directory: Path) -> dict[str, str]:
    """What the processes are told; threads share the cores unless somebody has said otherwise."""
    told = {
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # the shared store makes some restarts fail
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # what torch says of broken connections, we say ourselves
        EXIT_REPORT_VARIABLE: str(report_directory),
    }
    return {"OMP_NUM_THREADS": str(max(1, cpu_count() // processes)), **told} | {
        name: os.environ[name] for name in ("OMP_NUM_THREADS",) if name in os.environ
    }


def signals_to_handle() -> list[str]:
    """What the launcher listens to: not what a shell has told a background job to ignore, nor `nohup` any."""
    known = [name for name in FORWARDED_SIGNALS if hasattr(signal, name)]
    return [name for name in known if signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN]


def launch(processes: int, command: Sequence[str]) -> int:
    """Run `saccade COMMAND` in so many processes; the exit code of the whole."""
    return launch_python(processes, ["-m", "saccade", *command])


def launch_python(processes: int, arguments: Sequence[str]) -> int:
    """Run Python with these arguments in so many processes, as often as it takes; the exit code of the whole."""
    with TemporaryDirectory(prefix="saccade-") as spare, _set_environment(make_environment(processes, Path(spare))):
        code, text = _launch_elastic(processes, list(arguments), Path(spare))
        said = read_exit_report(spare)
    if code and said is not None and (said.is_final or code not in (130, 143)):
        code, text = said.exit_code, said.text if said.is_final else f"{said.text}\n{text}".strip()
    if text:
        sys.stdout.flush()
        print(text, file=sys.stderr, flush=True)
    return code


def _launch_elastic(processes: int, arguments: list[str], scratch: Path) -> tuple[int, str]:
    """The code and what to say, as far as the exit of processes tells."""
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
            f"saccade train: rank {rank} was ended by {name}, and starting again {MAX_RESTARTS} times did not help. "
            "Was there enough memory? The same command goes on from the newest checkpoint."
        )
    return 0, ""


@contextmanager
def _set_environment(values: Mapping[str, str]) -> Iterator[None]:
    """An environment for children, and no reports of torchrun's own: all that matters is in the last words."""
    before = {name: os.environ.get(name) for name in values}
    os.environ |= values
    quiet = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(quiet)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
