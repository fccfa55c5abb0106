"""Speculation writes what greedy writing writes, whoever proposes, and in fewer steps where the proposals are good."""

import random
from dataclasses import replace

import pytest
import torch
from torch import nn

from saccade import text
from saccade.data import Batch, Text
from saccade.decoding import StoppingCriteria, generate
from saccade.decoding.logits_processors import MinNewTokens, NoRepeatNgram
from saccade.decoding.speculative import (
    DraftModel,
    PromptLookup,
    SpeculationStats,
    speculate,
    speculative_steps,
    split_rows,
)
from saccade.models.build import new
from saccade.models.families import gpt2, marian, rnn, transformer
from saccade.parts.state import State

VOCAB, STOP = 13, (5, 8, 11)


def rough(build, config, seed=1):
    torch.manual_seed(seed)
    model = build(config).double().eval()
    for p in model.parameters():
        nn.init.normal_(p, std=0.4)
    return model


class Table:
    """The quickest of writers: a table says what follows two tokens, and the state remembers the last one."""

    def __init__(self, seed):
        self.scores = torch.randn(VOCAB, VOCAB, VOCAB, generator=torch.Generator().manual_seed(seed))

    def start(self, batch):
        return State(), batch.source

    def step(self, text, state):
        before = state.get_or_make("last", lambda: torch.zeros_like(text.tokens[:, :1]), axis=None)
        row = torch.cat([before, text.tokens], dim=1)
        state.put("last", row[:, -1:])
        return self.scores[row[:, :-1], row[:, 1:]]


GPT2 = gpt2.Config(VOCAB, 12, 2, 3, max_positions=64)
MODELS = {
    "gpt2": rough(gpt2.GPT2, GPT2, seed=12),  # one that stops early, late or not at all
    "transformer": rough(transformer.build_encoder_decoder, transformer.Config(VOCAB, 12, 1, 3, 17, 64, dropout=0.0)),
    "rnn": rough(rnn.RNNTranslator, rnn.Config(VOCAB, 12, dropout=0.0)),
    "rnn_lm": rough(rnn.RNNLanguageModel, rnn.Config(VOCAB, 12, dropout=0.0)),
}
GREAT, TABLE = MODELS["gpt2"], Table(1)
BAD = rough(gpt2.GPT2, gpt2.Config(VOCAB, 6, 1, 2, max_positions=64), seed=9)


def prompts(count, seed=0):
    chance = random.Random(seed)
    return [[chance.randrange(VOCAB) for _ in range(chance.randint(1, 12))] for _ in range(count)]


def liar(model, batch):
    """Proposes at random, too many, and the stop token too."""
    chance = random.Random(3)
    return lambda written, count: [chance.randrange(VOCAB) for _ in range(chance.randrange(20))]


@pytest.mark.parametrize(
    ("model", "drafter"),
    [
        *(
            (TABLE, drafter)
            for drafter in (PromptLookup(), PromptLookup(5, 2), DraftModel(TABLE), DraftModel(Table(2)), liar)
        ),
        *(
            pytest.param(GREAT, drafter, marks=pytest.mark.nightly)
            for drafter in (PromptLookup(), DraftModel(BAD), liar)
        ),
    ],
)
def test_500_prompts_are_answered_as_greedily(model, drafter):
    tally, rows = SpeculationStats(), prompts(500)
    wanted = [generate(model, Batch(Text.pad([row])), stop_ids=STOP, max_new_tokens=20)[0] for row in rows]
    got = speculate(
        model, Batch(Text.pad(rows)), StoppingCriteria(stop_ids=STOP, max_new_tokens=20), drafter, stats=tally
    )
    assert got == wanted
    assert len({len(row) for row in wanted}) > 3
    assert 0 < tally.accepted_tokens <= tally.draft_tokens
    assert tally.model_steps <= 9 / 8 * (sum(map(len, got)) + len(got))  # at the worst; see below
    assert (tally.acceptance_rate == 1) == (drafter == DraftModel(model))


@pytest.mark.parametrize("drafter", [PromptLookup(), liar, None], ids=["look_up", "liar", "itself"])
@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_memory_can_go_back(name, drafter):
    model, batch = MODELS[name], Batch(Text.pad(prompts(6, seed=5)))
    got = speculate(model, batch, StoppingCriteria(stop_ids=STOP, max_new_tokens=25), drafter or DraftModel(model))
    assert got == generate(model, batch, stop_ids=STOP, max_new_tokens=25)


def test_rules_hold_at_every_place():
    model, batch = MODELS["gpt2"], Batch(Text.pad(prompts(8, seed=7)))
    rules = [NoRepeatNgram(3), MinNewTokens(4, STOP)]
    got = speculate(model, batch, StoppingCriteria(stop_ids=STOP, max_new_tokens=20, processors=rules), PromptLookup())
    assert got == generate(model, batch, stop_ids=STOP, max_new_tokens=20, processors=rules)
    assert got != generate(model, batch, stop_ids=STOP, max_new_tokens=20)


def test_good_proposals_save_steps_and_bad_ones_cost_few():
    """A proposal of its own making is all right: one step for each handful. A wrong one is one more token in a step."""
    model, batch = MODELS["gpt2"], Batch(Text.pad([[1, 2, 3]]))
    good, bad, none = SpeculationStats(), SpeculationStats(), SpeculationStats()
    (row,) = speculate(model, batch, StoppingCriteria(stop_ids=None, max_new_tokens=40), DraftModel(model), stats=good)
    assert len(row) == 40
    assert good.accepted_tokens == good.draft_tokens == 40 - good.model_steps
    assert good.model_steps <= 8
    wrong = lambda model, one: lambda written, count: [(row[len(written)] + 1) % VOCAB]
    assert speculate(model, batch, StoppingCriteria(stop_ids=None, max_new_tokens=40), wrong, stats=bad) == [row]
    assert (bad.accepted_tokens, bad.acceptance_rate) == (0, 0.0)
    assert bad.model_steps <= 40 * 9 / 8 + 1  # what was read in vain is read again with every eighth
    assert speculate(
        model,
        batch,
        StoppingCriteria(stop_ids=None, max_new_tokens=40),
        lambda model, one: lambda written, count: [],
        stats=none,
    ) == [row]
    assert (none.model_steps, none.draft_tokens) == (40, 0)


def test_the_latest_of_the_longest_is_looked_up():
    propose = PromptLookup(3)(TABLE, Batch(Text.pad([[1, 2, 3, 9, 1, 2, 4, 1, 2]])))
    assert propose([], 3) == [4, 1, 2]  # "1 2" stood there twice, the later time before a 4
    assert propose([3], 2) == [9, 1]  # "1 2 3" stood there once
    assert propose([8], 2) == []
    assert PromptLookup(2)(TABLE, Batch(Text.pad([[7]])))([7], 2) == [7]
    with pytest.raises(ValueError, match="got 0 to 3"):
        PromptLookup(3, 0)


def test_tokens_come_one_by_one_and_anything_may_end_them():
    model, batch = MODELS["gpt2"], Batch(Text.pad([[1, 2, 3]]))
    (whole,) = generate(model, batch, stop_ids=None, max_new_tokens=30)
    until = lambda sofar: [len(sofar.new_tokens[0]) == 7]
    steps = list(
        speculative_steps(
            model, batch, StoppingCriteria(stop_ids=None, max_new_tokens=30, stop_condition=until), DraftModel(model)
        )
    )
    assert [int(step.tokens) for step in steps] == whole[:7]
    assert all(bool(step.logits.argmax(-1) == step.tokens) for step in steps)


def test_rows_are_taken_out_of_their_padding():
    rows = prompts(5)
    for left in (True, False):
        assert [one.source.tokens[0].tolist() for one in split_rows(Batch(Text.pad(rows, pad_left=left)))] == rows


@pytest.mark.parametrize("tail", [[99], [-1], [1, 99, 1]])
def test_a_token_that_the_model_does_not_write_ends_a_proposal(tail):
    model, batch, tally = MODELS["gpt2"], Batch(Text.pad([[1, 2, 3]])), SpeculationStats()
    (row,) = wanted = generate(model, batch, stop_ids=None, max_new_tokens=9)
    padded = lambda model, one: lambda written, count: row[len(written) : len(written) + 1] + tail
    assert speculate(model, batch, StoppingCriteria(stop_ids=None, max_new_tokens=9), padded, stats=tally) == wanted
    assert tally.accepted_tokens >= 4
    assert tally.draft_tokens < 9
    with pytest.raises(ValueError, match="one row at a time; got 2"):
        next(
            speculative_steps(
                model, Batch(Text.pad([[1], [2]])), StoppingCriteria(stop_ids=None, max_new_tokens=9), PromptLookup()
            )
        )


SIDES = marian.Config(
    29, 12, 1, 1, 3, 3, 17, 17, max_positions=64, decoder_start_id=0, target_vocab=VOCAB, share_embeddings=False
)


def test_a_source_in_other_tokens_is_not_looked_up():
    source = Batch(Text.pad([[28, 27, 3, 28, 27, 3]]))
    model = new("marian", SIDES).double().eval()
    wanted = generate(model, source, stop_ids=None, max_new_tokens=30)
    assert speculate(model, source, StoppingCriteria(stop_ids=None, max_new_tokens=30), PromptLookup()) == wanted
    assert PromptLookup()(model, source)([3], 2) == PromptLookup()(model.body, source)([3], 2) == []  # type: ignore[arg-type]
    assert PromptLookup()(model, source)([3, 5, 3], 2) == [5, 3]
    untied = new("transformer", transformer.Config(29, 12, 1, 3, 17, tie_embeddings=False))
    untied.tokenizer = text.train_tokenizer(["one tokenizer for both"], "characters")
    assert PromptLookup()(untied, source)([28], 2) == [27, 3]  # two tables, one vocabulary


@pytest.mark.parametrize("length", [2, 3, 4, 9, 10, 43])
def test_a_draft_proposes_as_far_as_it_has_positions(length):
    """It is the model itself with its first positions, so whatever it proposes is kept."""
    model, batch, tally = new("gpt2", GPT2).double().eval(), Batch(Text.pad([[1, 2, 3]])), SpeculationStats()
    for p in model.parameters():
        nn.init.normal_(p, std=0.4, generator=torch.Generator().manual_seed(len(p)))
    draft = new("gpt2", replace(GPT2, max_positions=length)).double().eval()
    given = model.state_dict()
    draft.load_state_dict({name: given[name][: len(x)] for name, x in draft.state_dict().items()})
    (row,) = speculate(model, batch, StoppingCriteria(stop_ids=None, max_new_tokens=40), DraftModel(draft), stats=tally)
    assert [row] == generate(model, batch, stop_ids=None, max_new_tokens=40)
    assert tally.accepted_tokens == tally.draft_tokens
    # after so many tokens it has read all that it can, and its last word is the one after them
    last = max(0, length - 3 + 1)
    assert tally.draft_tokens <= last
    assert (tally.draft_tokens > 0) == (length > 3)
