"""A training that runs out of memory says what to do and ends with 5; what was saved stays, and goes on."""

import resource
import subprocess
import sys

import pytest

pytestmark = pytest.mark.nightly
ROOM = 2_500_000_000  # bytes of address space: enough to begin with, and less than one large step takes


def train(home, *more, limit=None):
    def small() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    words = ["train", "language", "--data", str(home / "text.txt"), "--out", str(home / "run"), "--task.length", "512"]
    words += ["--model.width", "256", "--model.layers", "2", "--train.tokens", "49152", "--train.epochs", "9", *more]
    return subprocess.run([sys.executable, "-m", "saccade", *words], capture_output=True, text=True, preexec_fn=small)


def test_too_little_memory_is_said_and_parts_help(tmp_path):
    (tmp_path / "text.txt").write_text("a story of some words and more of them\n" * 3_000, encoding="utf-8")
    full = train(tmp_path, "--train.max-steps", "1", limit=ROOM)
    assert full.returncode == 5, full.stderr
    assert "not enough memory" in full.stderr
    assert "train.parts" in full.stderr
    assert "Traceback" not in full.stderr
    some = train(tmp_path, "--train.max-steps", "1", "--train.parts", "24", limit=ROOM)
    assert some.returncode == 0, some.stderr
