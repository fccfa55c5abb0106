"""A schedule that ends with its time: as many steps as the clock allows, settled after a tenth of them, and kept."""

import itertools
import json
from pathlib import Path

import pytest

from saccade.training import run as running
from saccade.training.events import CheckpointSaved, Message, RunProgress
from saccade.training.loop import Learner, TrainStep
from saccade.training.optim.schedule import lr_at
from saccade.training.run import run_training
from support.small_runs import get_result, prepare_run, read_outputs

SECONDS = 6.0  # of a step, so ten a minute
FIT = {"epochs": 1000, "fit_schedule": True, "max_minutes": 8.0, "warmup": 0.1, "eval_every": 1000, "save_every": 9}
STEPS = 76  # 95 % of eight minutes


@pytest.fixture
def clock(monkeypatch):
    """A clock that only steps move."""
    now = {"seconds": 0.0, "a step": SECONDS}
    real = Learner.step

    def step(self):
        now["seconds"] += now["a step"]
        return real(self)

    monkeypatch.setattr(Learner, "step", step)
    monkeypatch.setattr(running.time, "monotonic", lambda: now["seconds"])
    return now


def _rates(out: Path) -> list[float]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line["lr"] for line in lines if "lr" in line]


def test_the_schedule_ends_with_the_time_and_at_its_lowest_rate(home, clock):
    result = get_result(list(run_training(prepare_run(home, **FIT), home / "out")))
    assert (result.stop_reason, result.steps) == (
        "the end of the schedule, fitted to train.max_minutes = 8 minutes",
        STEPS,
    )
    wanted = [lr_at(n, STEPS, max_lr=3e-3, warmup=0.1) for n in range(STEPS)]
    assert _rates(home / "out")[2:] == pytest.approx(
        wanted[2:]
    )  # before the second step nobody knows how fast they are
    assert wanted[-1] < 1e-4


def test_without_it_the_clock_cuts_the_schedule_where_the_rate_is_high(home, clock):
    result = get_result(list(run_training(prepare_run(home, **FIT | {"fit_schedule": False}), home / "out")))
    assert result.stop_reason == "train.max_minutes = 8.0 minutes"
    assert min(_rates(home / "out")[-5:]) > 1e-4


def test_a_schedule_that_is_short_enough_stays_as_it_is(home, clock):
    plain, fitted = {"epochs": 1, "max_minutes": 60.0}, {"epochs": 1, "max_minutes": 60.0, "fit_schedule": True}
    for name, given in (("plain", plain), ("fitted", fitted)):
        get_result(list(run_training(prepare_run(home, **given), home / name)))
    assert read_outputs(home / "plain")[0] == read_outputs(home / "fitted")[0]


def test_a_settled_schedule_stands_after_half_of_it_though_steps_become_faster_or_the_run_goes_on_later(home, clock):
    get_result(list(run_training(prepare_run(home, **FIT), home / "calm")))
    get_result(list(run_training(prepare_run(home, **FIT, max_steps=20), home / "wild")))
    get_result(list(run_training(prepare_run(home, **FIT, max_steps=50), home / "wild")))
    clock["a step"] = SECONDS / 2
    get_result(list(run_training(prepare_run(home, **FIT, max_steps=60), home / "wild")))
    assert get_result(list(run_training(prepare_run(home, **FIT), home / "wild"))).steps == STEPS
    assert read_outputs(home / "wild") == read_outputs(home / "calm")


def _until(events, step: int) -> list:
    """The events of a run up to a step."""
    seen = []
    for event in events:
        seen.append(event)
        if getattr(event, "number", 0) == step:
            break
    return seen


@pytest.mark.parametrize("times", [2, pytest.param(3, marks=pytest.mark.nightly), 12])
@pytest.mark.parametrize(
    "after", [pytest.param(9, marks=pytest.mark.nightly), 15, pytest.param(30, marks=pytest.mark.nightly)]
)
def test_a_schedule_is_lengthened_where_steps_become_faster_and_fills_the_time(home, clock, after, times):
    events = run_training(prepare_run(home, **FIT), home / "out")
    _until(events, after)
    clock["a step"] = SECONDS / times
    result = get_result(list(events))
    assert result.stop_reason == "the end of the schedule, fitted to train.max_minutes = 8 minutes"
    assert result.steps > 1.2 * STEPS
    if after == 9:  # before the schedule was settled, or just after: nearly all of the time is at the new pace
        assert 0.93 * 8 <= clock["seconds"] / 60 <= 8
    assert _rates(home / "out")[-1] < 1e-4


def test_a_machine_that_was_slow_while_it_planned_uses_its_time(home, clock):
    """Planned for 22 minutes while something else ran, and twice as fast from a tenth of them on."""
    clock["a step"] = 13.3
    events = run_training(prepare_run(home, **FIT | {"max_minutes": 22.0}), home / "out")
    _until(events, 10)
    clock["a step"] = 13.3 / 2.1
    result = get_result(list(events))
    assert result.steps > 170
    assert 0.93 * 22 <= clock["seconds"] / 60 <= 22


def test_a_lengthened_schedule_is_said_and_saved_before_its_first_step(home, clock):
    events = run_training(prepare_run(home, **FIT | {"save_every": 1000}), home / "out")
    _until(events, 15)
    clock["a step"] = SECONDS / 3
    for event in events:
        if isinstance(event, Message):
            break
    assert isinstance(next(events), CheckpointSaved)
    planned = int(event.text.split(" extended to ")[1].split()[0].replace(",", ""))
    assert planned > STEPS
    assert f"from {STEPS}, fitted to train.max_minutes = 8 minutes" in event.text
    events.close()  # killed here
    work = running.Trainer(prepare_run(home, **FIT), home / "out")
    list(work.resume())
    assert (work.progress.planned_steps, work.learner.total_steps) == (planned, planned)


@pytest.mark.parametrize("killed", [25, 47, 90])
def test_a_lengthened_run_that_is_killed_and_goes_on_is_the_same_to_the_last_bit(home, clock, killed):
    ends = {}
    for name in ("whole", "killed"):
        clock["a step"] = SECONDS
        events = run_training(prepare_run(home, **FIT | {"save_every": 1000}), home / name)
        _until(events, 15)
        clock["a step"] = SECONDS / 3
        if name == "killed":
            _until(events, killed)
            events.close()
            events = run_training(prepare_run(home, **FIT | {"save_every": 1000}), home / name)
        ends[name] = get_result(list(events)).steps
    assert ends["killed"] == ends["whole"] > STEPS
    assert read_outputs(home / "killed")[0] == read_outputs(home / "whole")[0]


def test_steps_that_become_a_little_slower_do_not_change_a_settled_schedule(home, clock):
    get_result(list(run_training(prepare_run(home, **FIT), home / "calm")))
    events = run_training(prepare_run(home, **FIT), home / "slow")
    list(itertools.islice(events, 20))
    clock["a step"] = 1.02 * SECONDS
    get_result(list(events))
    assert read_outputs(home / "slow")[0] == read_outputs(home / "calm")[0]


def _ends_in_time(result, clock, out: Path) -> None:
    """By its schedule, at its lowest rate, with none of the time left over and none missing."""
    reason = f"8 minutes and shortened from {STEPS} steps, since steps and evaluations were slower than planned"
    assert result.stop_reason.endswith(reason)
    assert 0.95 * 8 <= clock["seconds"] / 60 <= 8
    assert _rates(out)[-1] < 2e-4


@pytest.mark.parametrize("after", [12, 30, 60])
def test_a_schedule_is_shortened_where_steps_become_slow_and_still_ends_at_its_lowest_rate(home, clock, after):
    events = run_training(prepare_run(home, **FIT), home / "out")
    while getattr(next(events), "number", 0) < after:
        pass
    clock["a step"] = 2 * SECONDS
    _ends_in_time(get_result(list(events)), clock, home / "out")
    rates = _rates(home / "out")
    assert rates[after - 1 :] == sorted(rates[after - 1 :], reverse=True)


def test_looks_that_take_long_shorten_it_too(home, clock, monkeypatch):
    real = running.Trainer.evaluate

    def look(self, stops):
        if self.learner.step_count < self.learner.total_steps:  # the last comes when nothing is left to be fitted
            clock["seconds"] += 20
        return real(self, stops)

    monkeypatch.setattr(running.Trainer, "evaluate", look)
    events = run_training(prepare_run(home, **FIT | {"eval_every": 20}), home / "out")
    _ends_in_time(get_result(list(events)), clock, home / "out")


def test_a_run_that_goes_on_where_steps_are_slow_is_shortened_too_once_it_knows(home, clock):
    get_result(list(run_training(prepare_run(home, **FIT, max_steps=40), home / "out")))
    clock["a step"] = 3 * SECONDS
    _ends_in_time(get_result(list(run_training(prepare_run(home, **FIT), home / "out"))), clock, home / "out")


def test_one_slow_step_after_going_on_shortens_it_for_a_while_only(home, clock):
    get_result(list(run_training(prepare_run(home, **FIT, max_steps=40), home / "out")))
    for event in run_training(prepare_run(home, **FIT), home / "out"):
        clock["a step"] = 2 * SECONDS if isinstance(event, TrainStep) and event.number == 42 else SECONDS
    steps = STEPS - 1  # the slow one took the time of two
    rates, calm = _rates(home / "out"), [lr_at(n, steps, max_lr=3e-3, warmup=0.1) for n in range(steps)]
    assert rates[44] < 0.95 * calm[44]
    assert rates[65:] == pytest.approx(calm[65:])


def test_a_slow_first_step_tells_nothing_in_a_run_that_goes_on_either(home, clock):
    get_result(list(run_training(prepare_run(home, **FIT, max_steps=5), home / "out")))
    clock["a step"] = 15.0
    for event in run_training(prepare_run(home, **FIT), home / "out"):
        if isinstance(event, TrainStep):
            clock["a step"] = SECONDS
    assert len(_rates(home / "out")) == STEPS


def test_more_time_gives_a_shortened_schedule_back_what_was_planned(home, clock):
    get_result(list(run_training(prepare_run(home, **FIT, max_steps=27), home / "out")))
    clock["a step"] = 2 * SECONDS
    slow = get_result(list(run_training(prepare_run(home, **FIT, max_steps=45), home / "out")))
    assert slow.steps == 45
    assert (
        get_result(list(run_training(prepare_run(home, **{**FIT, "max_minutes": 40.0}), home / "out"))).steps == STEPS
    )


def test_a_checkpoint_from_before_slow_steps_counted_goes_on(home, clock, monkeypatch):
    get_result(list(run_training(prepare_run(home, **FIT, max_steps=40), home / "out")))
    old = lambda **facts: RunProgress(**{name: fact for name, fact in facts.items() if name != "planned_steps"})
    monkeypatch.setattr(running, "RunProgress", old)
    work = running.Trainer(prepare_run(home, **FIT), home / "out")
    list(work.resume())
    assert (work.progress.planned_steps, work.learner.total_steps) == (STEPS, STEPS)


def test_a_slow_first_step_tells_nothing_even_if_it_takes_a_tenth_of_the_time(home, clock):
    clock["a step"] = 60.0
    events = run_training(prepare_run(home, **FIT), home / "out")
    next(events)
    clock["a step"] = SECONDS
    result = get_result(list(events))
    assert result.steps == 67  # one in the first minute, and ten in each of the 6.6 that are left of 95 %
    assert "fitted" in result.stop_reason
    assert max(_rates(home / "out")[2:5]) < 3e-3  # still warming up


def test_a_later_call_with_more_time_does_not_change_a_settled_schedule(home, clock):
    get_result(list(run_training(prepare_run(home, **FIT, max_steps=20), home / "out")))
    assert (
        get_result(list(run_training(prepare_run(home, **{**FIT, "max_minutes": 40.0}), home / "out"))).steps == STEPS
    )


def test_the_clock_of_the_first_process_counts_for_all(home, clock, monkeypatch):
    """A checkpoint adds what the first process measured, so that all fit the same schedule."""
    work = running.Trainer(prepare_run(home, **FIT), home / "out")
    object.__setattr__(work.world, "run_on_first", lambda make: 120.0)  # seconds, whatever this process has measured
    work.clock_started_at = 0.0
    clock["seconds"] = 30.0
    monkeypatch.setattr(work.learner.strategy, "save", lambda *args, **more: home)
    work.save()
    assert work.progress.minutes == 2.0


def test_it_needs_a_time(home):
    with pytest.raises(ValueError, match=r"train\.fit_schedule fits the schedule to train\.max_minutes, which is 0"):
        prepare_run(home, fit_schedule=True)
