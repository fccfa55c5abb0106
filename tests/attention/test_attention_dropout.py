"""Dropout on the weights, hurried: the definition's answers and gradients, and a tenth of its memory."""

from dataclasses import replace

import pytest
import torch

from saccade.attention import CAUSAL, FULL, Mechanism, ScaledDot, Sight, Sparsemax, SumNormalizer, Window
from saccade.attention import dropout as module


def drawn(sight, b=2, h=3, q=5, k=5):
    return replace(sight, noise=torch.rand(b, h, q, k, dtype=torch.float64), cache={})


KEEP = torch.tensor([[True] * 5, [False, True, True, False, False]])
SIGHTS = {
    "full": Sight(FULL),
    "causal": Sight(CAUSAL),
    "padded": Sight(FULL, keep=KEEP),
    "blind rows": Sight(CAUSAL, keep=KEEP),
    "window": Sight(Window(1, 1)),
    "parts": Sight(CAUSAL, document_ids=torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]])),
}


@pytest.mark.parametrize("room", [1, 200, 2**20])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("name", SIGHTS)
def test_answers_and_gradients_are_those_of_the_definition(name, groups, room, monkeypatch):
    monkeypatch.setattr(module, "MAX_WEIGHTS", room)
    torch.manual_seed(0)
    sight = drawn(SIGHTS[name])
    m = ScaledDot(dropout=0.3).train()
    q, k, v = (torch.randn(2, heads, 5, 4, dtype=torch.float64, requires_grad=True) for heads in (3, groups, groups))
    weight = torch.randn(2, 3, 5, 4, dtype=torch.float64)
    found, wanted = m.attend(q, k, v, sight), Mechanism.attend(m, q, k, v, sight)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    ours = torch.autograd.grad((found * weight).sum(), (q, k, v))
    theirs = torch.autograd.grad((wanted * weight).sum(), (q, k, v))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    assert found.grad_fn is not None
    assert "AttentionWithDropout" in type(found.grad_fn).__name__  # it was the hurried way


def test_the_gradient_by_differences():
    torch.manual_seed(0)
    sight = drawn(Sight(CAUSAL))
    m = ScaledDot(dropout=0.4).train()
    q, k, v = (torch.randn(2, 3, 5, 2, dtype=torch.float64, requires_grad=True) for _ in range(3))
    assert torch.autograd.gradcheck(lambda *x: m.attend(*x, sight), (q, k, v))


def test_what_is_remembered_is_small():
    kept: list[int] = []

    def packed(x):
        kept.append(x.numel() * x.element_size())
        return x

    q, k, v = (torch.randn(2, 4, 128, 8, requires_grad=True) for _ in range(3))
    sizes = []
    for attend in (ScaledDot.attend, Mechanism.attend):
        kept.clear()
        m = ScaledDot(dropout=0.1).train()
        with torch.autograd.graph.saved_tensors_hooks(packed, lambda x: x):
            attend(m, q, k, v, m.with_noise(q, k, Sight(CAUSAL)))
        sizes.append(sum(kept))
    assert sizes[0] < 0.4 * sizes[1]


@pytest.mark.parametrize("normaliser", [Sparsemax, SumNormalizer])
def test_other_normalisers_are_left_to_the_definition(normaliser):
    torch.manual_seed(0)
    m = ScaledDot(normalizer=normaliser(), dropout=0.3).train()
    q, k, v = torch.randn(3, 2, 3, 5, 4, dtype=torch.float64).unbind(0)
    sight = drawn(Sight(CAUSAL))
    torch.testing.assert_close(m(q, k, v, sight), m.weights(q, k, sight) @ v, rtol=0, atol=1e-12)


def test_a_single_head_that_fills_the_room_is_computed_alone(monkeypatch):
    monkeypatch.setattr(module, "MAX_WEIGHTS", 30)
    groups = module._chunk_batch_heads(torch.zeros(2, 3, 5, 5))
    assert [(rows.start, heads.start) for rows, heads in groups] == [(b, h) for b in range(2) for h in range(3)]
