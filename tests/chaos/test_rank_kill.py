"""One of two processes is killed, fails or hangs: the run goes on as if nothing had happened, or ends and says why."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from driver import differences, write_data
from test_ranks import home, told  # noqa: F401 - a fixture

FLAGS = "--family rnn --model.width 8 --train.batch-tokens 80 --train.save-every 5 --train.epochs"
CALM = os.environ | {"OMP_NUM_THREADS": "1"}
# a process with something wrong in it: in which one, and what
BROKEN = """
import os, signal, sys, time
from pathlib import Path
from saccade.cli import main
from saccade.training import exit_report

rank, what = sys.argv[1:3]
fresh = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"

def broken():
    from saccade.errors import DataError
    from saccade.training.checkpoint.store import CheckpointStore
    from saccade.training.checkpoint.disk import DiskFull
    from saccade.training.loop import Learner
    step, save = Learner.step, CheckpointStore.save
    signals = {"kill": signal.SIGKILL, "hang": signal.SIGSTOP, "term": signal.SIGTERM}

    def wrong_step(self):
        if self.step_count == 11 and what not in ("disk", "slow"):
            Path("when").write_text(str(time.time()))
            if what in signals:
                os.kill(os.getpid(), signals[what])
            while what == "loop":
                pass
            if what == "data":
                raise DataError("line 7 is not what it was", hint="mend it")
            if what == "bug":
                raise KeyError("a bug of ours")
        return step(self)

    def wrong_save(self, *args, **kwargs):
        if what == "slow" and not Path("when").exists():
            Path("when").write_text(str(time.time()))
            time.sleep(8)
        if what == "disk":
            Path("when").write_text(str(time.time()))
            raise DiskFull(self.directory, bytes_needed=10**9, bytes_free=10**6)
        return save(self, *args, **kwargs)

    Learner.step, CheckpointStore.save = wrong_step, wrong_save

if fresh and os.environ.get("RANK") == rank and exit_report.read_exit_report() is None:
    broken()
sys.exit(main(sys.argv[3:]))
"""


def check(found: dict, kills: int) -> None:
    for name, one in found.items():
        assert one["killed"] >= kills // 2, (name, one)
        assert one["wrong"] == [], (name, one)
        assert one["files"] >= 10
        steps = one["codes"][0][0]
        # whoever is killed when all is done leaves the other one in peace
        assert all(set(said) - {"killed"} == {steps} for said in one["codes"]), (name, one)


def test_ten_kills_change_nothing(home, record_property):  # noqa: F811
    """Five of a process with a copy of the model, five of one with a part of it; the weights are the same bit for bit."""
    what = f"kills-{int.from_bytes(os.urandom(3))}-10"
    print(f"python tests/chaos/ranks.py HOME {what}")
    record_property("trials", 10)
    check(told(home, what)[what], 10)


@pytest.mark.nightly
def test_fifty_kills_change_nothing(home, record_property):  # noqa: F811
    what = f"kills-{int.from_bytes(os.urandom(3))}-50"
    print(f"python tests/chaos/ranks.py HOME {what}")
    record_property("trials", 50)
    check(told(home, what)[what], 50)


def launch(where: Path, rank: int, what: str, out: str, *, epochs: int = 4, **more: str) -> tuple[int, str, float]:
    """`saccade train --processes 2` with something wrong in one process; its code, its words, and the seconds after that."""
    if not (where / "label.tsv").exists():
        write_data(where)
        (where / "broken.py").write_text(BROKEN)
    words = ["train", "label", "--data", "label.tsv", "--out", out, *FLAGS.split(), str(epochs)]
    call = (
        "import sys; sys.argv[0] = 'saccade';"
        "from saccade.training.distributed import launch;"
        f"sys.exit(launch.launch_python(2, ['broken.py', '{rank}', '{what}', *{words!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", call], cwd=where, capture_output=True, text=True, env=CALM | more, timeout=900
    )
    when = where / "when"
    return done.returncode, done.stdout + done.stderr, time.time() - float(when.read_text()) if when.exists() else 0.0


def test_a_killed_process_is_started_again(tmp_path):
    code, said, _ = launch(tmp_path, 1, "kill", "wild")
    assert code == 0, said
    assert "a process was lost; restarted (1 of at most 3 times)" in said
    assert "resuming at step 10" in said
    code, said, _ = launch(tmp_path, 1, "nothing", "calm")
    assert code == 0, said
    assert "restarted" not in said
    assert not differences(tmp_path / "calm", tmp_path / "wild")


@pytest.mark.parametrize(
    ("rank", "what", "code", "last"),
    [
        (1, "data", 3, r"saccade train \(rank 1\): line 7 is not what it was"),
        (0, "disk", 5, r"saccade train: .*the disk is full. Saving needs 1,000.0 MB"),
    ],
)
def test_an_error_of_one_process_ends_all_and_is_said_last(tmp_path, rank, what, code, last):
    found, said, seconds = launch(tmp_path, rank, what, "out", epochs=400, SACCADE_HEARTBEAT_TIMEOUT="600")
    assert found == code, said
    assert re.match(last, said.splitlines()[-1]), said
    assert "Traceback" not in said
    assert "restarted" not in said
    assert 0 < seconds < 300  # nobody waits until the other has been silent for too long


@pytest.mark.nightly
def test_a_bug_in_one_process_is_said_last(tmp_path):
    code, said, _ = launch(tmp_path, 1, "bug", "out", epochs=400)
    assert code == 1
    assert said.splitlines()[-1] == "KeyError: 'a bug of ours'"
    assert said.count("Traceback") == 1


@pytest.mark.nightly
def test_a_process_that_hangs_is_named(tmp_path):
    for rank in (1, 0):
        code, said, seconds = launch(tmp_path, rank, "hang", f"out{rank}", SACCADE_HEARTBEAT_TIMEOUT="5")
        assert code == 0, said  # the hanging one is killed, and all are started again
        assert "restarted (1 of at most 3 times)" in said
        assert seconds < 120
        assert f"rank {rank} did not answer for 5 seconds" in said


@pytest.mark.nightly
@pytest.mark.parametrize("rank", [1, 0])
def test_a_process_that_goes_round_in_circles_is_named(tmp_path, rank):
    code, said, seconds = launch(tmp_path, rank, "loop", "out", SACCADE_HEARTBEAT_TIMEOUT="5")
    assert code == 0, said  # it is killed, and all are started again
    assert "restarted (1 of at most 3 times)" in said
    assert f"rank {rank} is running but makes no progress; others waited 5 seconds for it" in said
    assert seconds < 120


@pytest.mark.nightly
def test_long_work_of_the_first_alone_is_no_hanging(tmp_path):
    code, said, _ = launch(tmp_path, 0, "slow", "out", SACCADE_HEARTBEAT_TIMEOUT="3")
    assert code == 0, said
    assert "aborted" not in said
    assert "restarted" not in said


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_stops_all(tmp_path, number):
    write_data(tmp_path)
    words = ["train", "label", "--data", "label.tsv", "--out", "out", "--processes", "2", *FLAGS.split(), "4000"]
    with subprocess.Popen(
        [sys.executable, "-m", "saccade", *words], cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=CALM
    ) as child:
        assert child.stdout
        for line in child.stdout:
            if line.startswith("step"):
                child.send_signal(number)
                break
        said = child.stdout.read()
        assert child.wait(timeout=300) == 128 + number, said
        assert "checkpoint saved; run the same command to resume" in said
    assert list((tmp_path / "out" / "checkpoints").glob("step-*"))


@pytest.mark.nightly
def test_several_processes_in_the_background_do_not_hear_ctrl_c(tmp_path):
    """A shell starts them with SIGINT ignored, and so it stays for the launcher and for all that it starts."""
    write_data(tmp_path)
    words = ["train", "label", "--data", "label.tsv", "--out", "out", "--processes", "2", *FLAGS.split(), "4000"]
    command, ignore = [sys.executable, "-m", "saccade", *words], lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=CALM, preexec_fn=ignore, start_new_session=True
    ) as child:
        assert child.stdout
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            assert any(line.startswith("step") for line in child.stdout)
            os.killpg(child.pid, number)
        said = child.stdout.read()
        assert child.wait(timeout=300) == 143, said
        assert "checkpoint saved; run the same command to resume" in said


@pytest.mark.nightly
def test_a_signal_to_one_process_stops_all(tmp_path):
    code, said, _ = launch(tmp_path, 1, "term", "out", epochs=400)
    assert code == 143, said
    assert "interrupted at step 1" in said
    assert "restarted" not in said


@pytest.mark.nightly
def test_no_process_outlives_a_launcher_that_is_killed(tmp_path):
    """They are told to stop, save what they have learnt, and end; the same command then goes on from there."""
    write_data(tmp_path)
    words = ["train", "label", "--data", "label.tsv", "--out", "out", *FLAGS.split(), "4000", "--processes", "2"]
    call = [sys.executable, "-m", "saccade", *words]
    launcher = subprocess.Popen(call, cwd=tmp_path, env=CALM, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    limit = time.monotonic() + 120
    while not list(tmp_path.glob("out/checkpoints/step-*")) and time.monotonic() < limit:
        time.sleep(0.1)
    children = [int(word) for word in Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()]
    assert len(children) >= 2
    launcher.kill()
    launcher.wait()
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < limit:
        time.sleep(0.1)
    left = [child for child in children if Path(f"/proc/{child}").exists()]
    for child in left:
        os.kill(child, signal.SIGKILL)
    assert not left
