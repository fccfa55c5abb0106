"""A disk that is full, and checkpoints that are torn: time is lost, and nothing else."""

import errno
import os
import re
from io import FileIO

import pytest

from saccade import cli
from saccade.training.checkpoint.disk import Disk, DiskFull
from saccade.training.events import Message
from saccade.training.prepare import Job, prepare
from saccade.training.run import run_training
from support.small_runs import SIZES, make_learner, prepare_run, read_outputs


class Full(Disk):
    """A disk that is full from its n-th write on."""

    def __init__(self, writes: int):
        self.writes = writes

    def write(self, file: FileIO, piece: memoryview) -> None:
        self.writes -= 1
        if self.writes < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(file, piece)


def test_a_full_disk_costs_nothing_but_time(home):
    list(run_training(prepare_run(home), home / "calm"))
    for writes in (0, 5, 31, 44, 70):
        out = home / f"wild{writes}"
        with pytest.raises(DiskFull, match=r"the disk is full\. Saving needs .* Free some space and start again"):
            list(run_training(prepare_run(home), out, disk=Full(writes)))
        names = sorted(path.name for path in (out / "checkpoints").iterdir())
        assert not [name for name in names if name.startswith(".")]
        said = [event.text for event in run_training(prepare_run(home), out) if isinstance(event, Message)]
        saved = [int(name[-8:]) for name in names if name.startswith("step-")]
        assert said == ([f"resuming at step {max(saved)} of {make_learner(home).total_steps}"] if saved else [])
        assert read_outputs(out) == read_outputs(home / "calm")


def test_a_full_disk_is_exit_code_5(home, monkeypatch, capsys):
    args = ["train", "label", "--data", str(home / "label.tsv"), "--out", str(home / "out"), "--family", "transformer"]
    args += [f"--model.{key}={value}" for key, value in SIZES.items()]
    monkeypatch.setattr(Disk, "free_bytes", lambda self, path: 1000)
    assert cli.main([*args, "--train.max-steps", "2"]) == 5
    said = capsys.readouterr().err
    assert re.search(r"the disk is full\. Saving needs [\d.]+ MB; 0\.0 MB are free\. Free some space", said)
    assert "Traceback" not in said


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "facts.json", "manifest.json"])
def test_a_torn_checkpoint_is_passed_over_aloud(home, file):
    list(run_training(prepare_run(home), home / "calm"))
    list(run_training(prepare_run(home, max_steps=9), home / "wild"))
    path = home / "wild" / "checkpoints" / "step-00000009" / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    said = [
        event.text
        for event in run_training(prepare_run(home, max_steps=9), home / "wild")
        if isinstance(event, Message)
    ]
    assert "step-00000009" in said[0]
    assert "Using the one before." in said[0]
    assert said[1].startswith("resuming at step 8 of")
    said = [event.text for event in run_training(prepare_run(home), home / "wild") if isinstance(event, Message)]
    assert len(said) == 1  # the torn one has been written again
    assert said[0].startswith("resuming at step 9 of")
    assert read_outputs(home / "wild") == read_outputs(home / "calm")


def test_a_disk_that_is_too_small_is_noticed_before_the_first_step(tmp_path):
    class Small(Disk):
        def free_bytes(self, path):
            return 1000

    made = prepare(Job("regress"))
    with pytest.raises(DiskFull, match="free"):
        list(run_training(made, tmp_path / "run", disk=Small()))
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
