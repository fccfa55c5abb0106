"""Real file systems of thirty sizes, from one that holds nothing to one that holds all: a full one costs time alone.

A tmpfs needs the right to mount; without it the tests say so and are left out.
"""

import subprocess
import sys

import pytest

from saccade.training.run import run_training
from support.small_runs import SIZES, TRAIN, prepare_run, read_outputs

pytestmark = pytest.mark.nightly
KILOBYTES = [32 * number for number in range(1, 31)]


def mount(where, kilobytes, *options):
    words = ["mount", "-t", "tmpfs", "-o", ",".join([f"size={kilobytes}k", *options]), "tmpfs", str(where)]
    return subprocess.run(words, capture_output=True, text=True).returncode == 0


@pytest.fixture
def disk(tmp_path):
    where = tmp_path / "disk"
    where.mkdir()
    mounted: list[int] = []

    def sized(kilobytes):
        options = ("remount",) if mounted else ()
        if not mount(where, kilobytes, *options):
            pytest.skip("no right to mount a tmpfs")
        mounted.append(kilobytes)
        return where

    yield sized
    if mounted:
        subprocess.run(["umount", str(where)], check=True)


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    from support.small_runs import write_files

    home = write_files(tmp_path_factory.mktemp("calm"))
    list(run_training(prepare_run(home), home / "run"))
    return read_outputs(home / "run")


@pytest.mark.parametrize("kilobytes", KILOBYTES)
def test_a_disk_of_any_size(home, disk, calm, kilobytes):
    where = disk(kilobytes)
    words = [
        "train",
        "label",
        "--data",
        str(home / "label.tsv"),
        "--out",
        str(where / "run"),
        "--family",
        "transformer",
    ]
    words += [f"--model.{key}={value}" for key, value in SIZES.items()]
    words += [f"--train.{key.replace('_', '-')}={value}" for key, value in TRAIN.items()]
    first = subprocess.run([sys.executable, "-m", "saccade", *words], capture_output=True, text=True)
    assert first.returncode in (0, 5), first.stderr
    assert "Traceback" not in first.stderr
    if first.returncode:
        assert "full" in first.stderr
        assert "MB" in first.stderr
    again = subprocess.run([sys.executable, "-m", "saccade", *words], capture_output=True, text=True)
    if first.returncode or again.returncode:
        assert again.returncode == 5, again.stderr
        assert "the disk is full" in again.stderr
    if not first.returncode:  # whether or not there is room to write it a second time, beside the first
        assert read_outputs(where / "run") == calm
    disk(20_000)  # somebody made room
    last = subprocess.run([sys.executable, "-m", "saccade", *words], capture_output=True, text=True)
    assert last.returncode == 0, last.stderr
    assert read_outputs(where / "run") == calm
