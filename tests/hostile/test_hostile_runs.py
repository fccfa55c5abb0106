"""Hostile runs: every command that opens one ends with a model error that names what is wrong, in bounded time and memory.

The runs and the process that calls the commands are in `tests/hostile`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hostile.runs import CASES

pytestmark = pytest.mark.xdist_group("hostile-runs")  # what all of them ask is made once

SECONDS = 10.0  # of the processor, which other work on the machine does not take
CHARACTERS = 1_500
NAMES = [one.name for one in CASES]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What a child process says of each command on each run; another follows behind a run that kills it."""
    home, left, found = tmp_path_factory.mktemp("runs"), NAMES, {}
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    while left:
        (home / str(len(left))).mkdir()
        command = [sys.executable, "-m", "hostile.call", str(home / str(len(left)))]
        done = subprocess.run(
            command, input=json.dumps(left), capture_output=True, text=True, env=os.environ | settings
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert lines, done.stderr[-2000:]
        told = {line["name"]: line["found"] for line in lines if "found" in line}
        found |= told
        left = left[len(told) :]
        if left:
            found[left[0]] = {"the process": {"code": done.returncode, "said": done.stderr[-2000:], "seconds": 0.0}}
            left = left[1:]
    return found


def test_no_two_are_the_same():
    assert len(set(NAMES)) == len(NAMES) > 80


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_run(outcomes: dict[str, dict[str, Any]], name: str):
    case = next(one for one in CASES if one.name == name)
    assert outcomes[name].keys() == {"predict", "look", "evaluate", "serve"}, outcomes[name]
    for command, found in outcomes[name].items():
        said = found["said"]
        assert found["code"] == 4, (command, said)
        assert not [word for word in case.says if word.lower() not in said.lower()], (command, said)
        assert len(said) < CHARACTERS
        assert said.replace("\n", "").isprintable()
        assert found["seconds"] < SECONDS
