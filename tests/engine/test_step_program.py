"""A chain of native operators against the same operators one by one, and against a layer of PyTorch's."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from saccade.engine.native import library, ops
from saccade.engine.native.step_program import KVBufferRef, StepProgram
from saccade.parts.position import Rotary

W, H, G, D, INNER, LIMIT = 24, 6, 2, 4, 52, 17


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def both(request, monkeypatch):
    """Every test here holds for the compiled operators and for what stands in for them."""
    library._load_library.cache_clear()
    if request.param == "plain":
        monkeypatch.setenv("SACCADE_NATIVE", "0")
    elif not ops.is_available():
        pytest.skip(ops.unavailable_reason())
    yield request.param
    monkeypatch.undo()
    library._load_library.cache_clear()


def packed(rows, columns):
    return ops.Int8Tiles(torch.randn(rows, columns) / math.sqrt(columns), torch.randn(rows))


def layer(chain, x, room, parts):
    """A layer with the norm first: attention, then a gated feed-forward."""
    norm, joint, output, up, down = parts
    joined = chain.rotate(chain.linear(chain.layer_norm(x, *norm, 1e-5), joint), H + G, D)
    x = chain.linear(chain.attend(joined, H, G, D, 0.5, buffer=room), output, add=x)
    return chain.linear(chain.gate(chain.linear(chain.rms_norm(x, norm[0], 1e-6), up), "silu"), down, add=x)


def some():
    norm = torch.randn(W), torch.randn(W)
    return norm, packed((H + 2 * G) * D, W), packed(W, H * D), packed(2 * INNER, W), packed(W, INNER)


def room(b, lengths, rows_per_source=1):
    keys, values = torch.randn(2, b, G, LIMIT, D)
    return KVBufferRef(keys, values, torch.tensor(lengths), torch.rand(b, LIMIT) > 0.2, rows_per_source)


@pytest.mark.parametrize("b", [1, 3])
def test_a_chain_is_its_operators_one_by_one(b):
    chain, x, parts = StepProgram(W), 0, [some() for _ in range(3)]
    for number, part in enumerate(parts):
        x = layer(chain, x, number, part)
    rooms = [room(b, [5, 17, 1][:b]) for _ in parts]
    again = [KVBufferRef(r.keys.clone(), r.values.clone(), r.lengths, r.keep) for r in rooms]
    given, turns = torch.randn(b, W), torch.randn(b, D)
    out = chain(given, rooms, turns)
    x = given
    cosine, sine = turns[:, None].chunk(2, -1)
    for part, own in zip(parts, again, strict=True):
        norm, joint, output, up, down = part
        heads = joint(ops.layer_norm(x, *norm, 1e-5)).view(b, -1, D)
        left, right = heads[:, : H + G].chunk(2, -1)
        turned = torch.cat([left * cosine - right * sine, right * cosine + left * sine], -1)
        q, k, v = torch.cat([turned, heads[:, H + G :]], 1).split((H, G, G), 1)
        seen = ops.attend(q, own.keys, own.values, own.lengths, 0.5, own.keep, (k, v))
        x = output(seen.flatten(1), add=x)
        gate, rest = up(ops.rms_norm(x, norm[0], 1e-6)).chunk(2, -1)
        x = down(F.silu(gate) * rest, add=x)
    torch.testing.assert_close(out, x, rtol=1e-4, atol=1e-4)
    for one, two in zip(rooms, again, strict=True):
        torch.testing.assert_close(one.keys, two.keys, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(one.values, two.values, rtol=1e-4, atol=1e-4)


def test_a_chain_walks_a_published_layer_token_by_token():
    """Eight tokens, one by one, against PyTorch's encoder layer under a causal mask; int8 rounds to about a per cent."""
    plain = nn.TransformerEncoderLayer(W, H, INNER, 0.0, "gelu", norm_first=True, batch_first=True).eval()
    look = plain.self_attn
    chain = StepProgram(W)
    joint = chain.linear(
        chain.layer_norm(0, plain.norm1.weight, plain.norm1.bias, 1e-5),
        ops.Int8Tiles(look.in_proj_weight, look.in_proj_bias),
    )
    seen = chain.attend(joint, H, H, D, D**-0.5, buffer=0)
    x = chain.linear(seen, ops.Int8Tiles(look.out_proj.weight, look.out_proj.bias), add=0)
    up, down = (ops.Int8Tiles(part.weight, part.bias) for part in (plain.linear1, plain.linear2))
    chain.linear(chain.linear(chain.layer_norm(x, plain.norm2.weight, plain.norm2.bias, 1e-5), up, "gelu"), down, add=x)
    text, lengths = torch.randn(2, 8, W), torch.zeros(2, dtype=torch.long)
    rooms = [KVBufferRef(torch.zeros(2, H, LIMIT, D), torch.zeros(2, H, LIMIT, D), lengths)]
    with torch.no_grad():
        out = torch.stack([(lengths.add_(1), chain(text[:, t], rooms))[1] for t in range(8)], 1)
        expected = plain(text, nn.Transformer.generate_square_subsequent_mask(8), is_causal=True)
    assert (out - expected).abs().max() < 0.05
    assert (out - expected).pow(2).mean().sqrt() < 0.01 * expected.std()


@pytest.mark.parametrize("neighbours", [False, True])
def test_heads_turn_as_rotary_positions_do(neighbours):
    rotary, pos = Rotary(D, interleaved=neighbours), torch.tensor([[3], [11]])
    angle = (pos * rotary.waves.frequencies(pos.device)).float()
    chain, layer = StepProgram(W), packed((H + 1) * D, W)
    chain.rotate(chain.linear(0, layer), H, D, interleaved=neighbours)
    x = torch.randn(2, W)
    heads = layer(x).view(2, H + 1, D)
    expected = torch.cat([rotary.rotate(heads[:, :H, None], pos)[:, :, 0], heads[:, H:]], 1)
    torch.testing.assert_close(chain(x, cos_sin=torch.cat([angle.cos(), angle.sin()], -1)), expected.flatten(1))


def test_beams_share_the_memory_they_look_across_to():
    chain, own = StepProgram(H * D), room(2, [3, 9], rows_per_source=3)
    chain.attend(0, H, G, D, 0.5, buffer=0)
    x = torch.randn(6, H * D)
    each = [ops.attend(x.view(2, 3, H, D)[:, n], own.keys, own.values, own.lengths, 0.5, own.keep) for n in range(3)]
    torch.testing.assert_close(chain(x, [own]), torch.stack(each, 1).flatten(2).flatten(0, 1))


def test_rows_that_changed_places_are_looked_up_where_they_lie():
    """A layer that writes and looks, on a memory of five rows of which three go on, against the same memory in order."""
    chain, parts = StepProgram(W), some()
    layer(chain, 0, 0, parts)
    keys, values = torch.randn(2, 5, G, LIMIT, D)
    lengths, keep = torch.tensor([6, 6, 6]), torch.rand(3, LIMIT) > 0.2
    origin = torch.randint(5, (3, LIMIT), dtype=torch.int32)
    origin[:, 5:] = torch.arange(3)[:, None]  # what is new lies in the row itself
    plain = [
        torch.stack([x[origin[b].long(), :, torch.arange(LIMIT)].transpose(0, 1) for b in range(3)])
        for x in (keys, values)
    ]
    x, turns = torch.randn(3, W), torch.randn(3, D)
    expected = chain(x, [KVBufferRef(*plain, lengths, keep)], turns)
    before = keys.clone()
    torch.testing.assert_close(
        chain(x, [KVBufferRef(keys, values, lengths, keep, indirection=origin)], turns), expected
    )
    torch.testing.assert_close(keys[:3, :, 5], plain[0][:, :, 5])
    keys[:3, :, 5] = before[:3, :, 5]
    assert keys.equal(before)  # nothing else was written


def test_where_rows_lie_must_be_said_of_all_places():
    keys, values = torch.randn(2, 5, G, LIMIT, D)
    good = torch.zeros(3, LIMIT, dtype=torch.int32)
    for bad, share in ((good.long(), 1), (good[:, 1:], 1), (good, 2)):
        with pytest.raises(ValueError, match=r"This KV cache has 5 rows of 17 positions; .* int32 \(B, 17\)"):
            KVBufferRef(keys, values, torch.tensor([1, 2, 3]), rows_per_source=share, indirection=bad)


def test_space_is_used_again():
    chain, x = StepProgram(W), 0
    for number in range(9):
        x = layer(chain, x, number, some())
    _, count, space = chain._bind_ops()
    assert count == 9 * 9
    # narrow results, and beside them what looking needs or, in the same place, a gate and what comes of it
    assert space <= 3 * W + max((H + 2 * G) * D + H * D, 3 * INNER)


def test_a_copy_has_addresses_of_its_own():
    chain = StepProgram(W)
    layer(chain, 0, 0, some())
    own, x, turns = room(1, [4]), torch.randn(1, W), torch.randn(1, D)
    expected = chain(x, [own], turns)
    other = copy.deepcopy(chain)
    for step in chain.ops:
        for tensor in (*step.tensors, *([step.layer.tiles, step.layer.row_scales] if step.layer else [])):
            tensor.zero_()
    assert other(x, [own], turns).equal(expected)


def test_what_does_not_belong_together_is_refused():
    chain = StepProgram(W)
    with pytest.raises(ValueError, match="Result 0 is 24 wide; this layer maps 25 to 7"):
        chain.linear(0, packed(7, W + 1))
    with pytest.raises(ValueError, match="this norm is"):
        chain.layer_norm(0, torch.ones(W + 1), None, 1e-5)
    with pytest.raises(ValueError, match=r"6 \+ 2 x 2 heads of 5 are not"):
        chain.attend(0, H, G, D + 1, 1.0, buffer=0)
    with pytest.raises(ValueError, match="cannot be rotated in place"):
        chain.rotate(0, H, D)
    with pytest.raises(ValueError, match="This program has 0 operators"):
        chain(torch.randn(2, W))
    layer(chain, 0, 0, some())
    turns = torch.zeros(2, D)
    with pytest.raises(ValueError, match=r"takes \(B, 24\); got \(2, 25\)"):
        chain(torch.randn(2, W + 1), [room(2, [1, 2])], turns)
    with pytest.raises(ValueError, match="KV buffer 0 has 1 x 1 rows of 2 heads of 4; the program needs 2 rows"):
        chain(torch.randn(2, W), [room(1, [1])], turns)
    with pytest.raises(ValueError, match=r"give cos_sin of shape \(2, 4\)"):
        chain(torch.randn(2, W), [room(2, [1, 2])])
    with pytest.raises(ValueError, match=r"got torch\.float64"):
        chain(torch.randn(2, W), [room(2, [1, 2])], turns.double())
    with pytest.raises(ValueError, match="Row 1 has length 18; this KV cache holds 1 to 17"):
        chain(torch.randn(2, W), [room(2, [1, 18])], turns)
    with pytest.raises(RuntimeError, match="no gradient"):
        chain(torch.randn(2, W, requires_grad=True), [room(2, [1, 2])], turns)
    with pytest.raises(ValueError, match="it needs keys and values"):
        KVBufferRef(torch.zeros(2, G, LIMIT, D), torch.zeros(2, G, LIMIT, D), torch.tensor([1]))
