"""The vocabulary's scores in pieces are the whole vocabulary's scores."""

import pytest
import torch
import torch.nn.functional as F
from small import learner
from torch.testing import assert_close

from saccade.models import rnn
from saccade.models.new import new
from saccade.tasks import task as tasks
from saccade.tasks.task import word_loss


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("chunk", [1, 23, 40, 23 * 17, 10**6])
def test_the_loss_in_pieces_is_the_cross_entropy(monkeypatch, chunk, smoothing):
    monkeypatch.setattr(tasks, "CHUNK", chunk)
    head = new("rnn_language", rnn.Config(23, 8)).double().body.head
    x, gold = torch.randn(19, 8, dtype=torch.float64), torch.randint(23, (19,))
    found, wanted = [], []
    for out, pieces in ((found, True), (wanted, False)):
        leaf = x.clone().requires_grad_()
        head.zero_grad()
        if pieces:
            loss = word_loss(head, leaf, gold, smoothing)
        else:  # the definition: all but a share of the weight on the gold word, the share spread over all words
            logs = head(leaf).log_softmax(-1)
            loss = -((1 - smoothing) * logs[range(19), gold] + smoothing * logs.mean(-1)).sum()
        loss.backward()
        out += [loss.detach(), leaf.grad, *(p.grad.clone() for p in head.parameters())]
    assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("task", ["translate", "language"])
def test_a_writers_loss_is_that_of_its_own_scores(home, monkeypatch, task):
    """Against `step`, which scores every place, padded or not."""
    one = learner(home, task, double=True, of={"smoothing": 0.2} if task == "translate" else {"length": 11})
    batch = one.feed.batches(0)[0]
    target = batch.target
    assert target is not None
    monkeypatch.setattr(tasks, "CHUNK", 100)
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
