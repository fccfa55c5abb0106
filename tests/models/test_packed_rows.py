"""Texts that share a row: each comes out as if it were alone, in every family that reads such rows."""

import pytest
import torch

from saccade.attention import watch
from saccade.data import Batch, Text
from saccade.models.build import new
from saccade.models.families import bert, distilbert, electra, gpt2, llama, roberta, transformer
from saccade.parts.state import State

SMALL = {"vocab": 29, "width": 12, "layers": 2, "heads": 3, "ffn_width": 20, "max_positions": 16}
READERS = {
    "bert": bert.Config(**SMALL),
    "roberta": roberta.Config(**SMALL),
    "distilbert": distilbert.Config(**SMALL),
    "electra": electra.Config(**SMALL),
    "transformer_encoder": transformer.Config(**SMALL),
}
WRITERS = {
    "gpt2": gpt2.Config(**SMALL),
    "llama": llama.Config(**SMALL | {"width": 12, "heads": 3}),
    "transformer_lm": transformer.Config(**SMALL),
}
SCHEMES = ("sinusoidal", "learned", "rotary", "alibi", "t5_bias")
ROWS = [[[5, 6, 7], [8, 9], [10, 11, 12, 13]], [[14], [15, 16, 17]]]


def read(model, text):
    if not hasattr(model.body, "hidden_states"):
        return model(Batch(text))
    state, first = model.body.start(Batch(text))
    return model.body.hidden_states(first, state)


def held_to_be_alone(model):
    model = model.double().eval()
    assert model.supports_packing
    together = read(model, Text.pack(ROWS))
    for number, row in enumerate(ROWS):
        at = 0
        for one in row:
            alone = read(model, Text.pad([one]))[0]
            torch.testing.assert_close(together[number, at : at + len(one)], alone, rtol=0, atol=1e-12)
            at += len(one)


@pytest.mark.parametrize("name", [*READERS, *WRITERS])
def test_each_text_of_a_row_is_read_as_if_it_were_alone(name):
    torch.manual_seed(0)
    held_to_be_alone(new(name, (READERS | WRITERS)[name]))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_under_every_position_scheme(scheme):
    torch.manual_seed(0)
    held_to_be_alone(new("transformer_encoder", transformer.Config(**SMALL, position=scheme)))
    held_to_be_alone(new("transformer_lm", transformer.Config(**SMALL, position=scheme)))


@pytest.mark.parametrize("name", ["additive", "cosine", "relative", "distance"])
def test_with_other_mechanisms(name):
    torch.manual_seed(0)
    held_to_be_alone(new("transformer_encoder", transformer.Config(**SMALL, mechanism=name)))


def test_gradients_are_those_of_the_texts_apart():
    torch.manual_seed(0)
    model = new("gpt2", gpt2.Config(**SMALL, dropout=0.0)).double()
    real = Text.pack(ROWS)
    read(model, real)[real.keep].square().sum().backward()
    packed = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    for row in ROWS:
        for one in row:
            read(model, Text.pad([one])).square().sum().backward()
    for name, p in model.named_parameters():
        if name in packed:
            torch.testing.assert_close(packed[name], p.grad, rtol=1e-9, atol=1e-12)


def test_watched_weights_stay_inside_a_text():
    torch.manual_seed(0)
    model = new("bert", bert.Config(**SMALL)).eval()
    text = Text.pack(ROWS)
    with watch(model.body) as looks:
        read(model, text)
    across = text.document_ids[:, None, :, None] != text.document_ids[:, None, None, :]
    for look in looks:
        assert (look.weights[across.expand_as(look.weights)] == 0).all()
        real = text.keep[:, None].expand(look.weights.shape[:3])
        torch.testing.assert_close(look.weights.sum(-1)[real], torch.ones_like(look.weights.sum(-1)[real]))


@pytest.mark.parametrize("name", ["windowed", "bigbird", "lsh", "low_rank", "linear"])
def test_a_mechanism_that_cannot_keep_texts_apart_says_so(name):
    model = new("transformer_encoder", transformer.Config(**SMALL, mechanism=name))
    assert not model.supports_packing
    with pytest.raises(ValueError, match="cannot keep apart texts"):
        read(model, Text.pack(ROWS))


def test_such_a_row_is_not_continued():
    state = State()
    state.advance((2, 9), None, Text.pack(ROWS).document_ids)
    with pytest.raises(ValueError, match="processed in one pass"):
        state.advance((2, 1))
