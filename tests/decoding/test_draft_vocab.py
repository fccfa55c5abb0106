"""Drafts whose vocabulary is not as large as the model's: what they propose, and what they cannot read, changes no text."""

import pytest
import torch
from torch import nn

from saccade import text
from saccade.data import Batch, Text
from saccade.decoding import GenerationConfig, StoppingCriteria, generate
from saccade.decoding.generator import TextGenerator
from saccade.decoding.speculative import DraftModel, SpeculationStats, speculate
from saccade.models.build import new
from saccade.models.families import gpt2, t5

VOCAB, LIMIT = 31, 24
TOKENIZER = text.train_tokenizer(["abcdefgh .,\n"], "characters", token_template="none")


def writer(vocab, family="gpt2", seed=1):
    torch.manual_seed(seed)
    sizes = {"vocab": vocab, "width": 12, "layers": 1, "heads": 3, "ffn_width": 17, "dropout": 0.0}
    made = new(
        family, gpt2.Config(**sizes, max_positions=64) if family == "gpt2" else t5.Config(**sizes, head_width=4)
    ).eval()
    for p in made.parameters():
        nn.init.normal_(p, std=0.5)
    return made


def prompts(most, seed=2):
    return torch.randint(1, most, (6, 5), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("vocab", [VOCAB - 11, VOCAB - 1, VOCAB, VOCAB + 9])
@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_what_is_written_is_the_models_own(family, vocab):
    model, draft = writer(VOCAB, family), writer(vocab, family, seed=4)
    batch = Batch(Text(prompts(VOCAB)))
    found = speculate(model, batch, StoppingCriteria(None, LIMIT), DraftModel(draft))
    assert found == generate(model, batch, stop_ids=None, max_new_tokens=LIMIT)
    assert max(map(max, found)) >= VOCAB - 11  # some of it a small draft cannot read


def test_a_small_draft_helps_until_a_token_comes_that_it_cannot_read():
    """A draft that is the model itself, cut to fewer tokens, is right as long as it can read all."""
    model, small = writer(VOCAB), writer(VOCAB - 11)
    given = model.state_dict()
    small.load_state_dict({name: given[name][: len(x)] for name, x in small.state_dict().items()})
    with torch.no_grad():
        for one in (model, small):
            one.body.words.vectors.weight[: VOCAB - 11] *= 3
    for row in prompts(VOCAB - 11):
        batch, tally = Batch(Text(row[None])), SpeculationStats()
        (found,) = speculate(model, batch, StoppingCriteria(None, LIMIT), DraftModel(small), tally)
        assert [found] == generate(model, batch, stop_ids=None, max_new_tokens=LIMIT)
        foreign = next((n for n, token in enumerate(found) if token >= VOCAB - 11), None)
        assert tally.accepted_tokens > 0 if foreign is None or foreign > 2 else tally.accepted_tokens <= foreign


@pytest.mark.parametrize("more", [(0, 5), (5, 0), (3, 7)], ids=["draft", "model", "both"])
def test_vocabularies_that_are_padded_differently_write_together(tmp_path, more):
    """Rows of the table that no token has, as models have them to fill a round number."""
    model, draft = (writer(TOKENIZER.vocab + extra, seed=seed) for extra, seed in zip(more, (1, 4), strict=True))
    model.tokenizer = draft.tokenizer = TOKENIZER
    draft.save(tmp_path / "draft")
    batch = Batch(Text(prompts(TOKENIZER.vocab)))
    plain, ahead = (
        [row[0].tokens for row in TextGenerator(how, model, TOKENIZER).generate(batch, max_new_tokens=LIMIT)]
        for how in (GenerationConfig(), GenerationConfig(draft_model=str(tmp_path / "draft")))
    )
    assert ahead == plain
