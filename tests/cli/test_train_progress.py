"""How a run looks while it runs."""

import io
from pathlib import Path

import pytest

from saccade.cli.train_progress import TrainProgress
from saccade.training.events import Message, RunResult
from saccade.training.loop import TrainStep

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"  # the cursor


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def step(number: int) -> TrainStep:
    return TrainStep(number, epoch=0, loss=2.5, lr=1e-3, grad_norm=1.0, tokens=70, seconds=0.1)


def test_elsewhere_than_on_a_terminal_there_are_plain_lines_and_not_one_for_each_step() -> None:
    stream = io.StringIO()
    with TrainProgress(Path("runs/x"), stream) as progress:
        for number in (1, 2, 3):
            progress.show(step(number))
        progress.show(Message("[bold]as it is"))
        progress.show(RunResult("all epochs are done", 3, {}))
    said = stream.getvalue()
    assert said.splitlines() == [
        "step      1  epoch 1  loss  2.5000  lr 1.0e-03  700 tokens/s",
        "[bold]as it is",
        "finished after 3 steps (all epochs are done)",
        "written    runs/x/model, runs/x/report.html",
    ]


@pytest.mark.parametrize("fails", [False, True])
def test_a_terminal_gets_its_cursor_back_however_a_run_ends(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Screen()
    try:
        with TrainProgress(Path("runs/x"), stream) as progress:
            progress.show(step(1))
            progress.show(Message("[bold]as it is"))
            if fails:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert fails
    said = stream.getvalue()
    assert "[bold]as it is" in said
    assert "tokens/s" in said
    assert said.index(HIDE) < said.rindex(SHOW)
    assert HIDE not in said[said.rindex(SHOW) :]
