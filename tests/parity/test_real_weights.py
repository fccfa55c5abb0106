"""Weights that somebody trained: a small LLaMA writes a story. SACCADE_DATA names the directory that has them."""

import os
from pathlib import Path

import pytest
import torch

from saccade.data import Batch, Text
from saccade.models.families import llama
from saccade.models.foreign.llama2c import read_llama2c
from saccade.models.weight_map import to_theirs
from saccade.text import load_llama2c_tokenizer

DATA = Path(os.environ.get("SACCADE_DATA", "data"))
STORIES, PIECES = DATA / "weights" / "stories260K.bin", DATA / "weights" / "tok512.bin"
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not (STORIES.exists() and PIECES.exists()), reason=f"no weights in {DATA}; set SACCADE_DATA"),
]
BEGIN = 1
# what llama2.c itself is tested to write from these files at temperature 0
STORY = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, "
    "red ball. She wanted to play with it, but it was too high."
)


@pytest.fixture(scope="module")
def stories():
    config, tensors = read_llama2c(STORIES)
    model = llama.Llama(config).eval()
    model.load_state_dict(tensors, strict=False)
    assert tensors.keys() | {"head.score.weight"} == model.state_dict().keys()
    return config, model


@torch.no_grad()
def written(model, count):
    state, text = model.start(Batch(Text(torch.tensor([[BEGIN]]))))
    tokens = []
    for _ in range(count):
        best = model.step(text, state)[:, -1].argmax(-1)
        tokens.append(int(best))
        text = Text(best[:, None])
    return tokens


def test_sizes(stories):
    config, model = stories
    assert (config.layers, config.width, config.heads, config.kv_heads, config.vocab) == (5, 64, 8, 4, 512)
    assert config.tie_embeddings
    assert sum(p.numel() for p in model.parameters()) == 260_032


def test_writes_a_story(stories):
    text = load_llama2c_tokenizer(PIECES).decode(written(stories[1], 100)).strip()
    assert text.startswith(STORY), text


def test_agrees_with_the_package_in_the_other_layout(stories):
    from transformers import LlamaConfig, LlamaForCausalLM

    config, model = stories
    raw = {key: value for key, value in llama.FAMILY.config_to_hf(config).items() if key != "model_type"}
    theirs = LlamaForCausalLM(LlamaConfig(**raw)).eval()
    tensors = to_theirs(dict(model.named_parameters()), llama.WEIGHT_MAP)
    left = theirs.load_state_dict({f"model.{name}": x for name, x in tensors.items()}, strict=False)
    assert left.missing_keys == ["lm_head.weight"]
    assert not left.unexpected_keys
    tokens = torch.tensor([[BEGIN, *written(model, 150)]])
    with torch.no_grad():
        state, text = model.start(Batch(Text(tokens)))
        torch.testing.assert_close(model.step(text, state), theirs(tokens).logits, rtol=1e-4, atol=1e-4)
