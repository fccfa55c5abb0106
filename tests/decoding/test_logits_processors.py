"""Rules against the processors of the `transformers` package and by hand, in the loop, and what is refused."""

import math

import pytest
import torch
from torch import nn
from transformers import GPT2LMHeadModel
from transformers.generation import logits_process as theirs

from saccade.data import Batch, Text
from saccade.decoding import StoppingCriteria
from saccade.decoding.logits_processors import (
    BadWords,
    CheckedProcessor,
    ForcedTokens,
    MinNewTokens,
    NoRepeatNgram,
    RepetitionPenalty,
    TokenHistory,
    apply_processors,
    check_processors,
)
from saccade.decoding.loop import decoding_steps, generate
from saccade.decoding.sampling import Sampler
from saccade.decoding.stop_strings import generate_texts
from saccade.models.build import new
from saccade.models.families import gpt2

VOCAB = 13
INF = math.inf


def scores(rows=3, seed=0):
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed))


def random_rows(seed, lengths=(6, 6, 6), high=5):
    """Few different tokens, so that much is repeated."""
    chance = torch.Generator().manual_seed(seed)
    return [torch.randint(0, high, (length,), generator=chance).tolist() for length in lengths]


def sofar(rows, prompt=3, limit=20):
    return TokenHistory([row[:prompt] for row in rows], [row[prompt:] for row in rows], limit)


def model(length=32):
    torch.manual_seed(1)
    model = gpt2.GPT2(gpt2.Config(vocab=VOCAB, width=12, layers=2, heads=3, max_positions=length)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("length", [1, 2, 3, 7, 9])
def test_no_repeat_is_that_of_transformers(length, seed):
    rows = random_rows(seed)
    wanted = theirs.NoRepeatNGramLogitsProcessor(length)(torch.tensor(rows), scores())
    assert torch.equal(NoRepeatNgram(length)(scores(), sofar(rows)), wanted)


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.2, 3.0])
def test_repetition_is_that_of_transformers(penalty):
    rows = random_rows(1)
    wanted = theirs.RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor(rows), scores())
    assert torch.equal(RepetitionPenalty(penalty)(scores(), sofar(rows)), wanted)


@pytest.mark.parametrize("seed", range(5))
def test_forbid_is_that_of_transformers(seed):
    rows = random_rows(seed)
    words = [[7], [1, 2], [rows[0][-1], 3], [*rows[1][-2:], 4], [*rows[2], 5], [0] * 9]
    wanted = theirs.NoBadWordsLogitsProcessor(words, eos_token_id=[])(torch.tensor(rows), scores())
    assert torch.equal(BadWords(words)(scores(), sofar(rows)), wanted)


def test_rows_of_unequal_length_are_ruled_each_for_itself():
    rows = random_rows(3, (3, 6, 9))
    for rule in (
        NoRepeatNgram(2),
        RepetitionPenalty(1.3),
        BadWords([[2], [1, 3]]),
        MinNewTokens(4, (0,)),
        ForcedTokens({3: 7}),
    ):
        together = rule(scores(), sofar(rows))
        for i, row in enumerate(rows):
            assert torch.equal(together[i : i + 1], rule(scores()[i : i + 1], sofar([row]))), rule


def test_least_length_by_hand():
    got = MinNewTokens(2, stop_ids=(0, 3))(torch.zeros(3, 4), TokenHistory([[1, 1]] * 3, [[], [1], [1, 2]], 9))
    assert got.tolist() == [[-INF, 0, 0, -INF], [-INF, 0, 0, -INF], [0, 0, 0, 0]]
    plain = theirs.MinNewTokensLengthLogitsProcessor(2, 2, eos_token_id=[0, 3])(
        torch.tensor([[1, 1, 1]]), torch.zeros(1, 4)
    )
    assert torch.equal(got[1:2], plain)


def test_force_by_hand_counted_from_either_end():
    rule, zeros = ForcedTokens({0: 2, -1: 3}), torch.zeros(1, 4)
    only = {place: [-INF] * place + [0] + [-INF] * (3 - place) for place in (2, 3)}
    assert rule(zeros, TokenHistory([[9]], [[]], 3)).tolist() == [only[2]]
    assert rule(zeros, TokenHistory([[9]], [[2]], 3)).tolist() == zeros.tolist()
    assert rule(zeros, TokenHistory([[9]], [[2, 0]], 3)).tolist() == [only[3]]


def test_a_rule_may_be_any_function_and_they_follow_each_other():
    def odd(scores, sofar):
        return scores.masked_fill(torch.arange(scores.size(-1)) % 2 == 0, -INF)

    rows = generate(
        model(), Batch(Text.pad([[2, 6], [4]])), stop_ids=None, max_new_tokens=6, processors=[odd, NoRepeatNgram(1)]
    )
    for row in rows:
        assert all(token % 2 for token in row)
        assert len(set(row)) == 6


def test_rules_hold_with_every_choice():
    rules = [BadWords([[token] for token in range(0, VOCAB, 2)]), MinNewTokens(4, (5,))]
    for seed in range(20):
        (row,) = generate(
            model(), Batch(Text.pad([[3]])), Sampler(3.0, seed=seed), stop_ids=5, max_new_tokens=9, processors=rules
        )
        assert len(row) >= 4
        assert all(token % 2 for token in row)


def test_rows_that_have_stopped_are_not_ruled():
    """A rule that fails on a stopped row would show it."""
    seen = []

    def watching(scores, sofar):
        seen.append([list(row) for row in sofar.new_tokens])
        return scores

    writer, batch = model(), Batch(Text.pad([[3, 1], [4], [6, 7]]))
    plain = generate(writer, batch, Sampler(seed=1), stop_ids=(5, 8, 11), max_new_tokens=12)
    assert len({len(row) for row in plain}) > 1
    assert (
        generate(writer, batch, Sampler(seed=1), stop_ids=(5, 8, 11), max_new_tokens=12, processors=[watching]) == plain
    )
    for place, rows in enumerate(seen):
        assert rows == [row[:place] for row in plain if len(row) >= place]


def test_sofar_moves_with_beams():
    one = TokenHistory([[1], [2]], [[3], [4]], 5)
    assert one.select_rows([1, 1, 0]) == TokenHistory([[2], [2], [1]], [[4], [4], [3]], 5)
    assert one.append([7, 8]).new_tokens == [[3, 7], [4, 8]]
    assert one.new_tokens == [[3], [4]]


class Never(CheckedProcessor):
    def __call__(self, scores, sofar):
        return scores - INF


def test_what_can_never_be_is_said_before_anything_is_written():
    for rule, words in (
        (MinNewTokens(9, (0,)), "A minimum of 9 tokens is above max_new_tokens=8; raise the limit"),
        (MinNewTokens(1, (40,)), "MinNewTokens names the token 40; the model has tokens from 0 to 12"),
        (BadWords([[token] for token in range(VOCAB)]), "All 13 tokens are forbidden"),
        (BadWords([[1, -1]]), "BadWords names the token -1"),
        (ForcedTokens({8: 1}), "forced at position 8, but max_new_tokens is 8"),
        (ForcedTokens({0: 99}), "ForcedTokens names the token 99"),
        (ForcedTokens({7: 1, -1: 2}), "position -1 is position 7, and two different tokens"),
    ):
        with pytest.raises(ValueError, match=words):
            check_processors([rule], VOCAB, 8)
        with pytest.raises(ValueError, match=words):
            generate(model(), Batch(Text.pad([[3]])), stop_ids=0, max_new_tokens=8, processors=[rule])
    check_processors([lambda scores, sofar: scores, ForcedTokens({7: 1, -1: 1, -8: 2})], VOCAB, 8)


def test_rules_that_contradict_each_other_are_named_when_they_meet():
    batch = Batch(Text.pad([[3], [4]]))
    with pytest.raises(
        ValueError,
        match=r"Row 0, after 1 new tokens: the logits processors together \(ForcedTokens, BadWords\) forbid every token",
    ):
        generate(model(), batch, stop_ids=0, max_new_tokens=8, processors=[ForcedTokens({1: 5}), BadWords([[5]])])
    with pytest.raises(ValueError, match=r"the logits processors together \(Never\) forbid every token"):
        generate(model(), batch, stop_ids=0, max_new_tokens=8, processors=[Never()])
    broken = torch.full((2, 4), math.nan)
    with pytest.raises(ValueError, match=r"scores are not finite .*nan.* diverged"):
        apply_processors([], broken, TokenHistory([[1], [1]], [[], []], 3))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MinNewTokens(-1, (0,)), "0 or more"),
        (lambda: MinNewTokens(3, ()), "at least one stop token"),
        (lambda: NoRepeatNgram(0), "n-gram size must be at least 1; got 0"),
        (lambda: RepetitionPenalty(0.0), "above 0"),
        (lambda: RepetitionPenalty(math.nan), "got nan"),
        (lambda: BadWords([[1], []]), "is empty"),
    ],
)
def test_senseless_rules_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_bad_input_is_said_in_words():
    writer = model(length=8)
    with pytest.raises(ValueError, match="Row 0 of the prompt is empty"):
        generate(writer, Batch(Text(torch.zeros(1, 0, dtype=torch.long))), stop_ids=None, max_new_tokens=3)
    with pytest.raises(ValueError, match="Row 1 of the prompt is empty"):
        generate(writer, Batch(Text.pad([[3], []])), stop_ids=None, max_new_tokens=3)
    with pytest.raises(ValueError, match="8 positions and the text has 9 tokens; shorten the text"):
        generate(writer, Batch(Text.pad([[1] * 9])), stop_ids=None, max_new_tokens=3)
    for stop in (13, -1, (2, 99)):
        with pytest.raises(ValueError, match=r"stop token (13|-1|99) is unknown: .* from 0 to 12"):
            generate(writer, Batch(Text.pad([[3]])), stop_ids=stop, max_new_tokens=3)
    assert generate(writer, Batch(Text(torch.zeros(0, 4, dtype=torch.long))), stop_ids=None, max_new_tokens=3) == []
    assert (
        list(
            decoding_steps(
                writer,
                Batch(Text(torch.zeros(0, 4, dtype=torch.long))),
                StoppingCriteria(stop_ids=None, max_new_tokens=3),
            )
        )
        == []
    )


def test_the_same_rules_write_what_transformers_writes(tmp_path):
    """The same weights, greedy, four rules at once: the same tokens, and the same log-probabilities."""
    torch.manual_seed(5)
    ours = new("gpt2", gpt2.Config(vocab=VOCAB, width=12, layers=2, heads=3, max_positions=64)).eval()
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.5)
    ours.save(tmp_path)
    other = GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    prompts, stop = torch.tensor([[3, 1, 4], [1, 5, 9], [2, 6, 5]]), 7
    found = other.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        max_new_tokens=20,
        min_new_tokens=6,
        do_sample=False,
        repetition_penalty=1.3,
        no_repeat_ngram_size=2,
        bad_words_ids=[[8], [10, 11]],
        eos_token_id=stop,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    rules = [RepetitionPenalty(1.3), NoRepeatNgram(2), BadWords([[8], [10, 11]]), MinNewTokens(6, (stop,))]
    rows = generate_texts(
        ours, Batch(Text(prompts)), StoppingCriteria(stop_ids=stop, max_new_tokens=20, processors=rules)
    )
    for i, row in enumerate(rows):
        theirs_row = found.sequences[i, 3:].tolist()
        wanted = theirs_row[: theirs_row.index(stop)] if stop in theirs_row else theirs_row
        assert row.tokens == wanted
        logs = [float(found.logits[n][i].log_softmax(-1)[token]) for n, token in enumerate(wanted)]
        assert row.logprobs == pytest.approx(logs, abs=1e-4)
    assert len({len(row.tokens) for row in rows}) > 1
