"""The parts of an attention: biases, norms of queries and keys, output gates; each against a loop from its formula."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from saccade.attention import CAUSAL, FULL, LSHAttention, Sight, watch
from saccade.models.prune_heads import prune
from saccade.parts.feedforward import FeedForward
from saccade.parts.layer import make_layer
from saccade.parts.multihead_attention import Attention, JointHeadNorm, OutputGate, Projections, QKNorm
from saccade.parts.position import Rotary
from saccade.parts.stack import Stack
from saccade.parts.state import State
from support.tracing import compile_one_graph

W, HEADS, GROUPS, D, EPS = 10, 4, 2, 6, 1e-5


def per_head() -> QKNorm:
    return QKNorm(nn.RMSNorm(D, eps=EPS), nn.RMSNorm(D, eps=EPS))


def joined() -> QKNorm:
    query, key = nn.RMSNorm(HEADS * D, eps=EPS), nn.RMSNorm(GROUPS * D, eps=EPS)
    return QKNorm(JointHeadNorm(query), JointHeadNorm(key))


def made(**parts) -> Attention:
    torch.manual_seed(3)
    parts = {"projections": Projections(head_width=D, output_bias=False)} | parts
    module = Attention(W, HEADS, kv_heads=GROUPS, **parts).double().eval()
    for p in module.parameters():
        nn.init.normal_(p, std=0.7)
    return module


def text(rows: int = 2, length: int = 5) -> torch.Tensor:
    return torch.randn(rows, length, W, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / math.sqrt(float((x * x).mean()) + EPS) * weight


def by_hand(module: Attention, x: torch.Tensor, kind: str, turn: Rotary | None = None) -> torch.Tensor:
    """One token and one head at a time, for one text x (L, W)."""

    def heads(linear: nn.Linear, norm: nn.Module | None, t: int) -> list[torch.Tensor]:
        vector = linear.weight @ x[t] + (0 if linear.bias is None else linear.bias)
        if kind == "joined" and norm is not None:
            vector = rms(vector, norm.norm.weight)
        parts = [vector[i : i + D] for i in range(0, len(vector), D)]
        if kind == "per head" and norm is not None:
            parts = [rms(part, norm.weight) for part in parts]
        if turn is None or norm is None:
            return parts
        return [turn.rotate(part.view(1, 1, 1, D), torch.tensor([[t]])).view(D) for part in parts]

    norms = module.qk_norm
    out = []
    for t in range(len(x)):
        seen = []
        for head in range(HEADS):
            q = heads(module.query, norms.query if norms else None, t)[head]
            group = head // (HEADS // GROUPS)
            keys = [heads(module.key, norms.key if norms else None, j)[group] for j in range(len(x))]
            weights = torch.softmax(torch.stack([q @ k / math.sqrt(D) for k in keys]), 0)
            values = [heads(module.value, None, j)[group] for j in range(len(x))]
            one = sum(w * v for w, v in zip(weights, values, strict=True))
            if module.gate is not None:
                size = module.gate.width
                score = module.gate.score.weight[head * size : (head + 1) * size] @ x[t]
                one = one * (1 / (1 + torch.exp(-score)))
            seen.append(one)
        bias = 0 if module.output.bias is None else module.output.bias
        out.append(module.output.weight @ torch.cat(seen) + bias)
    return torch.stack(out)


@pytest.mark.parametrize(
    ("parts", "kind", "turns"),
    [
        ({}, "", False),
        ({"projections": Projections(head_width=D, bias=False, output_bias=True)}, "", False),
        ({"qk_norm": per_head()}, "per head", False),
        ({"qk_norm": per_head()}, "per head", True),
        ({"qk_norm": joined()}, "joined", True),
        ({"gate": OutputGate(W, HEADS)}, "", False),
        ({"gate": OutputGate(W, HEADS, D)}, "", False),
    ],
)
def test_every_part_is_its_formula(parts, kind, turns):
    module, x = made(**parts), text()
    rotary = Rotary(D)
    turn = rotary.rotation_at(torch.arange(5)[None]) if turns else None
    with torch.no_grad():
        wanted = torch.stack([by_hand(module, row, kind, rotary if turns else None) for row in x])
        assert_close(module(x, Sight(FULL), rotation=turn), wanted)


def test_biases_of_queries_keys_and_values_are_apart_from_the_outputs():
    qkv, out, both, none = (
        {name for name, _ in Attention(8, 2, projections=Projections(bias=a, output_bias=b)).named_parameters()}
        for a, b in ((True, False), (False, True), (True, None), (False, None))
    )
    three = {"query.bias", "key.bias", "value.bias"}
    assert three == qkv - none
    assert out - none == {"output.bias"}
    assert both - none == three | {"output.bias"}


@pytest.mark.parametrize("parts", [{"qk_norm": per_head()}, {"qk_norm": joined()}, {"gate": OutputGate(W, HEADS, D)}])
def test_a_step_at_a_time_is_all_at_once_and_traces_as_one_graph(parts):
    stack = Stack([make_layer(made(**parts), FeedForward(W, 7), width=W)], CAUSAL, Rotary(D)).double().eval()
    x, state = text(length=6), State()
    whole = stack(x)
    steps = [stack(x[:, a:b], None, state) for a, b in ((0, 3), (3, 4), (4, 6))]
    assert_close(torch.cat(steps, 1), whole)
    assert_close(compile_one_graph(stack)(x), whole)


def test_a_norm_of_keys_across_is_made_once_and_seen():
    module = Attention(W, 2, projections=Projections(head_width=D), qk_norm=per_head()).double().eval()
    x, memory, state = text(length=3), text(length=4), State()
    with watch(module) as looks, torch.no_grad():
        whole = module(x, Sight(FULL, cross=True), memory=memory)
        module(x, Sight(FULL, cross=True), memory=memory, state=state)
        assert_close(module(x, Sight(FULL, cross=True), memory=memory, state=state), whole)
    values = state.get("value")
    assert_close(module.output((looks[0].weights @ values).transpose(1, 2).flatten(2)), whole)
    normed = module.qk_norm.key(module.key(memory).unflatten(-1, (2, D)).transpose(1, 2))
    assert_close(state.get("key"), normed)


def test_one_vector_as_query_and_key_has_no_two_norms():
    with pytest.raises(ValueError, match="no QK-norm"):
        Attention(12, 2, LSHAttention(4, 2), qk_norm=per_head())


def test_heads_with_parts_of_their_own_are_cut_off_with_them():
    """A gate for each head goes with its head; a norm over all heads together cannot be cut."""
    for gate in (OutputGate(W, HEADS), OutputGate(W, HEADS, D)):
        body = nn.ModuleDict({"look": made(gate=gate, qk_norm=per_head())})
        x = text()
        silent = body["look"].output.weight.unflatten(1, (HEADS, D))
        with torch.no_grad():
            for head in (1, 3):
                silent[:, head] = 0
            wanted = body["look"](x, Sight(CAUSAL))
            prune(body, {"look": [0, 2]})
            assert_close(body["look"](x, Sight(CAUSAL)), wanted)
    with pytest.raises(ValueError, match="normalizes the queries of all heads together, so none can be pruned; ablate"):
        prune(nn.ModuleDict({"look": made(qk_norm=joined())}), {"look": [0, 2]})
