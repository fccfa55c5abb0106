"""`saccade.generate` with text: what a loop over ids writes, decoded; for language models after the prompt."""

import pytest
import torch
from torch import nn

import saccade
from saccade import text
from saccade.data import Batch, Text
from saccade.decoding import BadWords, GenerationConfig, Sampler
from saccade.models.build import new
from saccade.models.families import bert, gpt2, transformer

LINE = "once upon a time there was a small grey cat that sat on the old mat by the door of a house"
WORDS = text.train_tokenizer([LINE], "unigram", 60, token_template="none")
PIECES = text.train_tokenizer([LINE], "words", 40, token_template="t5")


def loud(model, tokenizer):
    """With weights so large that every token matters."""
    torch.manual_seed(4)
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.4)
    model.tokenizer = tokenizer
    return model.eval()


@pytest.fixture(scope="module")
def writer():
    return loud(new("gpt2", gpt2.Config(vocab=WORDS.vocab, width=12, layers=2, heads=3, max_positions=32)), WORDS)


@pytest.fixture(scope="module")
def translator():
    config = transformer.Config(
        vocab=PIECES.vocab, decoder_start_id=PIECES.bos_id, width=16, layers=1, heads=2, ffn_width=16
    )
    return loud(new("transformer", config), PIECES)


@torch.no_grad()
def naive(model, row, limit, stop=None):
    """Everything anew for each token, one row alone."""
    made = []
    while len(made) < limit:
        state, first = model.body.start(Batch(Text(torch.tensor([row + made]))))
        token = int(model.body.step(first, state)[0, -1].argmax())
        if token == stop:
            break
        made.append(token)
    return made


def test_a_text_goes_on_as_its_ids_do(writer):
    ids = WORDS.encode("a small", add_special_tokens=False).ids
    assert saccade.generate(writer, "a small", max_new_tokens=9) == WORDS.decode(
        ids + naive(writer, ids, 9, WORDS.eos_id)
    )


def test_several_texts_are_written_as_each_alone(writer):
    texts = ["a small grey cat", "the", "once upon a"]
    assert saccade.generate(writer, texts, max_new_tokens=7) == [
        saccade.generate(writer, one, max_new_tokens=7) for one in texts
    ]
    assert saccade.generate(writer, tuple(texts), max_new_tokens=7) == saccade.generate(writer, texts, max_new_tokens=7)
    assert saccade.generate(writer, [], max_new_tokens=7) == []


def test_an_encoder_decoder_writes_for_the_text_that_it_reads(translator):
    source = PIECES.encode("the old mat").ids
    rows = saccade.generate(translator, Batch(Text.pad([source])), stop_ids=PIECES.eos_id, max_new_tokens=6)
    assert saccade.generate(translator, "the old mat", max_new_tokens=6) == PIECES.decode(rows[0])
    assert saccade.generate(translator, ["the old mat", "a cat"], max_new_tokens=6)[0] == PIECES.decode(rows[0])


def test_ids_work_as_before_and_end_by_themselves(writer):
    ids = WORDS.encode("a small", add_special_tokens=False).ids
    batch = Batch(Text.pad([ids]))
    assert saccade.generate(writer, batch, stop_ids=None, max_new_tokens=5) == [naive(writer, ids, 5)]
    stop = naive(writer, ids, 3)[2]
    assert saccade.generate(writer, batch, stop_ids=stop, max_new_tokens=5) == [naive(writer, ids, 5, stop)]


def test_choices_rules_and_settings_hold_for_text(writer):
    plain = saccade.generate(writer, "a small", max_new_tokens=6)
    ids = WORDS.encode("a small", add_special_tokens=False).ids
    first = naive(writer, ids, 1)
    assert saccade.generate(writer, "a small", max_new_tokens=6, processors=[BadWords([first])]) != plain
    assert saccade.generate(writer, "a small", max_new_tokens=6, stop_ids=first) == "a small"
    drawn = [saccade.generate(writer, "a small", Sampler(2.0, seed=seed), max_new_tokens=6) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    beams = saccade.generate(writer, "a small", decoding=GenerationConfig(beams=3), max_new_tokens=6)
    assert beams.startswith("a small")
    assert len(saccade.generate(writer, "a small", decoding=GenerationConfig(max_new_tokens=1))) <= len(plain)


def test_who_cannot_write_text_says_so(writer):
    reader = new("bert", bert.Config(vocab=9, width=8, layers=1, heads=2, ffn_width=8))
    with pytest.raises(ValueError, match=r"a language model or an encoder-decoder; bert generates no text"):
        saccade.generate(reader, "a small")
    bare = new("gpt2", gpt2.Config(vocab=9, width=8, layers=1, heads=2, max_positions=8))
    with pytest.raises(ValueError, match="has no tokenizer"):
        saccade.generate(bare, "a small")
    with pytest.raises(ValueError, match="decoding is for text"):
        saccade.generate(writer, Batch(Text.pad([[1]])), decoding=GenerationConfig(), max_new_tokens=1)
