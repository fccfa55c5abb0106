"""A training owns its directory from start to end, and held-out data are only those that the run did not train on."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import saccade
from saccade import cli
from saccade.errors import DataError
from saccade.tasks.runs.run import Run
from saccade.training.checkpoint.run_lock import RunLocked, check_unlocked, lock_run
from saccade.training.events import Message
from saccade.training.loop import TrainStep
from saccade.training.run import run_training
from support.small_runs import prepare_run

HOLD = """
import sys, time
from pathlib import Path
from saccade.training.checkpoint.run_lock import lock_run
with lock_run(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def contents(where: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(where.rglob("*")) if path.is_file()}


@pytest.fixture
def other(tmp_path):
    """A process that trains in `tmp_path / "run"` for as long as it lives."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "run")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_second_training_is_refused_and_writes_nothing(home, other, capsys):
    out = home / "run"
    before = contents(out)
    command = ["train", "label", "--data", str(home / "label.tsv"), "--out", str(out), "--train.max-steps", "1"]
    assert cli.main(command) == 5
    said = capsys.readouterr().err
    assert f"{out} is in use: process {other.pid} has been training here since 20" in said
    assert "--out" in said
    assert contents(out) == before


def test_the_lock_dies_with_its_process(home, other):
    with pytest.raises(RunLocked):
        next(run_training(prepare_run(home), home / "run"))
    other.send_signal(signal.SIGKILL)
    other.wait()
    check_unlocked(home / "run")
    assert isinstance(
        next(event for event in run_training(prepare_run(home), home / "run") if not isinstance(event, Message)),
        TrainStep,
    )


def test_the_lock_is_held_from_the_first_step_to_the_result(home):
    out = home / "run"
    seen = 0
    for _ in run_training(prepare_run(home, epochs=1), out):
        seen += 1
        with pytest.raises(RunLocked, match=f"process {os.getpid()} has been training here"):
            check_unlocked(out)
    assert seen > 3
    check_unlocked(out)
    assert (out / ".lock").read_bytes() == b""


def test_an_error_in_a_callers_function_lets_go_of_the_directory(home):
    def fail(event: object) -> None:
        raise KeyError("mine")

    for _ in range(2):
        with pytest.raises(KeyError, match="mine") as caught:  # whose traceback holds every frame alive
            saccade.train("label", str(home / "label.tsv"), out=home / "run", on_event=fail)
        check_unlocked(home / "run")
        assert caught


def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch):
    def no_locks(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with lock_run(tmp_path) as warning:
        assert "a file system without locks" in warning


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": "x", "host": 1, "started": 2}', b"\xff" * 5000])
def test_an_odd_lock_file_still_locks(tmp_path, content):
    with lock_run(tmp_path):
        (tmp_path / ".lock").write_bytes(content)
        with pytest.raises(RunLocked, match=r"in use: another process is training here\. Wait"):
            check_unlocked(tmp_path)


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "mine.txt")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)), lock_run(tmp_path / "run"):
        pass
    assert (tmp_path / "mine.txt").read_text() == "precious"


def test_held_out_data_that_changed_are_refused(home, capsys):
    """A line more moves the split: examples that the model was trained on would be called held out."""
    data, out = home / "label.tsv", home / "run"
    for _ in run_training(prepare_run(home, epochs=1), out):
        pass
    held = Run(out).held_out
    assert cli.main(["evaluate", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"] == len(held)
    content = data.read_bytes()
    data.write_bytes(content + b"odd\tash\n")
    with pytest.raises(DataError, match="have changed since training"):
        _ = Run(out).held_out
    for command in ("evaluate", "audit"):
        assert cli.main([command, str(out)]) == 3
        assert f"{data}: the data of {out} have changed since training" in capsys.readouterr().err
    assert cli.main(["evaluate", str(out), "--data", str(data)]) == 0
    data.write_bytes(content)
    assert [example["text"] for example in Run(out).held_out] == [example["text"] for example in held]
