"""The vocabulary's scores in pieces are the whole vocabulary's scores."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from saccade.models.build import new
from saccade.models.encoder_decoder import BiasedLMHead
from saccade.models.families import rnn, transformer
from saccade.models.families.t5 import ScaleByWidth
from saccade.parts.heads import LMHead
from saccade.tasks import losses
from saccade.tasks.losses import lm_loss, lm_loss_reference
from support.small_runs import make_learner

HEADS = {
    "with a bias": lambda: new("rnn_lm", rnn.Config(23, 8)).body.head,
    "tied": lambda: new("transformer_lm", transformer.Config(23, 8, 1, 2, 16)).body.head,
    "shifted": lambda: BiasedLMHead(8, 23, tied_embedding=nn.Embedding(23, 8)),
    "with a layer before": lambda: LMHead(8, 23, between=nn.Sequential(nn.Linear(8, 8), nn.Tanh()), bias=True),
    "narrowed before": lambda: LMHead(8, 23, tied_embedding=nn.Embedding(23, 8), between=ScaleByWidth(8)),
}
FAST = "ChunkedCrossEntropyBackward"


def costs(loss_of, head, x, gold, smoothing, share=0.37):
    """The loss, and its gradient by the vectors and by all that the head learns."""
    leaf = x.clone().requires_grad_()
    head.zero_grad()
    loss = loss_of(head, leaf, gold, smoothing)
    (share * loss).backward()
    return [loss.detach(), leaf.grad, *(p.grad.clone() for p in head.parameters())]


def way(loss):
    return type(loss.grad_fn).__name__


def spelt(head, x, gold, smoothing):
    """All but a share of the weight on the gold word, the share spread over all words."""
    logs = head(x).log_softmax(-1)
    return -((1 - smoothing) * logs[range(len(gold)), gold] + smoothing * logs.mean(-1)).sum()


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("chunk", [1, 23, 40, 23 * 17, 10**6])
def test_the_loss_in_pieces_is_the_cross_entropy(monkeypatch, chunk, smoothing, head):
    monkeypatch.setattr(losses, "MAX_LOGITS_PER_CHUNK", chunk)
    monkeypatch.setattr(losses, "MAX_LOGITS_IN_CACHE", chunk)
    monkeypatch.setattr(losses, "MIN_ROWS_PER_CHUNK", 1)
    torch.manual_seed(1)
    made = HEADS[head]().double()
    if head == "shifted":
        made.shift.normal_()
    x, gold = 3 * torch.randn(19, 8, dtype=torch.float64), torch.randint(23, (19,))
    wanted = costs(spelt, made, x, gold, smoothing)
    for loss_of in (lm_loss, lm_loss_reference):
        assert_close(costs(loss_of, made, x, gold, smoothing), wanted, rtol=1e-12, atol=1e-12)
    assert way(lm_loss(made, x, gold, smoothing)) == FAST
    with torch.no_grad():
        assert_close(lm_loss(made, x, gold, smoothing), wanted[0], rtol=1e-12, atol=1e-12)


def test_scores_far_apart_cost_what_they_cost():
    """A gold word whose chance float32 takes for 0, and one that is certain."""
    head = LMHead(1, 3)
    head.score.weight.data = torch.tensor([[0.0], [1.0], [-1.0]])
    x = torch.tensor([[300.0], [300.0]], requires_grad=True)
    loss = lm_loss(head, x, torch.tensor([2, 1]))
    loss.backward()
    assert loss.item() == 600.0
    assert x.grad.tolist() == [[2.0], [0.0]]


def test_what_is_frozen_stays_and_what_is_not_learns():
    head = LMHead(4, 7, bias=True)
    head.score.weight.requires_grad_(False)
    x, gold = torch.randn(5, 4), torch.randint(7, (5,))
    found = []
    for loss_of in (lm_loss, spelt):
        leaf = x.clone().requires_grad_()
        head.score.bias.grad = None
        loss_of(head, leaf, gold, 0.1).backward()
        assert head.score.weight.grad is None
        found.append([leaf.grad, head.score.bias.grad])
    assert_close(found[0], found[1])


def test_vectors_that_do_not_learn_leave_the_words_theirs():
    head, x, gold = LMHead(4, 7), torch.randn(5, 4), torch.randint(7, (5,))
    lm_loss(head, x, gold).backward()
    (wanted,) = torch.autograd.grad(spelt(head, x, gold, 0.0), head.score.weight)
    assert_close(head.score.weight.grad, wanted)


def test_a_gradient_can_be_asked_for_twice():
    head, gold = LMHead(4, 7), torch.randint(7, (5,))
    x = torch.randn(5, 4, requires_grad=True)
    loss = lm_loss(head, x, gold)
    loss.backward(retain_graph=True)
    once = x.grad.clone()
    loss.backward()
    assert_close(x.grad, 2 * once)


def test_a_word_that_cannot_be_costs_as_it_is_defined():
    head = BiasedLMHead(4, 7, tied_embedding=nn.Embedding(7, 4))
    head.shift[3] = -math.inf
    x, gold = torch.randn(5, 4), torch.tensor([0, 1, 2, 4, 5])
    assert_close(*(costs(loss_of, head, x, gold, 0.0) for loss_of in (lm_loss, lm_loss_reference)))
    gold[0] = 3
    assert lm_loss(head, x.requires_grad_(), gold).item() == math.inf


class Capped(LMHead):
    """Scores that stay between -2 and 2."""

    def forward(self, x, keep=None):
        return 2 * torch.tanh(super().forward(x, keep) / 2)


@pytest.mark.parametrize("case", ["a head with a formula of its own", "a layer of its own", "bfloat16"])
def test_what_the_fast_path_does_not_know_takes_the_definition(case):
    head, gold = (Capped if "formula" in case else LMHead)(4, 7), torch.randint(7, (5,))
    x = 5 * torch.randn(5, 4, requires_grad=True)
    if "layer" in case:
        head.score = type("Louder", (nn.Linear,), {"forward": lambda self, x: 3 * F.linear(x, self.weight)})(4, 7)
    if case == "bfloat16":
        head, x = head.bfloat16(), x.bfloat16()
    loss = lm_loss(head, x, gold)
    assert way(loss) != FAST
    close = 0.02 if case == "bfloat16" else 1e-5  # of a number with eight bits
    assert_close(loss.float(), spelt(head, x, gold, 0.0).float(), rtol=close, atol=1e-5)


def test_of_a_large_vocabulary_no_more_scores_exist_than_may(monkeypatch):
    """Rows are fewer than ROWS where so many would not fit."""
    monkeypatch.setattr(losses, "MAX_LOGITS_PER_CHUNK", 3 * 23)
    monkeypatch.setattr(losses, "MAX_LOGITS_IN_CACHE", 23)
    seen, product = [], F.linear

    def noted(x, *rest):
        seen.append(len(x))
        return product(x, *rest)

    monkeypatch.setattr(losses.F, "linear", noted)
    lm_loss(LMHead(4, 23), torch.randn(10, 4, requires_grad=True), torch.randint(23, (10,)))
    assert seen == [3, 3, 3, 1]


def test_nothing_to_learn_from_costs_nothing():
    head = LMHead(4, 7)
    loss = lm_loss(head, torch.zeros(0, 4, requires_grad=True), torch.zeros(0, dtype=torch.long))
    loss.backward()
    assert loss.item() == 0.0
    assert head.score.weight.grad.abs().sum() == 0


@pytest.mark.parametrize("task", ["translate", "language"])
def test_a_writers_loss_is_that_of_its_own_scores(home, monkeypatch, task):
    """Against `step`, which scores every place, padded or not."""
    one = make_learner(
        home, task, double=True, task_fields={"label_smoothing": 0.2} if task == "translate" else {"max_tokens": 11}
    )
    batch = one.batch_source.batches(0)[0]
    target = batch.target
    assert target is not None
    monkeypatch.setattr(losses, "MAX_LOGITS_IN_CACHE", 100)
    monkeypatch.setattr(losses, "MIN_ROWS_PER_CHUNK", 1)
    one.model.train()
    found = one.task.loss(one.model, batch)
    found.backward()
    grads = {name: p.grad.clone() for name, p in one.trainable_parameters.items() if p.grad is not None}
    one.model.zero_grad()
    state, first = one.model.start(batch)
    text = (
        first if task == "language" else type(first)(torch.cat([first.tokens, target.tokens[:, :-1]], 1), target.keep)
    )
    scores = one.model.step(text, state)
    gold = target.tokens if target.keep is None else target.tokens.masked_fill(~target.keep, -100)
    smoothing = 0.2 if task == "translate" else 0.0
    wanted = F.cross_entropy(scores.flatten(0, 1), gold.flatten(), reduction="sum", label_smoothing=smoothing)
    wanted.backward()
    assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    assert_close(
        grads,
        {name: p.grad for name, p in one.trainable_parameters.items() if p.grad is not None},
        rtol=1e-9,
        atol=1e-12,
    )
