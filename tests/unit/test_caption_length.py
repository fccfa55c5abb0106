"""How long a caption may be: what the user says, as far as the model has places, and no word is lost about the rest."""

import pytest
import torch
from test_caption import EXAMPLES, made

from saccade.decoding.settings import Decoding
from saccade.decoding.ways import Ways
from saccade.tasks.answering import answers
from saccade.tasks.caption import Caption, Config

PLACES = 23  # of the transformer


@pytest.fixture(params=["captioner_rnn", "captioner_transformer"])
def wordy(request):
    """A captioner that never ends a caption by itself: every end that it finds is of a bound."""
    model = made(request.param, length=PLACES)[1].eval()
    score, end = model.body.head.score, model.tokenizer.target.end
    with torch.no_grad():
        score.weight[end] = 0  # some other token has a score above 0
        if score.bias is not None:
            score.bias[end] = -1
    return Caption(Config(length=7)), model


def sizes(task, model, length):
    ways = Ways(Decoding(length=length), model, model.tokenizer.target)
    found, _ = answers(task, model, EXAMPLES[:2], ask=lambda model, batch: task.written(ways, batch))
    return {len(one.tokens) for row in found for one in row}


def test_a_length_that_is_asked_for_is_honoured_above_the_usual_one(wordy):
    task, model = wordy
    assert sizes(task, model, None) == {7}
    assert sizes(task, model, 3) == {3}
    assert sizes(task, model, 19) == {19}
    assert not task.noticed


def test_a_length_beyond_the_model_is_said(wordy):
    task, model = wordy
    found = sizes(task, model, 100)
    if model.limit is None:  # a recurrent writer has no last place
        assert found == {100}
        assert not task.noticed
    else:
        assert found == {PLACES}
        assert task.noticed == (f"--length 100: the model has places for {PLACES} tokens, so no caption is longer.",)
