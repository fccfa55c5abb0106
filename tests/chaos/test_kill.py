"""`kill -9` at any moment costs at most one save interval and changes nothing: not a bit of the weights, not a line."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from driver import JOBS, contents

DRIVER = Path(__file__).with_name("driver.py")


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory in memory where there is one."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as made:
        yield Path(made)


def driven(home: Path, seed: int, kills: int, **more: str) -> tuple[list[dict[str, Any]], str]:
    """What the driver told, and how to see it again."""
    calm = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    call = [sys.executable, str(DRIVER), str(home), str(seed), str(kills)]
    done = subprocess.run(call, capture_output=True, text=True, env=os.environ | calm | more)
    replay = f"seed {seed}: python tests/chaos/driver.py HOME {seed} {kills}\n{done.stdout}\n{done.stderr}"
    replay += "".join(path.read_text() for path in home.rglob("*.log"))
    assert done.returncode == 0, replay
    return [json.loads(line) for line in done.stdout.splitlines()], replay


def check(home: Path, seed: int, kills: int, record_property: Any) -> None:
    record_property("trials", kills)
    told, replay = driven(home, seed, kills)
    assert [one["name"] for one in told] == list(JOBS), replay
    assert sum(one["kills"] for one in told) >= kills, replay
    for one in told:
        assert set(one["codes"]) == {0}, replay
        assert not one["wrong"], replay
        assert one["files"] >= 10, replay  # there was something to compare
        assert one["lost"] <= one["every"], replay


def test_twenty_kills(home, record_property):
    check(home, int.from_bytes(os.urandom(3)), 20, record_property)


@pytest.mark.nightly
def test_two_hundred_kills(home, record_property):
    check(home, int.from_bytes(os.urandom(3)), 200, record_property)


@pytest.mark.nightly
def test_the_same_seed_in_two_processes(home):
    """Two interpreters that order their sets differently leave the same bytes."""
    left = []
    for salt in ("1", "2"):
        place = home / "place"
        place.mkdir()
        told, replay = driven(place, 0, 0, PYTHONHASHSEED=salt)
        assert [one["codes"] for one in told] == [[0]] * len(JOBS), replay
        left.append({name: contents(place / name.replace(" ", "_") / "calm") for name in JOBS})
        shutil.rmtree(place)
    for name in JOBS:
        one, other = (files[name] for files in left)
        assert one.keys() == other.keys()
        assert [file for file in one if one[file] != other[file]] == []
