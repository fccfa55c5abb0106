"""Two processes of one thread against one process of two threads, on the same steps of a small GPT, taking turns.

    python -m benchmarks.distributed [ROUNDS]      writes docs/results/ranks.json; about two minutes

All of them are started once and wait; in each round each in turn takes a few steps, so that whatever else the machine does
meets all alike. The figures are speeds as a share of that of the one process: copies (DDP) and parts (FSDP2) of the model.
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
WAYS = {"one process": (1, 2), "copies": (2, 1), "parts": (2, 1)}  # processes, and threads of each
GOALS = {"copies": 0.95, "parts": 0.9}


def worker(way: str) -> None:
    """One process of one way: for each line that it reads it takes some steps and says how long they took."""
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
    torch.set_num_threads(WAYS[way][1])
    task, sizes = (
        Language(),
        gpt2.Config(vocab=VOCAB, width=256, layers=4, heads=4, ffn_width=1024, max_positions=WINDOW),
    )
    read = window_batches(task, np.random.default_rng(0).integers(0, VOCAB, 200_000), WINDOW, batch_tokens=TOKENS)
    config = Config(epochs=100, batch_tokens=TOKENS, device="cpu", fsdp=way == "parts")
    with join_world("cpu") as world:
        learner = Learner(new("gpt2", sizes), task, read, config, world)
        learner.step()  # what is done only once is not measured
        print("ready", flush=True)
        for _ in sys.stdin:
            began = time.perf_counter()
            for _ in range(STEPS):
                learner.step()
            print(time.perf_counter() - began, flush=True)


def start(way: str) -> list[subprocess.Popen]:
    """All processes of one way."""
    processes, threads = WAYS[way]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    told = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.distributed", "worker", way],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | told | {"RANK": str(rank), "OMP_NUM_THREADS": str(threads)},
        )
        for rank in range(processes)
    ]


def answered(group: list[subprocess.Popen]) -> list[str]:
    """The next line of each process."""
    lines = [child.stdout.readline().strip() for child in group if child.stdout]
    assert all(lines), "a process has ended; what it said stands above"
    return lines


def taken(group: list[subprocess.Popen]) -> float:
    """The seconds of the slowest process of a group for some steps."""
    for child in group:
        assert child.stdin
        child.stdin.write("go\n")
        child.stdin.flush()
    return max(map(float, answered(group)))


def main(rounds: int) -> None:
    import torch

    groups = {way: start(way) for way in WAYS}
    for group in groups.values():
        answered(group)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(rounds):
        for way in list(WAYS) if turn % 2 else reversed(WAYS):
            seconds[way].append(taken(groups[way]))
    children = [child for group in groups.values() for child in group]
    for child in children:
        assert child.stdin
        child.stdin.close()  # which ends it
    for child in children:
        child.wait()
    figures = {
        way: {
            "times as fast as one process": spread(
                [a / b for a, b in zip(seconds["one process"], seconds[way], strict=True)]
            ),
            "goal": goal,
        }
        for way, goal in GOALS.items()
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
        worker(sys.argv[2])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
