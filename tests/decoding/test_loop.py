"""The loop of all writers against a naive one that remembers nothing."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from saccade.data import Batch, Text
from saccade.decoding import StoppingCriteria, decoding_steps, generate, teacher_forced_logits
from saccade.models.families import gpt2

ROWS = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3]]
STOPS = (5, 8, 11)


def model():
    torch.manual_seed(1)
    model = gpt2.GPT2(gpt2.Config(vocab=13, width=12, layers=2, heads=3, max_positions=32)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def naive(model, row, stop, limit):
    """Everything anew for each token, one row alone."""
    new = []
    while len(new) < limit:
        state, text = model.start(Batch(Text(torch.tensor([row + new]))))
        token = int(model.step(text, state)[0, -1].argmax())
        if token in stop:
            break
        new.append(token)
    return new


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("stop", [(), STOPS])
def test_generate_equals_a_loop_that_remembers_nothing(stop, left):
    writer = model()
    wanted = [naive(writer, row, stop, 17) for row in ROWS]
    got = generate(writer, Batch(Text.pad(ROWS, pad_left=left)), stop_ids=stop or None, max_new_tokens=17)
    assert got == wanted
    if stop:
        assert len({len(row) for row in wanted}) > 1  # so that rows really end at different times
    else:
        assert {len(row) for row in wanted} == {17}


def test_rows_end_by_themselves_and_the_loop_with_the_last():
    writer = model()
    alone = [naive(writer, row, STOPS, 17) for row in ROWS]
    found = list(decoding_steps(writer, Batch(Text.pad(ROWS)), StoppingCriteria(STOPS, 17)))
    assert len(found) == min(17, max(map(len, alone)) + 1)
    for i, row in enumerate(alone):
        assert [bool(step.active[i]) for step in found] == [n < len(row) for n in range(len(found))]


def test_a_choice_is_a_function_of_scores():
    worst = generate(model(), Batch(Text.pad(ROWS)), lambda scores: scores.argmin(-1), stop_ids=None, max_new_tokens=3)
    assert worst != generate(model(), Batch(Text.pad(ROWS)), stop_ids=None, max_new_tokens=3)
    with pytest.raises(ValueError, match="max_new_tokens must be at least 1"):
        generate(model(), Batch(Text.pad(ROWS)), stop_ids=None, max_new_tokens=0)


@pytest.mark.parametrize("left", [True, False])
def test_follow_scores_each_token_of_the_target_as_if_alone(left):
    writer, targets = model(), [[7, 8], [1, 2, 3, 4], [5, 6, 7]]
    scores = teacher_forced_logits(writer, Batch(Text.pad(ROWS, pad_left=left), Text.pad(targets)))
    assert scores.shape == (3, 4, 13)
    for i, (row, target) in enumerate(zip(ROWS, targets, strict=True)):
        state, text = writer.start(Batch(Text(torch.tensor([row + target]))))
        wanted = writer.step(text, state)[0, len(row) - 1 : -1]
        assert_close(scores[i, : len(target)], wanted, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="the batch has none"):
        teacher_forced_logits(writer, Batch(Text.pad(ROWS)))
