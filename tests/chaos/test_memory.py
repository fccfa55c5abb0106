"""Memory stays flat; a training that runs out of memory says what to do and ends with 5; what was saved stays, and goes on."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.nightly
ROOM = 2_500_000_000  # bytes of address space: enough to begin with, and less than one large step takes


def train(home, *more, limit=None):
    def small() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    words = [
        "train",
        "language",
        "--data",
        str(home / "text.txt"),
        "--out",
        str(home / "run"),
        "--task.max-tokens",
        "512",
    ]
    words += [
        "--model.width",
        "256",
        "--model.layers",
        "2",
        "--train.batch-tokens",
        "49152",
        "--train.epochs",
        "9",
        *more,
    ]
    return subprocess.run([sys.executable, "-m", "saccade", *words], capture_output=True, text=True, preexec_fn=small)


def test_too_little_memory_is_said_and_parts_help(tmp_path):
    (tmp_path / "text.txt").write_text("a story of some words and more of them\n" * 3_000, encoding="utf-8")
    full = train(tmp_path, "--train.max-steps", "1", limit=ROOM)
    assert full.returncode == 5, full.stderr
    assert "not enough memory" in full.stderr
    assert "--train.micro-batches" in full.stderr
    assert "Traceback" not in full.stderr
    some = train(tmp_path, "--train.max-steps", "1", "--train.micro-batches", "24", limit=ROOM)
    assert some.returncode == 0, some.stderr


STEPS, SETTLED = 5_000, 1_000  # steps of a tiny training, and those after which everything has been seen once
WATCHED = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from support.small_runs import ready
from saccade.training.loop import TrainStep
from saccade.training.run import run_training

page = os.sysconf("SC_PAGE_SIZE")
given = {"epochs": 10_000, "max_steps": int(sys.argv[2]), "save_every": 200, "eval_every": 250}
for event in run_training(ready(Path(sys.argv[1]), **given), Path(sys.argv[1]) / "out"):
    if isinstance(event, TrainStep) and event.number % 50 == 0:
        held = int(Path("/proc/self/statm").read_text().split()[1]) * page
        print(event.number, held, len(os.listdir("/proc/self/fd")), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_and_open_files_stay_flat_over_many_steps(tmp_path):
    """5,000 steps with evaluations and checkpoints: the memory held grows by less than a hundredth, open files not at all."""
    from support.small_runs import write_files

    write_files(tmp_path)
    command = [sys.executable, "-c", WATCHED, str(tmp_path), str(STEPS), str(Path(__file__).parents[1])]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    rows = np.array([[int(word) for word in line.split()] for line in done.stdout.splitlines()])
    rows = rows[rows[:, 0] >= SETTLED]
    assert len(rows) == (STEPS - SETTLED) // 50 + 1
    slope = np.polyfit(rows[:, 0], rows[:, 1], 1)[0]  # bytes a step
    assert slope * (STEPS - SETTLED) < 0.01 * rows[:, 1].mean()
    assert len(set(rows[:, 2].tolist())) == 1
