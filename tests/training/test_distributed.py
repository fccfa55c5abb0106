"""What processes say to each other, what they leave when they end, and that one process is the simplest world."""

import ast
import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from saccade import cli
from saccade.system import cpu_count
from saccade.training import exit_report
from saccade.training.checkpoint.read import DCP_OFFSETS_KEY, merge_shards
from saccade.training.distributed import World, join_world, single_process_world
from saccade.training.distributed.comm import PeerLost, _peer_lost_errors
from saccade.training.distributed.heartbeat import Heartbeat
from saccade.training.distributed.launch import make_environment
from saccade.training.exit_report import EXIT_REPORT_VARIABLE, ExitReport, read_exit_report, write_exit_report
from saccade.training.resume import world_change_note
from saccade.training.run import Trainer
from saccade.training.signals import StopSignals

SOURCE = Path(__file__).parents[2] / "src" / "saccade"


def test_only_the_world_imports_torch_distributed():
    """By any spelling, in any place of a file."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            if any(name.startswith("torch.distributed") for name in names):
                found.add(path.relative_to(SOURCE).parent.as_posix())
    assert found == {"training/distributed"}


def test_one_process_is_a_world_of_its_own(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with join_world("cpu") as world:
        assert world == single_process_world("cpu") == World()
    assert world.is_first
    assert world.all_gather(3, 0.5) == [[3, 0.5]]
    world.barrier()
    world.report_progress()
    assert world.run_on_first(lambda: {"a": [1]}) == {"a": [1]}
    assert not World(rank=1, size=2).is_first


class Slate:
    """A store in memory; where it is closed nobody gets an answer."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.closed = False

    def set(self, key: str, value: str) -> None:
        self.values[key] = value.encode()

    def get(self, key: str) -> bytes:
        if self.closed:
            raise RuntimeError("closed")
        return self.values[key]


def hearts(size: int, limit: float) -> tuple[Slate, list[Heartbeat]]:
    slate = Slate()
    made = [Heartbeat(slate, rank, size, limit) for rank in range(size)]
    for heart in made:
        heart.send_beat()
    return slate, made


def test_whoever_does_not_beat_is_named():
    _, (first, second, third) = hearts(3, 10.0)
    for heart in (first, second, third):
        heart._read_beats()
    later = time.monotonic() + 5
    assert first.find_silent_rank(later) is None
    first.last_beats[1] = (first.last_beats[1][0], time.monotonic() - 6)  # as if its last beat were six seconds old
    assert first.find_silent_rank(later) == 1
    second.send_beat()
    first._read_beats()
    assert first.find_silent_rank(later) is None
    third.store_answered_at = time.monotonic() - 6  # the store, which the first one keeps, is silent
    assert third.find_silent_rank(later) == 0


def test_whoever_lives_and_does_not_come_is_named_by_those_who_wait():
    _, made = hearts(3, 10.0)
    first, second, third = made
    for heart in made:
        heart.report_progress()
    first.report_progress()  # the first and the third wait for the second
    third.report_progress()
    for heart in made:
        heart.send_beat()
    for heart in made:
        heart._read_beats()
    now = time.monotonic()
    assert [heart.find_stalled_rank(now) for heart in made] == [None, None, None]
    for heart in made:
        heart.last_progress_at = now - 11  # as if they had come eleven seconds ago
    assert [heart.find_stalled_rank(now) for heart in made] == [1, None, 1]  # who is behind accuses nobody
    assert [heart.find_stalled_rank(now + 6) for heart in made] == [None, None, None]  # no beat: it may live no more
    second.report_progress()
    second.send_beat()
    for heart in made:
        heart._read_beats()
        heart.last_progress_at = now - 11
    assert [heart.find_stalled_rank(now) for heart in made] == [None, None, None]  # a long step, taken by all alike


def test_a_heart_beats_and_gives_up_whoever_is_silent(monkeypatch, capsys):
    monkeypatch.delenv(EXIT_REPORT_VARIABLE, raising=False)
    ended: list[int] = []
    _, (first, second) = hearts(2, 2.0)  # seconds: less could pass on a busy machine while nothing is wrong

    def end(code: int) -> None:
        ended.append(code)
        first.stop()

    monkeypatch.setattr(os, "_exit", end)
    first.start()
    for _ in range(20):
        second.send_beat()
        time.sleep(0.02)
    assert not ended
    limit = time.monotonic() + 60
    while not ended and time.monotonic() < limit:
        time.sleep(0.02)
    assert ended == [5]
    assert "rank 1 did not answer for 2 seconds" in capsys.readouterr().err


def test_last_words_reach_the_launcher(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(EXIT_REPORT_VARIABLE, str(tmp_path))
    assert read_exit_report() is None
    write_exit_report(ExitReport(5, "rank 0 cannot reach another process", is_final=False))
    assert read_exit_report() == ExitReport(5, "rank 0 cannot reach another process", is_final=False)
    write_exit_report(ExitReport(143))
    assert read_exit_report() == ExitReport(143)
    write_exit_report(ExitReport(3, "line 7 is wrong"))
    write_exit_report(ExitReport(4, "later"))
    assert read_exit_report() == ExitReport(3, "line 7 is wrong")
    assert capsys.readouterr().err == ""
    assert cli.main(["train", "no-such-task"]) == 3  # all is over, so nothing is even looked at


def test_without_a_launcher_last_words_go_to_a_person(monkeypatch, capsys):
    monkeypatch.delenv(EXIT_REPORT_VARIABLE, raising=False)
    write_exit_report(ExitReport(3, "line 7 is wrong"))
    assert capsys.readouterr().err == "line 7 is wrong\n"
    assert read_exit_report() is None
    assert exit_report.get_restart_counts() == (0, 0)


def test_what_the_processes_are_told(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for processes in (1, 2, 1000):
        told = make_environment(processes, tmp_path)
        assert told["OMP_NUM_THREADS"] == str(max(1, cpu_count() // processes))
    assert told["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert told["TOKENIZERS_PARALLELISM"] == "false"
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert make_environment(2, tmp_path)["OMP_NUM_THREADS"] == "7"


@pytest.mark.parametrize(
    ("words", "size", "said"),
    [
        (["--processes", "0"], "1", "--processes is 0; it must be at least 1."),
        (["--processes", "2"], "3", "this is already one of 3 processes"),
        (["--processes", "2", "--train.wramup", "3"], "1", "--train.warmup"),
    ],
)
def test_a_wrong_call_is_said_once_and_starts_nothing(words, size, said, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", size)
    assert cli.main(["train", "label", *words]) == 2
    out, err = capsys.readouterr()
    assert (out + err).count(said) == 1


@pytest.mark.parametrize(
    ("text", "is_lost"),
    [
        ("[/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4", True),
        ("Timed out waiting 1800000ms for recv operation to complete in gloo", True),
        ("mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)", False),
    ],
)
def test_errors_of_the_network_are_told_from_others(text, is_lost):
    with pytest.raises(RuntimeError) as caught, _peer_lost_errors(3):
        raise RuntimeError(text)
    assert isinstance(caught.value, PeerLost) is is_lost
    assert ("rank 3 cannot reach" in str(caught.value)) is is_lost


def test_another_number_of_processes_is_said_aloud():
    assert world_change_note({"size": 1}, {"size": 1, "fsdp": False}) == []
    (said,) = world_change_note({"size": 4, "fsdp": True}, {"size": 2, "fsdp": False})
    assert said.startswith("saved by 4 processes with FSDP, resuming with 2 processes:")


def test_parts_of_tensors_are_put_together(tmp_path):
    """Rows over three files, a tensor in one of them only, a single number and one that is empty in some."""
    whole: dict[str, Any] = {
        "a": torch.randn(7, 3),
        "b": torch.randn(5),
        "c": torch.tensor(3.0),
        "d": torch.randn(1, 2),
    }
    cuts = {"a": [0, 3, 6, 7], "b": [0, 2, 4, 5]}
    for i in range(3):
        parts = {name: whole[name][ends[i] : ends[i + 1]].contiguous() for name, ends in cuts.items()}
        starts = {name: {"saved_offsets": [cuts[name][i]] + [0] * (whole[name].dim() - 1)} for name in parts}
        if i == 1:
            parts |= {"c": whole["c"], "d": whole["d"]}
        save_file(parts, tmp_path / f"{i}.safetensors", metadata={DCP_OFFSETS_KEY: json.dumps(starts)})
    found = merge_shards(sorted(tmp_path.iterdir()))
    assert found.keys() == whole.keys()
    assert all(torch.equal(found[name], whole[name]) for name in whole)


def test_a_signal_that_comes_while_processes_agree_is_not_lost():
    """The others have not heard of it yet, so this process acts on it only when all have."""
    stops = StopSignals()

    def gather(*values: float) -> list[list[float]]:
        stops.signal_number = stops.signal_number or signal.SIGTERM  # after the values were read
        return [list(values), [0, 0.0, 0.0]]

    work: Any = SimpleNamespace(world=SimpleNamespace(all_gather=gather), clock_started_at=0.0, last_saved_at=0.0)
    assert Trainer.sync_stop_signal(work, stops) is None
    assert Trainer.sync_stop_signal(work, stops) == signal.SIGTERM


def test_a_signal_to_another_process_counts():
    stops = StopSignals()
    world = SimpleNamespace(all_gather=lambda *values: [[*values], [signal.SIGINT, 7.0, 8.0]])
    work: Any = SimpleNamespace(world=world, clock_started_at=0.0, last_saved_at=0.0)
    assert Trainer.sync_stop_signal(work, stops) == stops.signal_number == signal.SIGINT
    assert work.seconds_on_clock != 7.0  # the clock is that of the first
