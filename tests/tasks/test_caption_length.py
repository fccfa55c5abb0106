"""How long a caption may be: what the user says, as far as the model has places, and no word is lost about the rest."""

import pytest
import torch
from test_caption import EXAMPLES, made

from saccade.decoding.config import GenerationConfig
from saccade.decoding.generator import TextGenerator
from saccade.tasks.caption import Caption, Config
from saccade.tasks.predict import predict

PLACES = 23  # of the transformer


@pytest.fixture(params=["captioner_rnn", "captioner_transformer"])
def wordy(request):
    """A captioner that never ends a caption by itself: every end that it finds is of a bound."""
    model = made(request.param, max_positions=PLACES)[1].eval()
    score, end = model.body.head.score, model.tokenizer.target.eos_id
    with torch.no_grad():
        score.weight[end] = 0  # some other token has a score above 0
        if score.bias is not None:
            score.bias[end] = -1
    return Caption(Config(max_caption_tokens=7)), model


def sizes(task, model, length):
    ways = TextGenerator(GenerationConfig(max_new_tokens=length), model, model.tokenizer.target)
    found, _ = predict(task, model, EXAMPLES[:2], predictor=lambda model, batch: task.generate(ways, batch))
    return {len(one.tokens) for row in found for one in row}


def test_a_length_that_is_asked_for_is_honoured_above_the_usual_one(wordy):
    task, model = wordy
    assert sizes(task, model, None) == {7}
    assert sizes(task, model, 3) == {3}
    assert sizes(task, model, 19) == {19}
    assert not task.notes


def test_a_length_beyond_the_model_is_said(wordy):
    task, model = wordy
    found = sizes(task, model, 100)
    if model.max_positions is None:  # a recurrent writer has no last place
        assert found == {100}
        assert not task.notes
    else:
        assert found == {PLACES}
        assert task.notes == (f"--max-new-tokens 100: captions have at most {PLACES} tokens, the model's positions.",)
