"""The fast form elsewhere than on a CPU is the plain model, compiled: here it is compiled in earnest, on the CPU."""

import pytest
import torch

from saccade import fast
from saccade.data import Batch, Text
from saccade.decoding import generate
from saccade.engine import model as engine
from saccade.engine.precision import COMPILED, PrecisionChoice
from saccade.models.build import new
from saccade.models.families import gpt2, transformer

pytestmark = [
    pytest.mark.nightly,
    # raised inside torch when its compiler is first imported
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.* is deprecated:DeprecationWarning"),
]

FAMILIES = {
    "gpt2": gpt2.Config(64, 32, 2, 4, max_positions=64),
    "transformer": transformer.Config(vocab=64, width=32, layers=2, heads=4, ffn_width=64),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_compiled_writer_writes_what_the_plain_one_does(family, monkeypatch):
    monkeypatch.setattr(
        engine, "choose_precision", lambda model, precision: PrecisionChoice(COMPILED, "asked for by a test")
    )
    torch.manual_seed(2)
    plain = new(family, FAMILIES[family]).eval()
    quick = fast(plain)
    assert quick.precision_choice.precision == COMPILED
    batch = Batch(Text.pad([[5, 6, 7, 9, 30], [8, 9], [11, 12, 13]]))
    assert generate(quick, batch, stop_ids=None, max_new_tokens=12) == generate(
        plain, batch, stop_ids=None, max_new_tokens=12
    )
