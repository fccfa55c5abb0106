"""Parallel layers, norms around a branch, a pattern and a position scheme for each layer: formulas, steps, graphs, engine."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from saccade.attention import CAUSAL, FULL, Layout, Sight, Window, watch
from saccade.data import Text
from saccade.engine import KVCache
from saccade.engine.convert import ModuleConverter
from saccade.engine.native import ops
from saccade.engine.stack import FastStack
from saccade.parts.feedforward import FeedForward
from saccade.parts.layer import Layer, LayerContext, ParallelLayer, Sublayer, make_layer
from saccade.parts.multihead_attention import Attention, QKNorm
from saccade.parts.norm import OffsetRMSNorm
from saccade.parts.position import Learned, PerLayerPosition, Rotary, Sinusoidal, get_position
from saccade.parts.stack import Stack
from saccade.parts.state import State
from support.tracing import compile_one_graph

W, HEADS, D = 12, 3, 4


def text(rows=2, length=9, seed=4):
    return torch.randn(rows, length, W, generator=torch.Generator().manual_seed(seed))


def sublayers(norm=nn.LayerNorm, post=None, **parts):
    branches = Attention(W, HEADS, **parts), FeedForward(W, 17)
    return [Sublayer(x, norm(W), norm_first=True, post_norm=post and post(W)) for x in branches]


def plain_layer():
    return make_layer(Attention(W, HEADS), FeedForward(W, 17), width=W)


def one_norm():
    return ParallelLayer(*sublayers(norm=lambda width: nn.Identity()), nn.LayerNorm(W))


def two_norms():
    return ParallelLayer(*sublayers())


def sandwich():
    return Layer(*sublayers(OffsetRMSNorm, OffsetRMSNorm, qk_norm=QKNorm(OffsetRMSNorm(D), OffsetRMSNorm(D))))


LAYERS = {"plain": plain_layer, "one norm": one_norm, "two norms": two_norms, "norms around": sandwich}


def stacked(name, **options):
    torch.manual_seed(3)
    near, far = Rotary(D, base=10.0), Rotary(D, base=1e4, rotary_width=2)
    schemes, patterns = [near, far, near], [Window(2, 0), CAUSAL, Window(2, 0)]
    options = {"pattern": patterns, "position": schemes} | options
    stack = Stack([LAYERS[name]() for _ in range(3)], leave=nn.LayerNorm(W), **options).eval()
    for p in stack.parameters():
        nn.init.normal_(p, std=0.5)
    return stack


def test_a_parallel_layer_reads_one_input():
    x, scene = text().double(), LayerContext(Sight(CAUSAL))
    two, one = two_norms().double(), one_norm().double()
    look, think = two.attention, two.feedforward
    wanted = x + look.branch(look.norm(x), scene.sight) + think.branch(think.norm(x))
    assert_close(two(x, scene), wanted)
    normed = one.norm(x)
    assert_close(one(x, scene), x + one.attention.branch(normed, scene.sight) + one.feedforward.branch(normed))
    with pytest.raises(ValueError, match="norms come first"):
        ParallelLayer(Sublayer(Attention(W, HEADS), nn.LayerNorm(W), norm_first=False), think)


def test_a_norm_after_the_branch_is_before_the_sum():
    x, branch = text(), nn.Linear(W, W)
    before, after = nn.LayerNorm(W), OffsetRMSNorm(W, eps=1e-6)
    nn.init.normal_(after.weight)
    y = branch(before(x))
    y = y / (y.square().mean(-1, keepdim=True) + 1e-6).sqrt() * (1 + after.weight)
    assert_close(Sublayer(branch, before, norm_first=True, post_norm=after)(x), x + y)


def test_a_fresh_offset_norm_changes_no_scale():
    assert OffsetRMSNorm(3).weight.tolist() == [0, 0, 0]
    x = torch.tensor([1.0, -2.0, 2.0])
    assert_close(OffsetRMSNorm(3, eps=0.0)(x), x / math.sqrt(3))


def test_partial_rotary_leaves_the_other_columns():
    x, pos = torch.randn(2, 3, 5, 10), torch.arange(5)[None]
    out = Rotary(10, rotary_width=4).rotate(x, pos)
    assert torch.equal(out[..., 4:], x[..., 4:])
    for t in range(5):
        for i in range(2):  # column i turns with column i + 2
            angle = t * 10_000.0 ** (-2 * i / 4)
            a, b = x[..., t, i], x[..., t, i + 2]
            assert_close(out[..., t, i], a * math.cos(angle) - b * math.sin(angle))
            assert_close(out[..., t, i + 2], b * math.cos(angle) + a * math.sin(angle))
    with pytest.raises(ValueError, match="no 12 columns to rotate"):
        Rotary(10, rotary_width=12)


def test_each_layer_has_its_pattern_and_scheme():
    """Against a stack for each layer, one after the other; and the weights outside a window are zero."""
    near, far = Rotary(D, base=10.0), Rotary(D, base=1e4)
    patterns, schemes = [Window(2, 0), CAUSAL, Window(2, 0), CAUSAL], [near, near, far, far]
    stack, x = Stack([plain_layer() for _ in range(4)], patterns, schemes).eval(), text()
    y = x
    for one, pattern, scheme in zip(stack.layers, patterns, schemes, strict=True):
        y = Stack([one], pattern, scheme)(y)
    with watch(stack) as looks:
        assert_close(stack(x), y)
    at = torch.arange(9)
    for look, pattern in zip(looks, stack.patterns, strict=True):
        seen = pattern.allows(at[:, None], at[None, :]).expand_as(look.weights)
        assert (look.weights[~seen] == 0).all()
        assert (look.weights[seen] > 0).all()


def test_layers_share_what_is_the_same():
    stack = stacked("plain")
    scenes = stack.make_contexts(torch.arange(9)[None], lambda pattern, bias: Sight(pattern, bias=bias))
    assert scenes[0] is scenes[2]
    assert scenes[0] is not scenes[1]
    assert len(stack.position.schemes) == 2
    alike = Stack([plain_layer() for _ in range(3)], [Window(2, 0)] * 3)
    assert len(set(map(id, alike.make_contexts(torch.arange(9)[None], lambda pattern, bias: Sight(pattern))))) == 1


def test_what_cannot_be_each_layers_own():
    layers = [plain_layer(), plain_layer()]
    with pytest.raises(ValueError, match="3 patterns or schemes for 2 layers"):
        Stack(layers, [CAUSAL] * 3)
    with pytest.raises(ValueError, match="1 patterns or schemes for 2 layers"):
        Stack(layers, CAUSAL, [Rotary(D)])
    for scheme in (Sinusoidal(W), Learned(9, W), get_position("concat").make(W, HEADS, 9)):
        with pytest.raises(ValueError, match="enters the input, which all layers share"):
            PerLayerPosition([Rotary(D), scheme])


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("name", LAYERS)
def test_steps_padding_graph_and_engine(name, left):
    """All at once in double precision is what is right; then in steps with padding, as one graph, and by the engine."""
    stack, x = stacked(name), text()
    exact = stacked(name).double()
    wanted = [exact(x[:1].double()).float(), exact(x[1:, :7].double()).float()]
    assert_close(compile_one_graph(stack)(x[:1]), wanted[0], rtol=1e-4, atol=1e-4)
    prompt = torch.zeros(2, 5, W)
    keep = torch.ones(2, 5, dtype=torch.bool)
    prompt[0], rest = x[0, :5], [x[0, 5:], x[1, 3:7]]
    keep[1] = torch.arange(5) >= 2 if left else torch.arange(5) < 3
    prompt[1, keep[1]] = x[1, :3]
    quick = ModuleConverter("float32").convert_model(stacked(name))
    assert isinstance(quick, FastStack)
    for one, state in ((stack, State()), (quick, KVCache())):
        with torch.no_grad():
            first = one(prompt, Layout(keep), state)
            more = [one(torch.stack([row[t] for row in rest])[:, None], None, state) for t in range(4)]
        for i, row in enumerate(wanted):
            got = torch.cat([first[i, keep[i]], torch.cat(more, 1)[i]])
            assert_close(got[: row.size(1)], row[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", LAYERS)
def test_the_engine_with_one_window_for_all(name):
    """The window of a single pattern, where one new token goes through all layers at once."""
    stack = stacked(name, pattern=Window(3, 0), position=Rotary(D))
    quick = ModuleConverter("float32").convert_model(stacked(name, pattern=Window(3, 0), position=Rotary(D)))
    x, state = text(3, 11), KVCache()
    with torch.no_grad():
        parts = [quick(x[:, :2], None, state), *(quick(x[:, t : t + 1], None, state) for t in range(2, 11))]
        assert_close(torch.cat(parts, 1), stack(x), rtol=1e-4, atol=1e-4)


UNLINKED = {  # what one call for all layers does not know: (a layer, its position scheme)
    "a scheme for each layer": (plain_layer, [Rotary(D, base=10.0), Rotary(D), Rotary(D)]),
    "partial rotary": (plain_layer, Rotary(D, rotary_width=2)),
    "side by side": (two_norms, Rotary(D)),
    "a norm after": (lambda: Layer(*sublayers(post=nn.LayerNorm)), Rotary(D)),
    "norms of queries and keys": (lambda: Layer(*sublayers(qk_norm=norms_of_heads())), Rotary(D)),
}


def norms_of_heads():
    return QKNorm(nn.RMSNorm(D), nn.RMSNorm(D))


def walked(quick, x):
    state = KVCache()
    return torch.cat([quick(x[:, :2], None, state), *(quick(x[:, [t]], None, state) for t in range(2, 11))], 1)


@pytest.mark.skipif(not ops.is_available(), reason=ops.unavailable_reason() or "compiled")
@torch.no_grad()
def test_one_call_for_all_layers_where_it_knows_them():
    """With int8 all layers may be one call, a window included; the answer is that of the layers one after the other."""
    torch.manual_seed(3)
    x = text(3, 11)
    quick = ModuleConverter("int8").convert_model(
        Stack([plain_layer() for _ in range(3)], Window(3, 0), Rotary(D)).eval()
    )
    one_call = walked(quick, x)
    assert quick.program is not None
    quick.program = None
    assert_close(one_call, walked(quick, x), rtol=1e-4, atol=1e-4)
    for make, scheme in UNLINKED.values():
        assert (
            ModuleConverter("int8").convert_model(Stack([make() for _ in range(3)], CAUSAL, scheme).eval()).program
            is None
        )
    differ = ModuleConverter("int8").convert_model(
        Stack([plain_layer() for _ in range(2)], [Window(3, 0), CAUSAL], Rotary(D)).eval()
    )
    one_call = walked(differ, x)
    differ.program = None
    assert torch.equal(one_call, walked(differ, x))


def test_an_encoder_may_have_a_pattern_for_each_layer():
    stack, x = stacked("two norms", pattern=[Window(1, 1), FULL, Window(1, 1)]), text()
    keep = torch.arange(9) < torch.tensor([[9], [4]])
    quick = ModuleConverter("float32").convert_model(stacked("two norms", pattern=[Window(1, 1), FULL, Window(1, 1)]))
    with torch.no_grad():
        assert_close(quick(x, Layout(keep))[keep], stack(x, Layout(keep))[keep], rtol=1e-4, atol=1e-4)


def test_texts_that_share_a_row_are_read_as_if_alone():
    """With a window and a scheme for each layer, by the plain stack, as one graph, and by the engine."""
    stack, texts = stacked("norms around"), [text(1, 5, seed=6), text(1, 4, seed=7)]
    layout = Text.pack([[[1] * 5, [2] * 4]]).layout
    assert layout.document_ids.tolist() == [[0] * 5 + [1] * 4]
    quick = ModuleConverter("float32").convert_model(stacked("norms around"))
    with torch.no_grad():
        wanted = torch.cat([stack(one) for one in texts], 1)
        for read in (stack, quick, compile_one_graph(stack)):
            assert_close(read(torch.cat(texts, 1), layout), wanted, rtol=1e-4, atol=1e-4)


def test_a_text_gives_its_layout():
    padded = Text.pad([[5, 6], [7]])
    assert padded.layout.keep is padded.keep
    assert Text.pad([[5, 6]]).layout == Layout()
