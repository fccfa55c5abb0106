"""The lines of a run that was killed and goes on are, byte for byte, those of a run that was not."""

import errno
import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.training.checkpoint.disk import DiskFull
from saccade.training.metrics_log import MetricsLog


def write(lines: MetricsLog, steps: range) -> None:
    for step in steps:
        lines.append(step=step, loss=1 / (step + 3), lr=math.sin(step))
        if step % 4 == 0:
            lines.append(step=step, dev=math.exp(-step), note="é\n")


def test_a_line_is_there_when_add_returns(tmp_path):
    lines = MetricsLog(tmp_path / "metrics.jsonl")
    assert lines.read() == []
    text: list[str] = []
    for step in range(3):
        lines.append(step=step, loss=0.1 * step)
        text = (tmp_path / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in text] == list(range(step + 1))
    assert text[2] == '{"step": 2, "loss": 0.2}'


@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(st.text(min_size=1, max_size=5), st.floats() | st.integers() | st.text() | st.none())))
def test_values_come_back_exactly(tmp_path_factory, values):
    lines = MetricsLog(tmp_path_factory.mktemp("lines") / "metrics.jsonl")
    for one in values:
        lines.append(**{f"v{name}": value for name, value in one.items()})
    back = [{name[1:]: value for name, value in one.items()} for one in lines.read()]
    assert repr(back) == repr(values)  # NaN is NaN here, and -0.0 is not 0.0


def test_a_cut_at_any_step_and_a_kill_at_any_byte_leave_no_trace(tmp_path):
    """The file is cut off at every byte; going on from any step that is whole in it gives the undisturbed file."""
    whole = MetricsLog(tmp_path / "whole.jsonl")
    write(whole, range(6))
    expected = whole.path.read_bytes()
    ends = [0]  # ends[step] = the size of the file when all before that step is written
    for step in range(6):
        part = MetricsLog(tmp_path / f"{step}.jsonl")
        write(part, range(step + 1))
        ends.append(part.path.stat().st_size)
    path = tmp_path / "metrics.jsonl"
    for size in range(len(expected) + 1):
        there = max(step for step in range(7) if ends[step] <= size)
        for step in {there - 1, there - 1 - size % 2 * min(there, 2)}:
            path.write_bytes(expected[:size])
            lines = MetricsLog(path)
            lines.truncate(step)
            assert path.read_bytes() == expected[: ends[step + 1]]
            write(lines, range(step + 1, 6))
            assert path.read_bytes() == expected


def test_adding_without_a_cut_does_not_glue_to_a_torn_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2, "lo')
    lines = MetricsLog(path)
    assert lines.read() == [{"step": 1}]
    assert path.read_bytes().endswith(b'"lo')  # a reader changes nothing
    lines.append(step=2)
    assert path.read_bytes() == b'{"step": 1}\n{"step": 2}\n'


def test_garbage_at_the_end_is_a_torn_end_but_not_in_the_middle(tmp_path):
    path = tmp_path / "metrics.jsonl"
    good = b'{"step": 1}\n{"step": 2}\n'
    for garbage in (bytes(100), b"\xff\xfe\n\n", b"[3]\n", b"\n\n", b"NaN\n" + bytes(5)):
        path.write_bytes(good + garbage)
        assert MetricsLog(path).read() == [{"step": 1}, {"step": 2}]
        MetricsLog(path).truncate(5)
        assert path.read_bytes() == good
        path.write_bytes(good + garbage + b'\n{"step": 3}\n')
        for act in (MetricsLog(path).read, lambda: MetricsLog(path).truncate(5)):
            with pytest.raises(
                ValueError, match=r"metrics\.jsonl:3: not a line of metrics, although complete lines follow"
            ):
                act()
        assert path.read_bytes().endswith(b'{"step": 3}\n')  # nothing readable is thrown away


def test_nothing_to_cut_is_no_error(tmp_path):
    MetricsLog(tmp_path / "metrics.jsonl").truncate(3)
    MetricsLog(tmp_path / "metrics.jsonl").sync()
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_said_and_the_half_line_is_mended(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    lines = MetricsLog(path)
    lines.append(step=1)
    really = Path.open

    class Full:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.file.close()

        def write(self, line):
            if len(line) < 6:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self.file.write(line[:5])

    monkeypatch.setattr(Path, "open", lambda self, *how, **more: Full(really(self, *how, **more)))
    with pytest.raises(DiskFull, match=r"metrics\.jsonl: the disk is full"):
        lines.append(step=2)
    monkeypatch.undo()
    assert path.read_bytes() == b'{"step": 1}\n{"step": 2'[: len(b'{"step": 1}\n') + 10]
    lines.append(step=2)
    assert lines.read() == [{"step": 1}, {"step": 2}]
    lines.sync()
