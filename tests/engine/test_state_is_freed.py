"""What was remembered goes when nobody holds it any more, without waiting for the garbage collector."""

import gc
import weakref

import pytest
import torch

from saccade.data import Batch, Text
from saccade.decoding import generate
from saccade.engine import KVCache, fast
from saccade.models.build import new
from saccade.models.families import gpt2, t5
from saccade.parts.state import State


@pytest.fixture
def unswept():
    """Without the collector, so that a state which holds itself would stay."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("kind", [State, KVCache])
def test_a_state_goes_with_its_last_holder(unswept, kind):
    state = kind()
    state.at("layer").append("key", torch.zeros(1, 2, 3, 4))
    state.at("layer").put("once", torch.zeros(1, 5), 1)
    kept = [weakref.ref(state.at("layer").get(name)) for name in ("key", "once")]
    part, whole = state.at("layer"), weakref.ref(state)
    del state
    assert part.get("once") is kept[1]()  # a part holds the whole
    assert whole() is not None
    del part
    assert whole() is None
    assert kept[1]() is None


@pytest.mark.parametrize("quick", [False, True], ids=["plain", "fast"])
@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_nothing_is_left_of_a_text_that_was_written(unswept, family, quick):
    config = (
        gpt2.Config(31, 24, 2, 3) if family == "gpt2" else t5.Config(31, 24, 2, heads=3, head_width=8, ffn_width=37)
    )
    model = new(family, config).eval()
    model = fast(model, "float32") if quick else model
    states = weakref.WeakSet()
    start = model.start

    def noted(batch):
        state, text = start(batch)
        states.add(state)
        return state, text

    model.start = noted
    generate(model, Batch(Text(torch.tensor([[5, 6, 7]]))), stop_ids=None, max_new_tokens=4)
    assert not list(states)
