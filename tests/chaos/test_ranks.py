"""Several processes learn what one learns, from each example once, and read each other's checkpoints."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from ranks import LIMIT, PORTS

pytestmark = pytest.mark.xdist_group("ranks")  # what all of them ask is made once

RANKS = Path(__file__).with_name("ranks.py")


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A directory in memory where there is one."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as made:
        yield Path(made)


def told(home: Path, *what: str) -> dict[str, Any]:
    """What the things that were tried have told, by name."""
    calm = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    call = [sys.executable, "-W", "error", str(RANKS), str(home), *what]
    done = subprocess.run(call, capture_output=True, text=True, env=os.environ | calm, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {one["name"]: one["told"] for one in map(json.loads, done.stdout.splitlines())}
    assert list(found) == list(what)
    return found


@pytest.fixture(scope="module")
def tried(home: Path) -> dict[str, Any]:
    return told(home, "same_gradients", "same_losses", "uneven", "not_finite")


def test_gradients_are_those_of_one_process(tried):
    """Of the same step in float64, for readers, writers, recurrent and sparse models, in parts and with clipping."""
    found = tried["same_gradients"]
    assert len(found) == 13
    for name, apart in found.items():
        assert len(apart) == 2, name
        assert all(isinstance(one, float) and one <= 1e-12 for one in apart), (name, apart)


def test_fifty_losses_are_those_of_one_process(tried):
    found = dict(tried["same_losses"])
    assert found.pop("fell") > 0.1  # something was learnt
    assert set(found) == {"copies", "shards"}
    for name, apart in found.items():
        assert all(isinstance(one, float) and one <= 1e-5 for one in apart), (name, apart)


def test_uneven_steps_use_every_example_once_and_nobody_waits(tried):
    found = dict(tried["uneven"])
    lines = sorted(line for step in found.pop("all") for line in step)
    assert len(lines) == len(set(lines)) > 50
    assert len(found) == 4
    for name, by_rank in found.items():
        assert all(isinstance(one, list) for one in by_rank), (name, by_rank)
        assert len({len(steps) for steps in by_rank}) == 1
        assert sorted(line for steps in by_rank for step in steps for line in step) == lines, name
        if name.startswith("one row"):
            assert any(not step for steps in by_rank for step in steps)  # there were processes without work


def test_what_is_not_finite_in_one_process_reaches_the_weights_of_none(tried):
    for way in ("copies", "shards"):
        assert tried["not_finite"][way] == [{"step": 4, "same": True, "all": True, "done": 3}] * 2


@pytest.mark.nightly
def test_any_number_of_processes_reads_what_two_have_saved(home):
    found = told(home, "any_number")["any_number"]
    assert any(name.startswith("shard-00002") for name in found.pop("files"))
    for way in ("copies", "shards"):
        assert found.pop(f"{way} ran") == [["6 steps, train.max_steps = 6"]] * 2
        (again,) = found.pop(f"{way} again")
        assert again[0].startswith("resuming at step 6")
        assert again[1].startswith("saved by 2 processes")
        assert again[-1] == "8 steps, train.max_steps = 8"
    assert len(found) == 12
    for name, (steps, unlike) in found.items():
        assert set(steps) == {6}, name
        assert unlike == [], name


def test_processes_do_not_wait_for_one_that_ends_before_it_meets_them(home):
    """Nor does a process of another program take the port on which they meet: Linux gives it to no outgoing connection."""
    start = time.monotonic()
    found = told(home, "lost_before_meeting")["lost_before_meeting"]
    assert found == {"fails": ["OSError: no data", "killed", "killed"], "is killed": ["killed"] * 3}
    assert time.monotonic() - start < LIMIT
    ephemeral = Path("/proc/sys/net/ipv4/ip_local_port_range")
    assert not ephemeral.exists() or int(ephemeral.read_text().split()[0]) >= PORTS.stop
