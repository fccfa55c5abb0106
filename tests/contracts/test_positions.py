"""The contract of every line of POSITIONS, inside a stack: steps, padding, order; and every mechanism inside a stack too."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from saccade.attention import (
    CAUSAL,
    FULL,
    MECHANISMS,
    BigBird,
    BigBirdPattern,
    Layout,
    LSHAttention,
    RandomBlocks,
    Windowed,
    watch,
)
from saccade.parts.feedforward import FeedForward
from saccade.parts.layer import make_layer
from saccade.parts.multihead_attention import Attention, Projections
from saccade.parts.position import POSITIONS
from saccade.parts.stack import Stack
from saccade.parts.state import State
from support.tracing import compile_one_graph

B, L, W, HEADS = 2, 11, 12, 3
names = [entry.name for entry in POSITIONS]
places = {entry.name: entry for entry in POSITIONS}
mechanisms = {entry.name: entry for entry in MECHANISMS}
SMALL = {
    "windowed": lambda w: Windowed(3, global_count=1),
    "bigbird": lambda w: BigBird(
        HEADS, pattern=BigBirdPattern(RandomBlocks(block_size=2, blocks_per_query_block=1, heads=HEADS))
    ),
    "lsh": lambda w: LSHAttention(w, HEADS, hash_buckets=4, max_bucket_distance=3),
}


def build(position="none", pattern=CAUSAL, *, norm_first=True, mechanism="scaled_dot", across=False):
    torch.manual_seed(3)
    scheme = places[position].make(W, HEADS, 24)
    width = W + scheme.extra_width
    head = width // HEADS
    layers = []
    for _ in range(2):
        how = SMALL.get(mechanism, lambda w: mechanisms[mechanism].make(w, HEADS, 24))(head)
        other = Attention(width, HEADS, projections=Projections(memory_width=W)) if across else None
        layers.append(
            make_layer(Attention(width, HEADS, how), FeedForward(width, 17), other, width=width, norm_first=norm_first)
        )
    stack = Stack(layers, pattern, scheme, leave=nn.LayerNorm(width) if norm_first else None).double().eval()
    for parameter in stack.parameters():  # so that positions and biases matter
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.4)
    return stack


def text(length=L):
    torch.manual_seed(4)
    return torch.randn(B, length, W, dtype=torch.float64)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("name", names)
def test_step_by_step_equals_all_at_once(name, side, norm_first):
    """A prompt, padded on one side, then one token at a time: each row as if it were alone."""
    stack, x = build(name, norm_first=norm_first), text()
    prompts = [5, 5] if side == "none" else [5, 3]  # real tokens of each row's prompt
    alone = [stack(x[i : i + 1, : prompts[i] + 4]) for i in range(B)]
    prompt, keep = torch.full((B, 5, W), 9.0, dtype=torch.float64), torch.zeros(B, 5, dtype=torch.bool)
    for i, size in enumerate(prompts):
        at = slice(5 - size, 5) if side == "left" else slice(0, size)
        prompt[i, at], keep[i, at] = x[i, :size], True
    state = State()
    out = stack(prompt, Layout(None if side == "none" else keep), state)
    for i, size in enumerate(prompts):
        assert_close(out[i, keep[i]], alone[i][0, :size])
    for step in range(4):
        new = torch.stack([x[i, prompts[i] + step] for i in range(B)])[:, None]
        out = stack(new, None, state)
        for i in range(B):
            assert_close(out[i, 0], alone[i][0, prompts[i] + step])


@pytest.mark.parametrize("mechanism", [n for n in mechanisms if "incremental" in mechanisms[n].supports])
def test_every_mechanism_step_by_step_in_a_stack(mechanism):
    stack, x = build("rotary" if mechanism != "spatial" else "none", mechanism=mechanism), text()
    whole, state = stack(x), State()
    parts = [stack(x[:, a:b], None, state) for a, b in ((0, 4), (4, 5), (5, 8), (8, 9), (9, 11))]
    assert_close(torch.cat(parts, dim=1), whole)


@pytest.mark.parametrize("pattern", [FULL, CAUSAL])
@pytest.mark.parametrize("name", names)
def test_padding_on_either_side_equals_none(name, pattern):
    stack, x = build(name, pattern), text()
    alone = stack(x)
    for left, right in ((3, 0), (0, 4)):
        padded = nn.functional.pad(x, (0, 0, left, right), value=5.0)
        keep = torch.zeros(B, L + left + right, dtype=torch.bool)
        keep[:, left : left + L] = True
        assert_close(stack(padded, Layout(keep))[:, left : left + L], alone)


@pytest.mark.parametrize("name", names)
def test_order_is_seen_only_with_positions(name):
    stack, x = build(name, FULL), text()
    order = torch.randperm(L)
    same = torch.allclose(stack(x[:, order]), stack(x)[:, order])
    assert same == (name == "none")


def test_two_sentences_of_the_same_words_differ_only_with_positions():
    words = {w: torch.randn(W, dtype=torch.float64) for w in ("all", "dogs", "are", "smart", "and", "some", "dumb")}
    one, other = "all dogs are smart and some are dumb", "all dogs are dumb and some are smart"
    read = lambda stack, s: stack(torch.stack([words[w] for w in s.split()])[None]).mean(1)
    blind, seeing = build("none", FULL), build("sinusoidal", FULL)
    assert_close(read(blind, one), read(blind, other))
    assert not torch.allclose(read(seeing, one), read(seeing, other))


@pytest.mark.parametrize("name", names)
def test_gradients_reach_everything(name):
    stack = build(name).train()
    stack(text()).square().mean().backward()
    # a key's bias moves all scores of a query alike, so softmax gives it no gradient
    learn = {n: p.grad for n, p in stack.named_parameters() if not n.endswith("key.bias")}
    assert not [n for n, grad in learn.items() if grad is None or not grad.isfinite().all() or not grad.abs().sum() > 0]


@pytest.mark.parametrize("name", names)
def test_the_future_changes_nothing(name):
    stack, x = build(name), text()
    before = stack(x)
    x[:, 6:] = torch.randn(B, L - 6, W, dtype=torch.float64)
    assert torch.equal(stack(x)[:, :6], before[:, :6])


def test_across_is_remembered_and_its_padding_ignored():
    stack, x = build(across=True), text()
    memory = torch.randn(B, 7, W, dtype=torch.float64)
    keep = torch.ones(B, 7, dtype=torch.bool)
    keep[1, 4:] = False
    whole = stack(x, memory=memory, memory_keep=keep)
    memory[1, 4:] = 99.0
    state = State()
    parts = [stack(x[:, i : i + 1], None, state, memory=memory, memory_keep=keep) for i in range(L)]
    assert_close(torch.cat(parts, dim=1), whole)
    with pytest.raises(ValueError, match="pass `memory`"):
        stack(x)


COMPILED = [("none", m) for m in mechanisms if m != "low_rank"] + [(p, "scaled_dot") for p in names]


@pytest.mark.parametrize("padded", [pytest.param(False, marks=pytest.mark.nightly), True])
@pytest.mark.parametrize(("position", "mechanism"), COMPILED)
def test_a_stack_is_traced_as_one_graph(position, mechanism, padded):
    stack, x = build(position, mechanism=mechanism), text()
    keep = torch.arange(L)[None].expand(B, L) < torch.tensor([[L], [L - 2]]) if padded else None
    traced = compile_one_graph(stack)
    assert_close(traced(x, Layout(keep)), stack(x, Layout(keep)))


def test_watch_names_layers_and_leaves_the_answer_alone():
    stack, x = build("rotary", across=True), text()
    memory = torch.randn(B, 7, W, dtype=torch.float64)
    alone = stack(x, memory=memory)
    with watch(stack, "layers.1.*") as looks:
        watched = stack(x, memory=memory)
    assert torch.equal(alone, watched)
    assert [look.name for look in looks] == ["layers.1.attention.branch.mechanism", "layers.1.across.branch.mechanism"]
    assert looks[0].weights.shape == (B, HEADS, L, L)
    assert looks[1].weights.shape == (B, HEADS, L, 7)
    assert_close(looks[0].weights.sum(-1), torch.ones(B, HEADS, L).double())
    with pytest.raises(ValueError, match=r"layers\.9.*such as"), watch(stack, "layers.9.*"):
        pass
