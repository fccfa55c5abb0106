"""What a fast model keeps in memory: its own numbers, and nothing of the model that it was made of."""

import gc
import sys
from pathlib import Path

import pytest
import torch

from saccade.data import Batch, Text
from saccade.decoding import generate
from saccade.engine import fast
from saccade.models.build import new
from saccade.models.families import gpt2, llama
from saccade.models.load import load

CONFIGS = {
    "gpt2": gpt2.Config(40, 32, 2, 2, max_positions=16),
    "llama": llama.Config(vocab=40, width=32, layers=2, heads=2, kv_heads=1, ffn_width=64),
}


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel what is mapped")
@pytest.mark.parametrize("precision", ["int8", "float16", "float32"])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_file_of_the_plain_model_is_let_go(tmp_path, name, precision):
    new(name, CONFIGS[name]).save(tmp_path / "plain")
    model = load(tmp_path / "plain")
    assert str(tmp_path) in Path("/proc/self/maps").read_text()
    quick = fast(model, precision)
    written = generate(quick, Batch(Text(torch.tensor([[1, 2, 3]]))), stop_ids=None, max_new_tokens=4)
    del model
    gc.collect()
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    assert generate(quick, Batch(Text(torch.tensor([[1, 2, 3]]))), stop_ids=None, max_new_tokens=4) == written


def test_the_plain_model_keeps_its_own():
    model = new("gpt2", CONFIGS["gpt2"])
    before = {key: value.clone() for key, value in model.state_dict().items()}
    quick = fast(model, "int8")
    for parameter in quick.parameters():
        parameter.data.zero_()
    assert all(value.equal(before[key]) for key, value in model.state_dict().items())
