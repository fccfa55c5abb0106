"""Distributed training on one machine: two processes of one thread compared with one process of two threads.

    python -m benchmarks.distributed [ROUNDS]      writes docs/results/ranks.json; takes about two minutes

All processes are started once and wait. In each round, each strategy runs the same few steps of a small GPT, so that other load
on the machine affects all alike. The figures are speeds relative to the single process: DDP ("copies" of the model, as the
record calls them) and FSDP2 ("parts").
"""

import json
import os
import socket
import subprocess
import sys
from datetime import date
from pathlib import Path

from benchmarks.attention import spread

RECORD = Path(__file__).parent.parent / "docs" / "results" / "ranks.json"
STEPS, TOKENS, WINDOW, VOCAB = 2, 2048, 128, 1000
STRATEGIES = {"one process": (1, 2), "copies": (2, 1), "parts": (2, 1)}  # number of processes, threads per process
GOALS = {"copies": 0.95, "parts": 0.9}


def run_worker(strategy: str) -> None:
    """Run one process of a strategy: for each line of input it runs a few steps and prints how long they took."""
    import time

    import numpy as np
    import torch

    from saccade.models.build import new
    from saccade.models.families import gpt2
    from saccade.tasks.batches import window_batches
    from saccade.tasks.language import Language
    from saccade.training.config import Config
    from saccade.training.distributed import join_world
    from saccade.training.loop import Learner

    torch.manual_seed(0)
    torch.set_num_threads(STRATEGIES[strategy][1])
    task = Language()
    sizes = gpt2.Config(vocab=VOCAB, width=256, layers=4, heads=4, ffn_width=1024, max_positions=WINDOW)
    batches = window_batches(task, np.random.default_rng(0).integers(0, VOCAB, 200_000), WINDOW, batch_tokens=TOKENS)
    config = Config(epochs=100, batch_tokens=TOKENS, device="cpu", fsdp=strategy == "parts")
    with join_world("cpu") as world:
        learner = Learner(new("gpt2", sizes), task, batches, config, world)
        learner.step()  # warmup
        print("ready", flush=True)
        for _ in sys.stdin:
            start = time.perf_counter()
            for _ in range(STEPS):
                learner.step()
            print(time.perf_counter() - start, flush=True)


def start_workers(strategy: str) -> list[subprocess.Popen]:
    """Start all processes of a strategy."""
    processes, threads = STRATEGIES[strategy]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.distributed", "worker", strategy],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment | {"RANK": str(rank), "OMP_NUM_THREADS": str(threads)},
        )
        for rank in range(processes)
    ]


def read_lines(group: list[subprocess.Popen]) -> list[str]:
    """The next line of output of each process."""
    lines = [child.stdout.readline().strip() for child in group if child.stdout]
    assert all(lines), "a worker process has exited; see its error above"
    return lines


def time_steps(group: list[subprocess.Popen]) -> float:
    """Seconds until the slowest process of a group has finished its steps."""
    for child in group:
        assert child.stdin
        child.stdin.write("go\n")
        child.stdin.flush()
    return max(map(float, read_lines(group)))


def main(rounds: int) -> None:
    import torch

    groups = {strategy: start_workers(strategy) for strategy in STRATEGIES}
    for group in groups.values():
        read_lines(group)
    seconds: dict[str, list[float]] = {strategy: [] for strategy in STRATEGIES}
    for number in range(rounds):
        for strategy in list(STRATEGIES) if number % 2 else reversed(STRATEGIES):
            seconds[strategy].append(time_steps(groups[strategy]))
    children = [child for group in groups.values() for child in group]
    for child in children:
        assert child.stdin
        child.stdin.close()  # the worker exits at the end of its input
    for child in children:
        child.wait()
    figures = {
        strategy: {
            "times as fast as one process": spread(
                [a / b for a, b in zip(seconds["one process"], seconds[strategy], strict=True)]
            ),
            "goal": goal,
        }
        for strategy, goal in GOALS.items()
    }
    record = {
        "date": date.today().isoformat(),
        "torch": torch.__version__,
        "cores": len(os.sched_getaffinity(0)),
        "tokens a second, one process": spread([STEPS * TOKENS / s for s in seconds["one process"]]),
        "figures": figures,
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        run_worker(sys.argv[2])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
