"""The parts against hand-worked numbers, torch's own layers, and each other."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from saccade.attention import CAUSAL, FULL, Layout, LSHAttention, ScaledDot, Sight, T5Bias, watch
from saccade.parts.embeddings import PatchEmbedding, SegmentEmbedding, TokenEmbedding
from saccade.parts.feedforward import FeedForward
from saccade.parts.heads import ClassificationHead, FirstTokenPool, LMHead, MeanPool, SpanHead, TokenClassificationHead
from saccade.parts.layer import Sublayer, make_layer
from saccade.parts.multihead_attention import Attention, Projections
from saccade.parts.position import (
    ConcatPosition,
    Learned,
    LearnedGrid,
    Rotary,
    Sinusoidal,
    SinusoidalGrid,
    get_position,
)
from saccade.parts.recurrent import Recurrent
from saccade.parts.squeeze_excite import SqueezeExcite
from saccade.parts.stack import Stack
from saccade.parts.state import State

KEEPS = {
    "none": None,
    "right": torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0]]).bool(),
    "left": torch.tensor([[1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1]]).bool(),
    "holes": torch.tensor([[1, 0, 1, 1, 0, 1, 1], [0, 0, 0, 0, 0, 0, 0]]).bool(),
}

# positions


def test_sinusoidal_by_hand_and_its_shift_is_a_linear_map():
    scheme = Sinusoidal(6)
    table = scheme.encode(torch.tensor([[0, 1, 5]]), torch.float64)[0]
    slow = 10_000 ** (-2 / 6)
    assert_close(table[0], torch.tensor([0.0, 1, 0, 1, 0, 1]).double())
    assert_close(
        table[2, :4], torch.tensor([math.sin(5), math.cos(5), math.sin(5 * slow), math.cos(5 * slow)]).double()
    )
    for halves in (False, True):
        scheme = Sinusoidal(10, sines_first=halves)
        at = torch.arange(20)[None]
        assert_close(
            scheme.encode(at, torch.float64)[0] @ scheme.make_shift_matrix(7).T, scheme.encode(at + 7, torch.float64)[0]
        )


def test_rotary_scores_depend_on_distance_alone():
    for neighbours in (False, True):
        scheme, q, k = (
            Rotary(8, interleaved=neighbours),
            torch.randn(1, 1, 1, 8).double(),
            torch.randn(1, 1, 1, 8).double(),
        )
        score = lambda i, j, s=scheme, q=q, k=k: (
            s.rotate(q, torch.tensor([[i]])) * s.rotate(k, torch.tensor([[j]]))
        ).sum()
        assert_close(score(3, 10), score(103, 110))
        assert not torch.isclose(score(3, 10), score(3, 11))
        assert_close(scheme.rotate(q, torch.tensor([[0]])), q)
    turned = Rotary(2).rotate(torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([[1]]))
    assert_close(turned.flatten(), torch.tensor([math.cos(1), math.sin(1)]))


def test_the_two_layouts_of_rotary_differ_by_an_order_of_columns():
    x, pos = torch.randn(1, 2, 5, 8).double(), torch.arange(5)[None]
    order = torch.arange(8).view(4, 2).T.flatten()  # 0 2 4 6 1 3 5 7
    assert_close(Rotary(8).rotate(x[..., order], pos), Rotary(8, interleaved=True).rotate(x, pos)[..., order])


def test_learned_positions_have_an_end_and_can_be_resized():
    stack = Stack([], FULL, Learned(5, 4, offset=2))
    assert stack(torch.zeros(1, 5, 4)).shape == (1, 5, 4)
    with pytest.raises(ValueError, match=r"5 positions and the text has 6 tokens.*resize"):
        stack(torch.zeros(1, 6, 4))
    keep = torch.tensor([[False, True, True, True, True, True]])
    assert_close(
        stack(torch.zeros(1, 6, 4), Layout(keep))[0, 1:], stack.position.vectors.weight[2:]
    )  # padding takes no position
    state = State()
    stack(torch.zeros(1, 5, 4), None, state)
    with pytest.raises(ValueError, match="has 6 tokens"):
        stack(torch.zeros(1, 1, 4), None, state)
    assert state.length == 5  # what was refused was not read
    longer = stack.position.resize(9)
    assert_close(longer.vectors.weight[2::2], torch.cat([stack.position.vectors.weight[2:]]))
    assert longer.max_positions == 9
    assert_close(longer.vectors.weight[:2], stack.position.vectors.weight[:2])


def test_grid_positions():
    grid = LearnedGrid(2, 3, 4, prefix_positions=1)
    grid.vectors.data = torch.cat([torch.full((1, 4), 9.0), torch.arange(6.0)[:, None].expand(6, 4)])
    wide = grid.resize(4, 6)
    assert wide.max_positions == 25
    assert_close(wide.vectors[0], torch.full((4,), 9.0))
    cells = wide.vectors[1:, 0].view(4, 6)
    assert (cells.diff(dim=0) > 0).all()  # still grows along rows and along columns
    assert (cells.diff(dim=1) > 0).all()
    waves = SinusoidalGrid(3, 8)
    table = waves.encode(torch.arange(6)[None], torch.float64)[0]
    assert_close(table[:3, :4], table[:1, :4].expand(3, 4))  # one row
    assert_close(table[1, 4:], table[4, 4:])  # one column
    with pytest.raises(ValueError, match="4 divides"):
        SinusoidalGrid(3, 6)


def test_concatenated_positions_widen_the_stack_and_cannot_be_tied():
    scheme = ConcatPosition(Sinusoidal(6))
    stack = Stack([], FULL, scheme)
    out = stack(torch.ones(2, 3, 4))
    assert out.shape == (2, 3, 10)
    assert_close(out[..., :4], torch.ones(2, 3, 4))
    words = nn.Embedding(11, 4)
    with pytest.raises(ValueError, match="Concatenated positions widen the output"):
        LMHead(10, 11, tied_embedding=words)
    assert LMHead(4, 11, tied_embedding=words).score.weight is words.weight


def test_barcodes_can_be_drawn():
    for name in ("sinusoidal", "rotary", "alibi", "t5_bias", "learned_grid"):
        lines = get_position(name).make(16, 2, 24).draw(10).split("\n")
        assert len(lines) == 10
    with pytest.raises(ValueError, match="known are none, sinusoidal"):
        get_position("sine")


# attention, layers, stacks


def test_multi_head_attention_equals_torchs():
    width, heads = 12, 3
    theirs = nn.MultiheadAttention(width, heads, batch_first=True).double().eval()
    ours = Attention(width, heads).double().eval()
    for i, part in enumerate((ours.query, ours.key, ours.value)):
        part.weight.data = theirs.in_proj_weight[i * width : (i + 1) * width].clone()
        part.bias.data = torch.randn(width).double()
        theirs.in_proj_bias.data[i * width : (i + 1) * width] = part.bias.data
    ours.output.load_state_dict(theirs.out_proj.state_dict())
    x = torch.randn(2, 7, width).double()
    keep = KEEPS["left"]
    wanted, weights = theirs(x, x, x, key_padding_mask=~keep, average_attn_weights=False)
    with watch(ours) as looks:
        assert_close(ours(x, Sight(FULL, keep=keep)), wanted)
    assert_close(looks[0].weights, weights)


def test_attention_of_free_widths_groups_and_without_output():
    x, memory = torch.randn(2, 5, 12), torch.randn(2, 7, 9)
    free = Attention(12, 4, kv_heads=2, projections=Projections(head_width=5, value_width=3, memory_width=9))
    assert free.key.weight.shape == (10, 9)
    assert free.value.weight.shape == (6, 9)
    assert free(x, Sight(FULL, cross=True), memory=memory).shape == (2, 5, 12)
    joined = Attention(12, 4, projections=Projections(value_width=3, has_output_projection=False))
    assert joined(x, Sight(FULL)).shape == (2, 5, 12)
    assert not [name for name, _ in joined.named_parameters() if "output" in name]
    with pytest.raises(ValueError, match="give `head_width`"):
        Attention(10, 3)
    with pytest.raises(ValueError, match="divisor of 4"):
        Attention(12, 4, kv_heads=3)


def test_per_token_and_matrix_form_are_equal():
    """h_t = Σ_j softmax_j(k_j·q_t / √d) v_j, one token at a time, against the module."""
    module, x = (
        Attention(6, 1, projections=Projections(bias=False, has_output_projection=False))
        .double()
        .requires_grad_(False),
        torch.randn(1, 4, 6).double(),
    )
    whole = module(x, Sight(FULL))[0]
    for t in range(4):
        q = module.query.weight @ x[0, t]
        scores = [float((module.key.weight @ x[0, j]) @ q) / math.sqrt(6) for j in range(4)]
        total = sum(map(math.exp, scores))
        assert_close(sum(math.exp(s) / total * (module.value.weight @ x[0, j]) for j, s in enumerate(scores)), whole[t])


def test_hashed_attention_shares_query_and_key():
    module = Attention(8, 2, LSHAttention(4, 2))
    assert module.key is module.query
    with pytest.raises(ValueError, match="one vector as query and key"):
        Attention(8, 2, LSHAttention(4, 2), projections=Projections(memory_width=6))


def test_both_residual_formulas():
    x, branch = torch.randn(2, 3, 5), nn.Linear(5, 5)
    norm = nn.LayerNorm(5)
    assert_close(Sublayer(branch, norm, norm_first=True)(x), x + branch(norm(x)))
    assert_close(Sublayer(branch, norm, norm_first=False)(x), norm(x + branch(x)))


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_layer_equals_torchs(norm_first):
    theirs = nn.TransformerEncoderLayer(12, 3, 20, 0.0, batch_first=True, norm_first=norm_first, activation="gelu")
    theirs = theirs.double().train()
    ours = make_layer(Attention(12, 3), FeedForward(12, 20), width=12, norm_first=norm_first).double()
    for i, part in enumerate(("query", "key", "value")):
        target = getattr(ours.attention.branch, part)
        target.weight.data = theirs.self_attn.in_proj_weight[i * 12 : (i + 1) * 12].clone()
        target.bias.data = theirs.self_attn.in_proj_bias[i * 12 : (i + 1) * 12].clone()
    ours.attention.branch.output.load_state_dict(theirs.self_attn.out_proj.state_dict())
    ours.feedforward.branch.up.load_state_dict(theirs.linear1.state_dict())
    ours.feedforward.branch.down.load_state_dict(theirs.linear2.state_dict())
    ours.attention.norm.load_state_dict(theirs.norm1.state_dict())
    ours.feedforward.norm.load_state_dict(theirs.norm2.state_dict())
    x = torch.randn(2, 7, 12).double()
    mask = nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.float64)
    assert_close(Stack([ours], CAUSAL)(x), theirs(x, src_mask=mask, is_causal=True))


def test_feedforward_by_hand():
    module = FeedForward(2, 3, "relu", gated=True, bias=False)
    x = torch.randn(1, 1, 2)
    wanted = module.down.weight @ ((module.gate.weight @ x[0, 0]).clamp(min=0) * (module.up.weight @ x[0, 0]))
    assert_close(module(x)[0, 0], wanted)
    with pytest.raises(ValueError, match="relu, gelu"):
        FeedForward(2, 3, "swish")


def test_weight_dropout_drops_weights():
    module = Attention(12, 3, ScaledDot(dropout=0.5)).train()
    x = torch.randn(2, 7, 12)
    with watch(module) as looks:
        module(x, Sight(FULL))
    assert (looks[0].weights == 0).float().mean() == pytest.approx(0.5, abs=0.15)


# state


def test_state_reorders_joins_and_leaves():
    torch.manual_seed(0)
    layers = [make_layer(Attention(8, 2), FeedForward(8, 16), Attention(8, 2), width=8) for _ in range(2)]
    stack = Stack(layers, CAUSAL, Rotary(4)).double().eval()
    texts, memories = (
        [torch.randn(1, n, 8).double() for n in (6, 4, 9)],
        [torch.randn(1, m, 8).double() for m in (3, 5, 2)],
    )
    new = torch.randn(3, 2, 8).double()

    def alone(i):
        state = State()
        stack(texts[i], None, state, memory=memories[i])
        return [stack(new[i : i + 1, t : t + 1], None, state, memory=memories[i]) for t in range(2)]

    def begin(i):
        state = State()
        keep = state.put("memory_keep", torch.ones(1, memories[i].size(1), dtype=torch.bool), axis=1)
        memory = state.put("memory", memories[i], axis=1)
        stack(texts[i], None, state, memory=memory, memory_keep=keep)
        return state

    state = begin(0)
    state.append_rows(begin(1))
    step = lambda x, s: stack(x, None, s, memory=s.get("memory"), memory_keep=s.get("memory_keep"))
    first = step(new[:2, :1], state)
    assert_close(first[0], alone(0)[0][0])
    assert_close(first[1], alone(1)[0][0])
    state.append_rows(begin(2))  # a third request joins between steps
    state.reorder(torch.tensor([2, 0, 1]))
    mark = state.snapshot()
    out = step(torch.stack([new[2, :1], new[0, 1:], new[1, 1:]]), state)
    for row, (i, t) in enumerate(((2, 0), (0, 1), (1, 1))):
        assert_close(out[row], alone(i)[t][0])
    state.restore(mark)
    state.drop_rows(torch.tensor([0, 1]))  # only the second text goes on, and nothing of the others is kept
    assert state.length == 5
    assert state.keep is None
    assert_close(step(new[1:2, 1:], state)[0], alone(1)[1][0])
    with pytest.raises(ValueError, match="same model"):
        state.append_rows(State())


def test_a_row_leaves_and_takes_nothing_of_the_memory_with_it():
    """A memory that happens to be as long as the text is not the text."""
    stack = Stack([make_layer(Attention(8, 2), FeedForward(8, 16), Attention(8, 2), width=8)], CAUSAL).double().eval()
    memory, other = torch.randn(1, 9, 8).double(), torch.randn(1, 3, 8).double()
    text, new = torch.randn(1, 4, 8).double(), torch.randn(1, 1, 8).double()

    def begin(x, memory):
        state = State()
        state.put("memory", memory, axis=1)
        stack(x, None, state, memory=memory)
        return state

    alone, state = begin(text, memory), begin(text, memory)
    state.append_rows(begin(torch.randn(1, 9, 8).double(), other))
    state.drop_rows(torch.tensor([1]))
    assert_close(stack(new, None, state, memory=memory), stack(new, None, alone, memory=memory))
    with pytest.raises(ValueError, match="no rows to drop"):
        State().drop_rows(torch.tensor([0]))


def test_a_learned_bias_survives_recomputing_a_layer():
    from torch.utils.checkpoint import checkpoint

    from saccade.parts.layer import LayerContext

    block = make_layer(Attention(8, 2), FeedForward(8, 16), width=8).double()
    bias = T5Bias(2).double()
    grads = []
    for again in (False, True):
        x = torch.ones(1, 5, 8).double().requires_grad_()
        scene = LayerContext(Sight(CAUSAL, bias=bias))
        out = checkpoint(block, x, scene, use_reentrant=False) if again else block(x, scene)
        bias.zero_grad()
        out.sin().sum().backward()
        grads.append((x.grad, bias.table.weight.grad.clone()))
    for plain, recomputed in zip(*grads, strict=True):
        assert torch.equal(plain, recomputed)


# recurrence and squeeze


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_fused_layer_equals_the_cell(cell, keep, both):
    module = Recurrent(5, 4, cell, bidirectional=both).double()
    x = torch.randn(2, 7, 5).double()
    start = tuple(torch.zeros(2, 4).double() for _ in range(module.state_count))
    wanted, end, gates = module.forward_reference(x, KEEPS[keep], start)
    out, last = module._forward_fused(x, KEEPS[keep], start)
    assert_close(out, wanted)
    for a, b in zip(last, end, strict=True):
        assert_close(a, b)
    with watch(module) as looks:
        watched = module(x, KEEPS[keep])
    assert torch.equal(watched, module(x, KEEPS[keep]))
    assert looks[0].axes == ("batch", "time", "gate", "unit")
    assert_close(looks[0].weights, gates)
    assert ((looks[0].weights >= 0) & (looks[0].weights <= 1)).all()


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_recurrence_goes_on_where_it_stopped(cell):
    module, x, state = Recurrent(5, 4, cell).double(), torch.randn(2, 7, 5).double(), State()
    parts = [module(x[:, a:b], None, state) for a, b in ((0, 3), (3, 4), (4, 7))]
    assert_close(torch.cat(parts, dim=1), module(x))
    with pytest.raises(ValueError, match="both directions"):
        Recurrent(5, 4, cell, bidirectional=True).double()(x, None, State())
    with pytest.raises(ValueError, match="lstm, gru"):
        Recurrent(5, 4, "rnn")


def test_an_lstm_step_by_hand():
    """One unit, all weights 1 and biases 0: from h = c = 0 and x = 1, every gate is σ(1)."""
    module = Recurrent(1, 1)
    for name, parameter in module.named_parameters():
        nn.init.constant_(parameter, 0.0 if "bias" in name else 1.0)
    s = 1 / (1 + math.exp(-1))
    c = s * math.tanh(1)
    with watch(module) as looks:
        out = module(torch.ones(1, 1, 1))
    assert out.item() == pytest.approx(s * math.tanh(c), rel=1e-5)
    assert looks[0].weights.flatten().tolist() == pytest.approx([s, s, s])


def test_squeeze_and_excitation_by_hand():
    module = SqueezeExcite(4, reduction=2)
    x = torch.randn(3, 4, 5, 6)
    with watch(module) as looks:
        out = module(x)
    for b in range(3):
        mean = torch.tensor([x[b, c].sum() / 30 for c in range(4)])
        inner = (module.squeeze.weight @ mean + module.squeeze.bias).clamp(min=0)
        gate = 1 / (1 + (-(module.excite.weight @ inner + module.excite.bias)).exp())
        assert_close(looks[0].weights[b], gate)
        assert_close(out[b], x[b] * gate[:, None, None])
    assert looks[0].axes == ("batch", "channel")


# into vectors and out of them


def test_words_segments_and_patches():
    words = TokenEmbedding(7, 4, scale_embeddings=True)
    assert_close(words(torch.tensor([[3]]))[0, 0], words.vectors.weight[3] * 2)
    segments = SegmentEmbedding(2, 4)
    x = torch.zeros(1, 2, 4)
    assert_close(segments(x), segments(x, torch.tensor([[0, 0]])))
    assert_close(segments(x, torch.tensor([[0, 1]]))[0], segments.vectors.weight)
    patches = PatchEmbedding(2, 1, 3)
    picture = torch.arange(24.0).view(1, 1, 4, 6)
    corner = picture[0, :, 2:4, 2:4].flatten()  # second row, second column of patches: number 3 + 1
    assert_close(patches(picture)[0, 4], patches.project.weight.flatten(1) @ corner + patches.project.bias)
    with pytest.raises(ValueError, match="multiples of 2"):
        patches(torch.zeros(1, 1, 3, 4))


def test_heads_ignore_padding():
    x, keep = torch.randn(2, 7, 5), KEEPS["left"]
    changed = torch.where(keep[..., None], x, 77.0)
    for head in (
        ClassificationHead(5, 3),
        ClassificationHead(5, 3, pool=FirstTokenPool(), between=nn.Tanh()),
        ClassificationHead(5, 3, pool=MeanPool()),
    ):
        assert head(x, keep).shape == (2, 3)
        assert_close(head(changed, keep), head(x, keep))
    assert_close(MeanPool()(x, keep)[1], x[1, 4:].mean(0))
    assert_close(FirstTokenPool()(x, keep)[1], x[1, 4])
    assert_close(FirstTokenPool()(x), x[:, 0])
    assert TokenClassificationHead(5, 4)(x, keep).shape == (2, 7, 4)
    spans = SpanHead(5)(x, keep)
    assert (spans[1, :4] == -torch.inf).all()
    assert spans[keep].isfinite().all()
