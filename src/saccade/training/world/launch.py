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

from saccade.cores import cores
from saccade.training.lastwords import LAST_WORDS, left

RESTARTS = 3
SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")  # which torchrun passes on to its processes


def environment(processes: int, words: Path) -> dict[str, str]:
    """What the processes are told; threads share the cores unless somebody has said otherwise."""
    told = {
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # the shared store makes some restarts fail
        "TOKENIZERS_PARALLELISM": "false",
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # what torch says of broken connections, we say ourselves
        LAST_WORDS: str(words),
    }
    return {"OMP_NUM_THREADS": str(max(1, cores() // processes)), **told} | {
        name: os.environ[name] for name in ("OMP_NUM_THREADS",) if name in os.environ
    }


def signals() -> list[str]:
    """What the launcher listens to: not what a shell has told a background job to ignore, nor `nohup` any."""
    known = [name for name in SIGNALS if hasattr(signal, name)]
    return [name for name in known if signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN]


def launch(processes: int, command: Sequence[str]) -> int:
    """Run `saccade COMMAND` in so many processes; the exit code of the whole."""
    return started(processes, ["-m", "saccade", *command])


def started(processes: int, arguments: Sequence[str]) -> int:
    """Run Python with these arguments in so many processes, as often as it takes; the exit code of the whole."""
    with TemporaryDirectory(prefix="saccade-") as spare, _told(environment(processes, Path(spare))):
        code, text = _launched(processes, list(arguments), Path(spare))
        said = left(spare)
    if code and said is not None and (said.final or code not in (130, 143)):
        code, text = said.code, said.text if said.final else f"{said.text}\n{text}".strip()
    if text:
        sys.stdout.flush()
        print(text, file=sys.stderr, flush=True)
    return code


def _launched(processes: int, arguments: list[str], spare: Path) -> tuple[int, str]:
    """The code and what to say, as far as the exit of processes tells."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    (spare / "logs").mkdir()
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=spare.name,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        max_restarts=RESTARTS,
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(log_dir=str(spare / "logs")),
        signals_to_handle=",".join(signals()),
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
            f"saccade train: rank {rank} was ended by {name}, and starting again {RESTARTS} times did not help. "
            "Was there enough memory? The same command goes on from the newest checkpoint."
        )
    return 0, ""


@contextmanager
def _told(values: Mapping[str, str]) -> Iterator[None]:
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
