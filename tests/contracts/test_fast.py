"""What the fast form of every family keeps: its answers, its memory, its looks."""

import pytest
import torch
from test_families import FAMILIES, TEXTS, WRITERS, answer, example, names, numbers, rough
from torch.testing import assert_close

from saccade.attention import watch
from saccade.data import Batch, Text
from saccade.engine import KVCache, fast
from saccade.models.families.dalle import DallE

HEADED = [pytest.param(f, head, id=f"{f.name}-{head or 'body'}") for f in FAMILIES for head in (None, *f.heads)]


def real(x, keep):
    return x if keep is None else x[keep]


@pytest.mark.parametrize(("family", "head"), HEADED)
def test_float32_answers_as_the_plain_model(family, head):
    plain, batch = rough(family, head), example(family)
    quick = fast(plain, "float32")
    assert_close(answer(quick, batch), answer(plain, batch).detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("family", TEXTS, ids=names)
def test_padding_is_left_out_and_missed_by_nobody(family, left):
    """Half of the batch is padding, so the real tokens are gathered."""
    plain, target = rough(family), example(family).target
    quick = fast(plain, "float32")
    rows = [numbers(9).tolist(), numbers(2, seed=5).tolist()]
    text = Text.pad(rows, pad_left=left)
    batch = Batch(text, target)
    found, wanted = answer(quick, batch), answer(plain, batch).detach()
    keep = None if family in WRITERS else text.keep
    assert_close(real(found, keep), real(wanted, keep), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", WRITERS, ids=names)
def test_step_by_step_equals_all_at_once(family):
    """In rooms that are filled token by token, and in one pass of the plain model."""
    plain, batch = rough(family), example(family)
    quick, tokens = fast(plain, "float32"), batch.target.tokens
    state, first = quick.start(batch)
    assert isinstance(state, KVCache)
    parts = [quick.last_logits(first, state)[:, None]]
    parts += [quick.step(Text(tokens[:, a:b]), state) for a, b in ((0, 1), (1, 4), (4, 5))]
    assert_close(torch.cat(parts, dim=1), answer(plain, batch).detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("family", [f for f in WRITERS if f in TEXTS], ids=names)
def test_a_batch_is_its_rows_alone(family, left):
    plain, tokens = rough(family), example(family).target.tokens
    quick = fast(plain, "float32")
    rows = [numbers(7).tolist(), numbers(3, seed=5).tolist()]
    together = _written(quick, Batch(Text.pad(rows, pad_left=left)), tokens)
    for i, row in enumerate(rows):
        alone = _written(quick, Batch(Text(torch.tensor([row]))), tokens[i : i + 1])
        assert_close(together[i : i + 1], alone, rtol=1e-4, atol=1e-4)


def _written(model, batch, tokens):
    state, first = model.start(batch)
    parts = [model.last_logits(first, state)]
    parts += [model.step(Text(tokens[:, i : i + 1]), state)[:, -1] for i in range(tokens.size(1) - 1)]
    return torch.stack(parts, dim=1)


@pytest.mark.parametrize("family", WRITERS, ids=names)
def test_the_last_scores_are_those_of_a_step(family):
    plain, batch = rough(family), example(family)
    quick = fast(plain, "float32")
    state, first = quick.start(batch)
    scores = quick.last_logits(first, state)
    again, _ = quick.start(batch)
    assert_close(scores, quick.step(first, again)[:, -1], rtol=1e-5, atol=1e-5)
    if not isinstance(plain.body, DallE):
        assert scores.isfinite().all()


@pytest.mark.parametrize("family", WRITERS, ids=names)
def test_reordered_rows_take_their_memory_along(family):
    """As beams do: rows are taken twice or not at all, between steps."""
    plain, batch = rough(family), example(family)
    quick, tokens = fast(plain, "float32"), batch.target.tokens
    found = []
    for model in (plain, quick):
        state, first = model.start(batch)
        with torch.no_grad():
            model.step(first, state)
            model.step(Text(tokens[:, :1]), state)
            state.reorder(torch.tensor([1, 1, 0]))
            model.step(Text(tokens[[1, 1, 0], 1:2]), state)
            mark = state.snapshot()
            model.step(Text(tokens[[1, 1, 0], 2:3]), state)
            state.restore(mark)
            found.append(model.step(Text(tokens[[1, 0, 0], 3:4]), state))
    assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES, ids=names)
def test_every_look_is_seen_and_exact(family):
    """Under the same names, with the weights of the plain model, and without moving the answer."""
    plain, batch = rough(family), example(family)
    quick = fast(plain, "float32")
    with torch.no_grad(), watch(plain) as wanted:
        answer(plain, batch)
    with torch.no_grad(), watch(quick) as found:
        watched = answer(quick, batch)
    assert [look.name for look in found] == [look.name for look in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert_close(one.weights, other.weights, rtol=1e-3, atol=1e-4)
    assert_close(watched, answer(quick, batch), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", ["int8", "float16"])
@pytest.mark.parametrize("family", FAMILIES, ids=names)
def test_fewer_bits_answer_nearly_the_same(family, precision):
    """Step by step as all at once; and near the plain answers, as far as weights of random size allow."""
    plain, batch = rough(family), example(family)
    quick = fast(plain, precision)
    found, wanted = answer(quick, batch), answer(plain, batch).detach()
    assert found.shape == wanted.shape
    real = wanted.isfinite()
    assert torch.equal(found.isfinite(), real)
    error = (found[real] - wanted[real]).pow(2).mean().sqrt() / wanted[real].std()
    assert error < (0.25 if precision == "int8" else 0.01)
