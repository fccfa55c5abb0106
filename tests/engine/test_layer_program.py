"""The layers of fast stacks in one call, against the same layers one after the other."""

import copy
from typing import Any

import pytest
import torch

from saccade.attention import Layout
from saccade.engine import fast
from saccade.engine.kv_cache import KVCache
from saccade.engine.native import ops
from saccade.engine.native.compile_layers import compile_layers
from saccade.engine.stack import FastStack
from saccade.engine.sublayers import StepContext
from saccade.models.build import new
from saccade.models.families import bart, gpt2, llama, qwen, transformer

pytestmark = pytest.mark.skipif(not ops.is_available(), reason=ops.unavailable_reason() or "compiled")
W, B = 24, 3
SIZES: dict[str, Any] = {"vocab": 53, "width": W, "heads": 6, "layers": 2, "ffn_width": 52}
CASES = {
    "gpt2": gpt2.Config(**SIZES),
    "llama": llama.Config(**SIZES, kv_heads=2),
    "qwen2": qwen.Qwen2Config(**SIZES | {"kv_heads": 2}),
    "transformer": transformer.Config(**SIZES),
    "transformer after": transformer.Config(**SIZES, norm_first=False, position="rotary"),
    "bart": bart.Config(**SIZES, decoder_layers=3, decoder_heads=3, decoder_ffn_width=31),
}


@pytest.fixture(params=CASES)
def stack(request) -> Any:
    """The decoder of a fast model."""
    model = fast(new(request.param.split()[0], CASES[request.param]), "int8")
    return [part for part in model.modules() if isinstance(part, FastStack)][-1]


def begun(stack, seed=0):
    """A memory of seven tokens, two rows padded on the left, and what the decoder looks across to."""
    made = torch.Generator().manual_seed(seed)
    state, keep = KVCache(), torch.tensor([[1] * 7, [0, 0, *[1] * 5], [0, *[1] * 6]], dtype=torch.bool)
    across = {}
    if stack.layers[0].across is not None:
        across = {"memory": torch.randn(B, 5, W, generator=made), "memory_keep": torch.ones(B, 5, dtype=torch.bool)}
        across["memory_keep"][1, 3:] = False
    stack(torch.randn(B, 7, W, generator=made), Layout(keep), state, **across)
    return state, across


def moment(stack, state, across, x):
    """The token entered, and what its layers share."""
    x, pos = stack._enter_tokens(x[:, None], None, state)
    turn, lengths = stack.position.rotation_at(pos), torch.full((B,), state.length)
    seen = {"keep": state.keep, "cross_memory": across.get("memory"), "cross_memory_keep": across.get("memory_keep")}
    return x[:, 0].contiguous(), StepContext(state, lengths, rotation=turn, **seen)


def one_by_one(stack, x, now):
    for number, layer in enumerate(stack.layers):
        x = layer.step(x, now, f"{number}.", None)
    return x


@torch.no_grad()
def test_one_call_is_layer_by_layer(stack):
    links = compile_layers(list(stack.layers), stack.position)
    assert links is not None
    (one, across), (two, _) = begun(stack), begun(stack)
    for _ in range(70):  # beyond the first room's size, so that the memory moves
        x = torch.randn(B, W)
        expected = one_by_one(stack, *moment(stack, one, across, x))
        out = links.step(*moment(stack, two, across, x))
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(one.at("0").at("attention").get("key"), two.at("0").at("attention").get("key"))


@torch.no_grad()
def test_rows_that_change_places_find_what_they_remember(stack):
    """As beams do, between all steps; layer by layer the memory is moved, in one call it stays where it is."""
    links = compile_layers(list(stack.layers), stack.position)
    assert links is not None
    (one, across), (two, _) = begun(stack), begun(stack)
    chance = torch.Generator().manual_seed(7)
    for _ in range(70):
        rows, x = torch.randint(B, (B,), generator=chance), torch.randn(B, W)
        across = {name: tensor[rows] for name, tensor in across.items()}
        for state in (one, two):
            state.reorder(rows)
        expected = one_by_one(stack, *moment(stack, one, across, x))
        out = links.step(*moment(stack, two, across, x))
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_copy_goes_its_own_way(stack):
    links = compile_layers(list(stack.layers), stack.position)
    assert links is not None
    (one, across), (two, _) = begun(stack), begun(stack)
    x, other = torch.randn(B, W), copy.deepcopy(links)
    expected = links.step(*moment(stack, one, across, x))
    links.program.ops.clear()
    torch.testing.assert_close(other.step(*moment(stack, two, across, x)), expected)


def test_what_a_chain_cannot_walk_is_left_to_the_layers():
    model = fast(new("gpt2", CASES["gpt2"]), "float32")
    stack: Any = next(part for part in model.modules() if isinstance(part, FastStack))
    assert compile_layers(list(stack.layers), stack.position) is None
