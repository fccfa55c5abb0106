"""SIGTERM and SIGINT save and stop, the same command goes on as if nothing had happened, and a second signal acts at once."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from driver import differences, job, write_data

from saccade import cli
from saccade.tasks.label import Label
from saccade.training.events import CheckpointSaved, DevEvaluation, Event, RunResult
from saccade.training.loop import Learner, TrainStep
from saccade.training.prepare import prepare
from saccade.training.run import run_training

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
PATIENCE = 300  # seconds after which something hangs, however busy the machine is
FLAGS = "--family rnn --model.width 8 --train.epochs 60 --train.batch-tokens 80"
SLOW = """
import os, sys, time
from saccade.cli import main
from saccade.training.loop import Learner
from saccade.training.signals import StopSignals
real, hear = Learner.step, StopSignals._handle_signal
def step(self):
    if self.step_count == 2:
        print("in a long step", flush=True)
        while True:
            time.sleep(0.01)
    return real(self)
def heard(self, number, frame):
    hear(self, number, frame)
    os.write(1, b"heard\\n")
Learner.step, StopSignals._handle_signal = step, heard
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def home(tmp_path) -> Path:
    write_data(tmp_path)
    return tmp_path


def command(home: Path, out: str) -> list[str]:
    return ["train", "label", "--data", str(home / "label.tsv"), "--out", str(home / out), *FLAGS.split()]


def begin(
    home: Path, out: str, *, slow: bool = False, before: Callable[[], object] | None = None
) -> subprocess.Popen[str]:
    how = ["-c", SLOW] if slow else ["-m", "saccade"]
    return subprocess.Popen(
        [sys.executable, *how, *command(home, out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT,
        preexec_fn=before,
    )


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for(path: Path, count: int, child: subprocess.Popen[str]) -> None:
    """Until a file has so many lines."""
    limit = time.monotonic() + PATIENCE
    while lines(path) < count and time.monotonic() < limit and child.poll() is None:
        time.sleep(0.002)
    assert child.poll() is None, child.communicate()[0]
    assert lines(path) >= count


def test_each_signal_saves_and_stops_and_the_same_command_goes_on(home):
    before = 0
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        child = begin(home, "wild")
        wait_for(home / "wild" / "metrics.jsonl", before + 20, child)
        child.send_signal(number)
        said = child.communicate(timeout=PATIENCE)[0]
        assert child.returncode == code, said
        assert "checkpoint saved; run the same command to resume" in said
        assert "Traceback" not in said
        before = lines(home / "wild" / "metrics.jsonl")
        newest = max(int(path.name[-8:]) for path in (home / "wild" / "checkpoints").glob("step-*"))
        assert lines(home / "wild" / "speed.jsonl") == newest  # nothing was lost
    for out in ("wild", "calm"):
        assert cli.main(command(home, out)) == 0
    assert not differences(home / "calm", home / "wild")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_acts_at_once(home, number):
    """In a step that never ends: the first is heard, and only then, as two at once would be one, the second is sent."""
    with begin(home, "out", slow=True) as child:
        try:
            assert child.stdout is not None
            for word in ("in a long step", "heard"):
                assert any(word in line for line in child.stdout)
                child.send_signal(number)
            assert child.wait(timeout=PATIENCE) == -number
        finally:
            child.kill()


def ignoring(number: int) -> Callable[[], object]:
    """What a shell does for a background job before it starts it."""
    return lambda: signal.signal(number, signal.SIG_IGN)


def test_a_background_job_does_not_hear_ctrl_c_and_stops_when_it_is_told_to(home):
    """SIGINT was ignored when it was started, and stays so; SIGTERM is meant for it."""
    child = begin(home, "wild", before=ignoring(signal.SIGINT))
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
        wait_for(home / "wild" / "metrics.jsonl", lines(home / "wild" / "metrics.jsonl") + 5, child)
        child.send_signal(number)
    said = child.communicate(timeout=PATIENCE)[0]
    assert child.returncode == 143, said
    assert "checkpoint saved; run the same command to resume" in said


def raised_in(what: Callable[..., object], at: int) -> Callable[..., object]:
    """The same function, with a signal at its n-th call."""
    calls = 0

    def wrapped(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == at:
            signal.raise_signal(signal.SIGTERM)
        return what(*args, **kwargs)

    return wrapped


def events(home: Path, out: str, name: str = "label") -> Iterator[Event]:
    return run_training(prepare(job(name, home)), home / out)


@pytest.fixture
def calm(home) -> int:
    """An undisturbed run, and how often it answered."""
    calls = [0]
    real = Label.answer

    def counted(self, model, batch):
        calls[0] += 1
        return real(self, model, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Label, "answer", counted)
        *_, last = events(home, "calm")
    assert isinstance(last, RunResult)
    return calls[0]


def test_a_signal_in_any_look_stops_it_and_the_look_is_taken_again(home, calm, monkeypatch):
    """The last answer of a run is that of its report; neither is waited for."""
    assert calm >= 4
    real = Label.answer
    for at in range(1, calm + 1):
        monkeypatch.setattr(Label, "answer", raised_in(real, at))
        *seen, last = events(home, f"wild{at}")
        assert isinstance(last, RunResult)
        assert last.signal == signal.SIGTERM
        assert isinstance(seen[-1], CheckpointSaved)
        assert sum(isinstance(event, DevEvaluation) for event in seen) == at - 1
        assert not (home / f"wild{at}" / "model").exists()
        monkeypatch.setattr(Label, "answer", real)
        *_, last = events(home, f"wild{at}")
        assert isinstance(last, RunResult)
        assert last.signal is None
        assert not differences(home / "calm", home / f"wild{at}")


def test_a_signal_in_any_step_ends_with_that_step(home, calm, monkeypatch):
    real, steps = Learner.step, lines(home / "calm" / "speed.jsonl")
    for at in range(1, steps + 1):
        monkeypatch.setattr(Learner, "step", raised_in(real, at))
        seen = list(events(home, f"wild{at}"))
        assert [type(event) for event in seen[-3:]] == [TrainStep, CheckpointSaved, RunResult]
        assert sum(isinstance(event, TrainStep) for event in seen) == at
    monkeypatch.setattr(Learner, "step", real)
    for at in (1, steps // 3, steps // 2, steps - 1, steps):
        list(events(home, f"wild{at}"))
        assert not differences(home / "calm", home / f"wild{at}")


def test_a_killed_second_look_leaves_no_second_line(home, calm, monkeypatch):
    """Stopped before a look; then killed after the look but before its save; then let go on."""
    real = Label.answer
    monkeypatch.setattr(Label, "answer", raised_in(real, 1))
    list(events(home, "wild"))
    monkeypatch.setattr(Label, "answer", real)
    for event in events(home, "wild"):
        if isinstance(event, DevEvaluation):
            break  # the generator is dropped where a save would follow
    assert "dev" in (home / "wild" / "metrics.jsonl").read_text()
    list(events(home, "wild"))
    assert not differences(home / "calm", home / "wild")
