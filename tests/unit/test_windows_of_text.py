"""Windows of a running text: each token is scored once, with the context that the settings say."""

import pytest
import torch

from saccade.data import Batch, Example, Text
from saccade.models import transformer
from saccade.models.new import new
from saccade.tasks.language import Language
from saccade.text import train as train_tokenizer

TEXT = "the cat sat on the mat and the dog lay by the door while rain fell on the old red roof " * 3


@pytest.fixture(scope="module")
def writer():
    torch.manual_seed(1)
    tokenizer = train_tokenizer([TEXT], "characters", None, frame="none")
    config = transformer.Config(vocab=tokenizer.vocab, width=16, layers=2, heads=2, inner=16, dropout=0.0)
    model = new("transformer_language", config).eval().double()
    model.tokenizer = tokenizer
    return model


def nats(writer, before: list[int], token: int) -> float:
    """Of one token after others, straight from the scores."""
    state, text = writer.body.start(Batch(Text.of([before])))
    return -float(writer.body.step(text, state)[0, -1].log_softmax(-1)[token])


@torch.no_grad()
@pytest.mark.parametrize("context", [0, 1, 6, 11])
@pytest.mark.parametrize("size", [2, 12, 13, 14, 60, 61])
def test_each_token_is_scored_once_with_its_context(writer, context, size):
    length = 12
    task = Language(Language.Config(length=length, context=context))
    text = TEXT[:size]
    ids = writer.tokenizer.encode(text, special=False).ids
    items = task.items([Example({"text": text})], writer)
    answers = [answer for item in items for answer in task.answer(writer, task.batch([item]))]
    assert sum(answer["tokens"] for answer in answers) == len(ids) - 1
    assert sum(answer["bytes"] for answer in answers) == len(text) - 1
    assert all(len(item.source) <= length for item in items)
    place, wanted = 1, 0.0
    for item, answer in zip(items, answers, strict=True):
        begin = place - 1 - (context if place > 1 else 0)  # the window's first token
        assert list(item.source[:3]) == ids[begin : begin + len(item.source[:3])]
        wanted = sum(nats(writer, ids[begin:at], ids[at]) for at in range(place, place + answer["tokens"]))
        assert answer["nats"] == pytest.approx(wanted, abs=1e-6)
        place += answer["tokens"]


def test_a_context_must_leave_something_to_score(writer):
    with pytest.raises(ValueError, match=r"task\.context is 12; it has to be below the 12 tokens"):
        Language(Language.Config(length=12, context=12)).items([Example({"text": TEXT})], writer)
