"""Beam search against brute force over every text of a small vocabulary, against greedy writing, and against itself."""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from saccade.attention import watch
from saccade.data import Batch, Text
from saccade.decoding import StoppingCriteria, generate, teacher_forced_logits
from saccade.decoding.beam import BeamConfig, beam_search
from saccade.decoding.logits_processors import BadWords, MinNewTokens, NoRepeatNgram
from saccade.decoding.topk import topk
from saccade.models.families import gpt2, rnn, transformer
from saccade.parts.state import State

VOCAB, LENGTH, STOP = 5, 5, 2
ROWS = [[3, 1, 4, 1], [0, 3], [4, 4, 3]]
GPT2 = gpt2.Config(VOCAB, 12, 2, 3, max_positions=16)
PAIR = transformer.Config(VOCAB, 12, 1, 3, 17, 16, dropout=0.0)
RNN = rnn.Config(VOCAB, 12, dropout=0.0)


def rough(build, config, seed=1, std=0.6):
    torch.manual_seed(seed)
    model = build(config).double().eval()
    for p in model.parameters():
        nn.init.normal_(p, std=std)
    return model


MODELS = {
    "gpt2": lambda seed=1: rough(gpt2.GPT2, GPT2, seed),
    "transformer": lambda seed=1: rough(transformer.build_encoder_decoder, PAIR, seed),
    "rnn": lambda seed=1: rough(rnn.RNNTranslator, RNN, seed),
}


def every_text(model, row, alpha, stop=STOP):
    """All texts of at most LENGTH tokens, stop token counted, with their scores, the best first: no search at all."""
    rows = torch.tensor(list(itertools.product(range(VOCAB), repeat=LENGTH)))  # 3,125
    with torch.no_grad():
        scores = teacher_forced_logits(model, Batch(Text(torch.tensor([row]).expand(len(rows), -1)), Text(rows)))
    logs = scores.log_softmax(-1).gather(-1, rows[..., None])[..., 0]
    found = {}
    for text, log in zip(rows.tolist(), logs, strict=True):
        length = text.index(stop) + 1 if stop in text else LENGTH
        tokens = tuple(text[: length - 1] if stop in text else text)
        found[tokens] = float(log[:length].sum()) / length**alpha
    return sorted(found.items(), key=lambda pair: -pair[1])


@pytest.mark.parametrize(
    ("name", "alpha"), [("gpt2", 0.0), ("gpt2", 1.0), ("gpt2", -0.5), ("transformer", 0.6), ("rnn", 1.0)]
)
def test_wide_beams_find_the_best_of_all_texts(name, alpha):
    model = MODELS[name]()
    wanted = every_text(model, ROWS[0], alpha)
    beams = BeamConfig(len(wanted), length_penalty=alpha, early_stopping="exact")
    assert len({len(tokens) for tokens, _ in wanted[:30]}) > 1  # so that the penalty matters
    (found,) = beam_search(
        model,
        Batch(Text.pad(ROWS[:1])),
        StoppingCriteria(stop_ids=STOP, max_new_tokens=LENGTH),
        beams,
        n_best=len(wanted),
    )
    assert len(found) == len(wanted) == sum(4**n for n in range(LENGTH + 1))
    assert_close([one.score for one in found], [score for _, score in wanted])
    assert [tuple(one.tokens) for one in found] == [tokens for tokens, _ in wanted]
    for one in found[:30]:
        length = len(one.tokens) + (one.stop_logprob is not None)
        assert one.cumulative_logprob / length**alpha == pytest.approx(one.score)
        assert one.hit_stop == (length > len(one.tokens))


@pytest.mark.parametrize("seed", range(8))
def test_few_beams_find_the_best_more_often_than_one(seed):
    """What they find is a text with its true score, never better than the best; four beams never do worse than greedy here."""
    model = MODELS["gpt2"](seed)
    wanted = every_text(model, ROWS[0], 0.0)
    scores = dict(wanted)
    (few,) = beam_search(
        model,
        Batch(Text.pad(ROWS[:1])),
        StoppingCriteria(stop_ids=STOP, max_new_tokens=LENGTH),
        BeamConfig(4, 0.0),
        n_best=4,
    )
    for one in few:
        assert one.score == pytest.approx(scores[tuple(one.tokens)])
    assert len({tuple(one.tokens) for one in few}) == 4
    (alone,) = beam_search(
        model, Batch(Text.pad(ROWS[:1])), StoppingCriteria(stop_ids=STOP, max_new_tokens=LENGTH), BeamConfig(1, 0.0)
    )
    assert wanted[0][1] + 1e-9 >= few[0].score >= alone[0].score - 1e-9


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("enough", ["first", "heuristic"])
def test_one_beam_is_greedy(enough, left):
    for name, stop in itertools.product(MODELS, (STOP, None, (1, 4))):
        model, batch = MODELS[name](), Batch(Text.pad(ROWS, pad_left=left))
        found = beam_search(
            model, batch, StoppingCriteria(stop_ids=stop, max_new_tokens=9), BeamConfig(1, early_stopping=enough)
        )
        assert [one.tokens for (one,) in found] == generate(model, batch, stop_ids=stop, max_new_tokens=9)


@pytest.mark.parametrize(
    "beams",
    [
        BeamConfig(3),
        BeamConfig(4, 0.5, beam_groups=2, diversity_penalty=0.7),
        BeamConfig(4, 1.2, early_stopping="exact"),
    ],
)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_a_batch_is_its_rows_alone(name, left, beams):
    model = MODELS[name]()
    together = beam_search(
        model, Batch(Text.pad(ROWS, pad_left=left)), StoppingCriteria(stop_ids=STOP, max_new_tokens=9), beams, n_best=3
    )
    for row, found in zip(ROWS, together, strict=True):
        (alone,) = beam_search(
            model, Batch(Text.pad([row])), StoppingCriteria(stop_ids=STOP, max_new_tokens=9), beams, n_best=3
        )
        assert [one.tokens for one in found] == [one.tokens for one in alone]
        assert_close([one.score for one in found], [one.score for one in alone])
        assert_close([one.logprobs for one in found], [one.logprobs for one in alone])


def naive_groups(model, row, beams, limit):
    """Diverse beams as in the paper, with lists and without a state: (tokens, sum) of all beams after `limit` steps."""
    width = beams.beams // beams.beam_groups
    groups = [[((), 0.0)] for _ in range(beams.beam_groups)]
    for _ in range(limit):
        taken = []
        for number, group in enumerate(groups):
            every = []
            for tokens, total in group:
                state, text = model.start(Batch(Text(torch.tensor([row + list(tokens)]))))
                logs = model.step(text, state)[0, -1].log_softmax(-1).tolist()
                every += [
                    ((*tokens, t), total + log, beams.diversity_penalty * taken.count(t)) for t, log in enumerate(logs)
                ]
            best = sorted(every, key=lambda one: one[2] - one[1])[:width]
            groups[number] = [(tokens, total) for tokens, total, _ in best]
            taken += [tokens[-1] for tokens, _ in groups[number]]
    return sorted((pair for group in groups for pair in group), key=lambda pair: -pair[1])


@pytest.mark.parametrize("diversity", [0.0, 0.5, 50.0])
def test_groups_keep_out_of_each_others_way(diversity):
    model = MODELS["gpt2"]()
    beams = BeamConfig(4, 0.0, beam_groups=2, diversity_penalty=diversity)
    (found,) = beam_search(
        model, Batch(Text.pad(ROWS[:1])), StoppingCriteria(stop_ids=None, max_new_tokens=4), beams, n_best=4
    )
    wanted = naive_groups(model, ROWS[0], beams, 4)
    assert [tuple(one.tokens) for one in found] == [tokens for tokens, _ in wanted]
    assert_close([one.score for one in found], [total for _, total in wanted])
    if not diversity:
        assert found[0].tokens == found[1].tokens  # two groups that do not mind each other do the same
    if diversity == 50:
        assert len({one.tokens[0] for one in found}) > 1


def test_rules_hold_in_every_beam():
    model = MODELS["gpt2"]()
    rules = [MinNewTokens(3, (STOP,)), NoRepeatNgram(2), BadWords([[4]])]
    beams = BeamConfig(400, 0.0)
    (found,) = beam_search(
        model,
        Batch(Text.pad(ROWS[:1])),
        StoppingCriteria(stop_ids=STOP, max_new_tokens=LENGTH, processors=rules),
        beams,
        n_best=40,
    )

    def kept(tokens):
        whole = [*ROWS[0], *tokens]
        pairs = list(itertools.pairwise(whole + [STOP] * (len(tokens) < LENGTH)))
        new = pairs[len(ROWS[0]) - 1 :]
        again = any(pair in pairs[: len(ROWS[0]) - 1 + i] for i, pair in enumerate(new))
        return 4 not in tokens and len(tokens) >= 3 and not again

    wanted = [(tokens, score) for tokens, score in every_text(model, ROWS[0], 0.0) if kept(tokens)]
    assert [tuple(one.tokens) for one in found] == [tokens for tokens, _ in wanted[:40]]
    assert_close([one.score for one in found], [score for _, score in wanted[:40]])


def test_what_ends_a_text_may_be_any_function_of_it():
    model = MODELS["gpt2"]()
    until = lambda sofar: [sum(row) >= 7 for row in sofar.new_tokens]
    (found,) = beam_search(
        model,
        Batch(Text.pad(ROWS[:1])),
        StoppingCriteria(stop_ids=None, max_new_tokens=9, stop_condition=until),
        BeamConfig(6),
        n_best=6,
    )
    assert all(one.hit_stop and sum(one.tokens) >= 7 > sum(one.tokens[:-1]) for one in found)


@pytest.mark.parametrize("name", ["transformer", "rnn"])
def test_coverage_is_what_the_paper_says(name):
    """The score of each text is its own, plus the weight times the logs of the looks that a second pass sees."""
    model, batch = MODELS[name](), Batch(Text.pad(ROWS))
    plain = beam_search(model, batch, StoppingCriteria(stop_ids=STOP, max_new_tokens=7), BeamConfig(6, 0.8), n_best=6)
    found = beam_search(
        model,
        batch,
        StoppingCriteria(stop_ids=STOP, max_new_tokens=7),
        BeamConfig(6, 0.8, coverage_penalty=0.4),
        n_best=6,
    )
    assert [one.tokens for row in found for one in row] != [one.tokens for row in plain for one in row]
    for row, texts in zip(ROWS, found, strict=True):
        for one in texts:
            target = [*one.tokens, STOP] if one.stop_logprob is not None else one.tokens
            with torch.no_grad(), watch(model, "*across*mechanism") as looks:
                scores = teacher_forced_logits(model, Batch(Text.pad([row]), Text.pad([target])))
            logs = scores.log_softmax(-1)[0].gather(-1, torch.tensor(target)[:, None]).sum()
            # the recurrent one looks once for each token, the other at all tokens at once
            seen = torch.cat([look.weights.mean(1) for look in looks], dim=1).sum(1)
            wanted = logs / len(target) ** 0.8 + 0.4 * seen.clamp(max=1.0).log().sum()
            assert one.score == pytest.approx(float(wanted))
    with pytest.raises(ValueError, match="needs cross-attention to a source, which this GPT2 does not have"):
        beam_search(
            MODELS["gpt2"](),
            batch,
            StoppingCriteria(stop_ids=None, max_new_tokens=3),
            BeamConfig(2, coverage_penalty=0.1),
        )


def test_enough_is_enough():
    """`first` stops no later than `heuristic`, and `heuristic` no later than `exact`; waiting longer never gives a worse text."""
    steps = {}
    for enough in ("first", "heuristic", "exact"):
        model, count = MODELS["gpt2"](3), []
        step = model.step
        model.step = lambda text, state, step=step, count=count: count.append(1) or step(text, state)
        ((best,),) = beam_search(
            model,
            Batch(Text.pad(ROWS[:1])),
            StoppingCriteria(stop_ids=(1, 2), max_new_tokens=12),
            BeamConfig(3, early_stopping=enough),
        )
        steps[enough] = (len(count), best.score)
    assert steps["first"][0] <= steps["heuristic"][0] <= steps["exact"][0]
    assert steps["first"][0] < steps["exact"][0]
    assert steps["first"][1] <= steps["heuristic"][1] + 1e-12 <= steps["exact"][1] + 2e-12


def test_what_beams_have_in_common_is_not_copied():
    """Keys of the source stay the tensors they are while beams change places, and are picked when rows leave."""
    state = State()
    state.advance((2, 1))
    state.put("memory", torch.tensor([[1.0], [2.0]]), axis=1)
    state.append("key", torch.arange(2.0)[:, None, None, None])
    state.expand_rows(3)
    memory, key = state.get("memory"), state.get("key")
    assert memory.flatten().tolist() == [1, 1, 1, 2, 2, 2]
    state.reorder(torch.tensor([1, 0, 0, 5, 3, 3]))
    assert state.get("memory") is memory
    assert state.get("key") is not key
    state.reorder(torch.tensor([3, 5, 4]))
    assert state.get("memory").flatten().tolist() == [2, 2, 2]
    rest = state.get("memory")
    state.reorder(torch.tensor([2, 2, 1]))
    assert state.get("memory") is rest
    state.put("memory", torch.tensor([[7.0], [8.0], [9.0]]), axis=1)
    state.reorder(torch.tensor([2, 0, 0]))
    assert state.get("memory").flatten().tolist() == [9, 7, 7]
    state.reorder(torch.tensor([0]))
    assert state.get("memory").flatten().tolist() == [9]
    with pytest.raises(ValueError, match="remembers nothing yet"):
        State().expand_rows(2)


@pytest.mark.parametrize(("vocab", "count"), [(5, 8), (997, 3), (1283, 4), (5000, 7), (128 * 40, 12)])
def test_the_highest_of_blocks_are_the_highest_of_all(vocab, count):
    scores = torch.randn(2, 3, vocab, generator=torch.Generator().manual_seed(vocab))
    scores[0, 0, : vocab // 2] = -math.inf
    scores[1, 1] = -math.inf
    values, tokens = topk(scores, count)
    wanted = scores.topk(min(count, vocab)).values
    assert torch.equal(values, wanted)
    assert torch.equal(scores.gather(-1, tokens), wanted)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"beams": 0}, "At least one beam"),
        ({"beams": 4, "beam_groups": 3}, "4 beams in 3 groups"),
        ({"length_penalty": math.nan}, "finite"),
        ({"coverage_penalty": -1.0}, "0 or more"),
        ({"diversity_penalty": 1.0}, "set beam_groups to 2 or more"),
    ],
)
def test_beams_that_cannot_be_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        BeamConfig(**options)


def test_a_call_that_cannot_be_is_refused():
    model, batch = MODELS["gpt2"](), Batch(Text.pad(ROWS))
    with pytest.raises(ValueError, match="4 beams give 1 to 4 texts, not n_best=5"):
        beam_search(model, batch, StoppingCriteria(stop_ids=None, max_new_tokens=3), n_best=5)
    with pytest.raises(ValueError, match="max_new_tokens must be at least 1; got 0"):
        beam_search(model, batch, StoppingCriteria(stop_ids=None, max_new_tokens=0))
    with pytest.raises(ValueError, match="stop token 9 is unknown"):
        beam_search(model, batch, StoppingCriteria(stop_ids=9, max_new_tokens=3))
    nothing = lambda scores, sofar: torch.full_like(scores, -math.inf)
    with pytest.raises(ValueError, match="Row 0: no text could be generated"):
        beam_search(model, batch, StoppingCriteria(stop_ids=None, max_new_tokens=3, processors=[nothing]))
