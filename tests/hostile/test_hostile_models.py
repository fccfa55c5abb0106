"""Promise D: hostile model directories are refused by name, or their hostile part is ignored and said, and nothing else happens.

The directories and the process that loads them are in `tests/hostile`; here is what has to be true of each.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hostile.models import CASES, GROUPS

pytestmark = pytest.mark.xdist_group("hostile")  # what all of them ask is made once

SECONDS = 5.0  # of the processor: loading, and encoding a modest text
MEMORY, SMALL = 300, 64  # MB above what was held before: for any directory, and for a config of a kilobyte
CHARACTERS = 1_500  # of an error
BULKY = ("MB", "million", "000", "digits", "deep")  # names of the cases whose own files are not small


def run(home: Path, names: list[str]) -> tuple[list[dict[str, Any]], int]:
    """What a child process says of each directory, and its exit code."""
    home.mkdir()
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "RUST_BACKTRACE": "0",
    }
    command = [sys.executable, "-m", "hostile.run", str(home)]
    done = subprocess.run(command, input=json.dumps(names), capture_output=True, text=True, env=os.environ | settings)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines, done.stderr[-2000:]
    return [line for line in lines if "kind" in line], done.returncode


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """One child for all, and another behind each directory that kills it."""
    home, left, found = tmp_path_factory.mktemp("hostile"), list(CASES), {}
    while left:
        done, code = run(home / str(len(left)), left)
        found |= {line["name"]: line for line in done}
        left = left[len(done) :]
        if left and code:
            found[left[0]] = {"kind": f"killed the process ({code})"}
            left = left[1:]
    return found


def test_there_are_more_than_three_hundred_and_no_two_are_the_same():
    assert len(CASES) == sum(map(len, GROUPS.values())) >= 300
    assert all(len(cases) >= 50 for cases in GROUPS.values())


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_directory(outcomes: dict[str, dict[str, Any]], name: str):
    case, found = CASES[name], outcomes[name]
    assert found["kind"] == ("loaded" if case.loads else "ValueError"), found
    said = found["said"]
    assert case.says or case.loads
    for word in case.says:
        assert word.lower() in said.lower()
    assert case.loads or "model" in said  # the path of the directory or of a file in it
    assert len(said) < CHARACTERS
    assert said.replace("\n", "").isprintable()
    assert found["events"] == []
    assert found["seconds"] < SECONDS
    small = name in {one.name for one in GROUPS["config"]} and not any(word in name for word in BULKY)
    assert found["used"] < (SMALL if small else MEMORY)


def test_the_watch_sees_what_it_is_for(tmp_path: Path):
    """The hook of the child notes a pickle, a program, a socket, a file and code of the directory."""
    program = """
import os, pickle, runpy, socket, subprocess, sys
from pathlib import Path
import hostile.run as run
run.home = Path(sys.argv[1])
(run.home / "evil.py").write_text("x = 1")
sys.addaudithook(run.hook)
run.watching = True
pickle.loads(b"cbuiltins\\nlen\\n.")
os.system("true")
subprocess.run(["true"])
socket.socket().close()
open(run.home / "new", "w").close()
exec("x = 1")
runpy.run_path(str(run.home / "evil.py"))
run.watching = False
print("\\n".join(run.events))
"""
    tests = str(Path(__file__).parents[1])
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": tests}, check=True)
    for event in ("pickle.find_class", "os.system", "subprocess.Popen", "socket.__new__", "open", "exec", "evil.py"):
        assert event in done.stdout
