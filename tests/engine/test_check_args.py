"""What compiled operators are given is looked at before: wrong operands are refused, and odd layouts change no answer."""

import random

import pytest
import torch

from saccade.engine.native import library, ops
from sanitize.fuzz import OPERATORS
from sanitize.refused import REFUSED


@pytest.fixture(params=["compiled", "plain"])
def _both(request, monkeypatch):
    library._load_library.cache_clear()
    if request.param == "plain":
        monkeypatch.setenv("SACCADE_NATIVE", "0")
    elif not ops.is_available():
        pytest.skip(ops.unavailable_reason())
    yield
    monkeypatch.undo()
    library._load_library.cache_clear()


@pytest.mark.usefixtures("_both")
@pytest.mark.parametrize("name", REFUSED)
def test_what_a_raw_address_could_not_stand_is_refused(name):
    with pytest.raises((ValueError, RuntimeError)) as refused:
        REFUSED[name]()
    assert len(str(refused.value)) < 400


@pytest.mark.usefixtures("_both")
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
def test_random_shapes_and_layouts(operator):
    """The fuzzer of `make sanitize`, for a moment and without sanitizers."""
    for seed in range(30):
        torch.manual_seed(seed)
        operator(random.Random(seed))


@pytest.mark.usefixtures("_both")
def test_a_slice_of_one_row_and_one_head_is_gathered_as_it_lies():
    """A tensor with one place on an axis counts as one piece whatever stride it says there."""
    memory = torch.randn(4, 3, 7, 5)[1:2, 2:3]
    assert memory.is_contiguous()
    assert memory.stride(0) == 105
    found = ops.gather(memory, torch.zeros(6, 7, dtype=torch.int32), 7)
    assert found.equal(memory.expand(6, -1, -1, -1))


@pytest.mark.usefixtures("_both")
@pytest.mark.parametrize("act", ["gelu_tanh", "silu"])
def test_what_is_no_number_stays_none(act):
    """Each weight is one, so that each number is what its activation makes of it, and one that is none spoils its row alone."""
    x = torch.tensor([[1.0], [float("nan")], [float("inf")], [-200.0]])
    out = ops.Int8Tiles(torch.ones(3, 1))(x, act)
    assert out.isnan().all(1).tolist() == [False, True, True, False]
    torch.testing.assert_close(out[3], torch.zeros(3))


@pytest.mark.usefixtures("_both")
def test_a_score_that_is_no_number_spoils_only_its_own_row():
    q, keys, values = torch.randn(2, 1, 8), torch.randn(2, 1, 4, 8), torch.randn(2, 1, 4, 8)
    clean = ops.attend(q, keys, values, torch.tensor([4, 4]), 1.0)
    keys[0, 0, 1, 3] = float("nan")
    out = ops.attend(q, keys, values, torch.tensor([4, 4]), 1.0)
    assert out[0].isnan().all()
    assert out[1].equal(clean[1])
