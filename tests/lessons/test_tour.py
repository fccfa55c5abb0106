"""The tour: what it times and what it draws does not depend on what else the machine does."""

from types import SimpleNamespace

import pytest
import torch

from saccade.lessons import tour
from saccade.parts.position import POSITIONS


def test_times_are_the_shortest_of_rounds_that_take_turns(monkeypatch):
    """One slow round, whatever slowed it, changes nothing."""
    clock, calls = [0.0], []

    def call(name, seconds):
        calls.append(name)
        clock[0] += 1000 * seconds if len(calls) in (1, 2, 5) else seconds

    monkeypatch.setattr(tour, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    found = tour.time_calls({"a": lambda: call("a", 0.25), "b": lambda: call("b", 2.0)}, rounds=3)
    assert found == pytest.approx({"a": 0.25, "b": 2.0})
    assert calls == ["a", "b"] * 4


def test_a_gradient_reaches_back_without_a_floor():
    """The tour's LSTM forgets evenly, down to where single precision would have ended."""
    chapter = tour.recurrence()
    reach = chapter.panels[1].lines["LSTM"]
    assert reach.dtype == torch.float64
    assert len(reach.unique()) == len(reach) == 128, "no two are equal, as below a floor they would be"
    x = torch.randn(1, 5, 3, dtype=torch.float64)
    assert tour.gradient_reach(lambda x: x.cumsum(1) ** 3, x).tolist() == pytest.approx(
        [(3 * x.sum(1) ** 2).norm().item()] * 5
    )


def test_maps_that_are_compared_share_a_scale():
    for chapter in (tour.gates(), tour.regression()):
        maps = [panel for panel in chapter.panels if isinstance(panel, tour.Heatmap)]
        assert len({panel.vmax for panel in maps}) == 1
        assert all(panel.matrix.max() <= panel.vmax for panel in maps)


def test_the_chapter_on_order_counts_the_ways():
    assert tour.order().title == "eight position schemes"
    assert len(POSITIONS) - 1 == 8
