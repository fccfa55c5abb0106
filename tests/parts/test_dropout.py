"""Dropout by a quarter of the draws is dropout: how many go, which, what becomes of the others, and of their gradients."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from saccade.parts.dropout import PROBABILITY_STEPS, Dropout

COUNT = 400_003  # no multiple of four


def left(p, count=COUNT, seed=0):
    torch.manual_seed(seed)
    return Dropout(p).train()(torch.ones(count)) != 0


@pytest.mark.parametrize("p", [0.001, 0.1, 0.3, 0.5, 0.9, 0.999])
def test_as_many_go_as_should_and_the_others_grow(p):
    torch.manual_seed(1)
    x = torch.randn(COUNT, dtype=torch.float64)
    out = Dropout(p).train()(x)
    gone = out == 0
    assert abs(gone.sum().item() - p * COUNT) < 4 * math.sqrt(COUNT * p * (1 - p)) + COUNT / PROBABILITY_STEPS
    share = round(p * PROBABILITY_STEPS) / PROBABILITY_STEPS
    assert_close(out[~gone], x[~gone] / (1 - share), rtol=1e-12, atol=0)


def test_each_of_the_four_numbers_of_a_draw_goes_as_often_and_by_itself():
    kept = left(0.3)[: COUNT // 4 * 4].view(-1, 4).double()
    spread = 4 * math.sqrt(0.3 * 0.7 / len(kept))
    assert ((kept.mean(0) - 0.7).abs() < spread).all()
    away = torch.corrcoef(kept.T) - torch.eye(4)
    assert (away.abs() < 4 / math.sqrt(len(kept))).all()
    neighbours = torch.corrcoef(torch.stack([kept.flatten()[:-4], kept.flatten()[4:]]))[0, 1]
    assert abs(neighbours) < 4 / math.sqrt(kept.numel())


def test_runs_of_entries_that_stay_are_as_long_as_chance_makes_them():
    """Against PyTorch's own dropout, by a chi-square over eight entries at a time."""
    from scipy.stats import chi2_contingency

    torch.manual_seed(2)
    theirs = nn.Dropout(0.4).train()(torch.ones(COUNT)) != 0
    tables = [kept[: COUNT // 8 * 8].view(-1, 8) for kept in (left(0.4), theirs)]
    counts = [torch.bincount((kept * 2 ** torch.arange(8)).sum(1), minlength=256).numpy() for kept in tables]
    assert chi2_contingency(counts).pvalue > 1e-4


def test_a_gradient_goes_where_the_entry_went():
    x = torch.randn(7, 5, 3, requires_grad=True)
    torch.manual_seed(3)
    out = Dropout(0.5).train()(x)
    out.sum().backward()
    assert_close(x.grad, (out != 0).float() * 2)


def test_the_seed_says_which_go():
    assert torch.equal(left(0.2, seed=5), left(0.2, seed=5))
    assert not torch.equal(left(0.2, seed=5), left(0.2, seed=6))


def test_what_drops_nothing_changes_nothing():
    x = torch.randn(11)
    assert torch.equal(Dropout(0.0).train()(x), x)
    assert torch.equal(Dropout(0.7).eval()(x), x)


def test_all_can_go_and_none_can_be_there():
    assert not Dropout(1.0).train()(torch.ones(5)).any()
    assert Dropout(0.5).train()(torch.ones(0, 3)).shape == (0, 3)
    assert Dropout(0.5).train()(torch.ones(2, 3, device="meta")).shape == (2, 3)
