"""The vocabulary's scores in pieces are the whole vocabulary's scores."""

import pytest
import torch
import torch.nn.functional as F
from small import learner
from torch import nn
from torch.testing import assert_close

from saccade.models import rnn, transformer
from saccade.models.encoder_decoder import ShiftedWordHead
from saccade.models.new import new
from saccade.parts.heads import WordHead
from saccade.tasks import losses
from saccade.tasks.losses import defined_loss, word_loss

HEADS = {
    "with a bias": lambda: new("rnn_language", rnn.Config(23, 8)).body.head,
    "tied": lambda: new("transformer_language", transformer.Config(23, 8, 1, 2, 16)).body.head,
    "shifted": lambda: ShiftedWordHead(8, 23, tied=nn.Embedding(23, 8)),
    "with a layer before": lambda: WordHead(8, 23, between=nn.Sequential(nn.Linear(8, 8), nn.Tanh()), bias=True),
}


def costs(loss_of, head, x, gold, smoothing, share=0.37):
    """The loss, and its gradient by the vectors and by all that the head learns."""
    leaf = x.clone().requires_grad_()
    head.zero_grad()
    loss = loss_of(head, leaf, gold, smoothing)
    (share * loss).backward()
    return [loss.detach(), leaf.grad, *(p.grad.clone() for p in head.parameters())]


def spelt(head, x, gold, smoothing):
    """All but a share of the weight on the gold word, the share spread over all words."""
    logs = head(x).log_softmax(-1)
    return -((1 - smoothing) * logs[range(len(gold)), gold] + smoothing * logs.mean(-1)).sum()


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("chunk", [1, 23, 40, 23 * 17, 10**6])
def test_the_loss_in_pieces_is_the_cross_entropy(monkeypatch, chunk, smoothing, head):
    monkeypatch.setattr(losses, "CHUNK", chunk)
    monkeypatch.setattr(losses, "NEAR", chunk)
    monkeypatch.setattr(losses, "ROWS", 1)
    torch.manual_seed(1)
    made = HEADS[head]().double()
    if head == "shifted":
        made.shift.normal_()
    x, gold = 3 * torch.randn(19, 8, dtype=torch.float64), torch.randint(23, (19,))
    wanted = costs(spelt, made, x, gold, smoothing)
    for loss_of in (word_loss, defined_loss):
        assert_close(costs(loss_of, made, x, gold, smoothing), wanted, rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        assert_close(word_loss(made, x, gold, smoothing), wanted[0], rtol=1e-12, atol=1e-12)


def test_scores_far_apart_cost_what_they_cost():
    """A gold word whose chance float32 takes for 0, and one that is certain."""
    head = WordHead(1, 3)
    head.score.weight.data = torch.tensor([[0.0], [1.0], [-1.0]])
    x = torch.tensor([[300.0], [300.0]], requires_grad=True)
    loss = word_loss(head, x, torch.tensor([2, 1]))
    loss.backward()
    assert loss.item() == 600.0
    assert x.grad.tolist() == [[2.0], [0.0]]


def test_what_is_frozen_stays_and_what_is_not_learns():
    head = WordHead(4, 7, bias=True)
    head.score.weight.requires_grad_(False)
    x, gold = torch.randn(5, 4, requires_grad=True), torch.randint(7, (5,))
    word_loss(head, x, gold).backward()
    assert head.score.weight.grad is None
    assert head.score.bias.grad.abs().sum() > 0
    assert x.grad.abs().sum() > 0


def test_nothing_to_learn_from_costs_nothing():
    head = WordHead(4, 7)
    loss = word_loss(head, torch.zeros(0, 4, requires_grad=True), torch.zeros(0, dtype=torch.long))
    loss.backward()
    assert loss.item() == 0.0
    assert head.score.weight.grad.abs().sum() == 0


@pytest.mark.parametrize("task", ["translate", "language"])
def test_a_writers_loss_is_that_of_its_own_scores(home, monkeypatch, task):
    """Against `step`, which scores every place, padded or not."""
    one = learner(home, task, double=True, of={"smoothing": 0.2} if task == "translate" else {"length": 11})
    batch = one.feed.batches(0)[0]
    target = batch.target
    assert target is not None
    monkeypatch.setattr(losses, "NEAR", 100)
    monkeypatch.setattr(losses, "ROWS", 1)
    one.model.train()
    found = one.task.loss(one.model, batch)
    found.backward()
    grads = {name: p.grad.clone() for name, p in one.learnt.items() if p.grad is not None}
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
    assert_close(grads, {name: p.grad for name, p in one.learnt.items() if p.grad is not None}, rtol=1e-9, atol=1e-12)
