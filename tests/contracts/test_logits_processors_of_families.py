"""What every writer keeps under rules: with memory as without, together as alone, as it comes as in the end."""

from itertools import pairwise

import pytest
import torch
from test_families import FROM_CODES, VOCAB, WRITERS, names, rough, uneven_rows
from torch.testing import assert_close

from saccade.data import Batch, Text
from saccade.decoding import StoppingCriteria
from saccade.decoding.contrastive import contrastive_search
from saccade.decoding.logits_processors import (
    BadWords,
    ForcedTokens,
    MinNewTokens,
    NoRepeatNgram,
    RepetitionPenalty,
    TokenHistory,
)
from saccade.decoding.loop import decoding_steps, generate, teacher_forced_logits
from saccade.decoding.stop_strings import generate_texts, stream_texts
from saccade.text.train import train_tokenizer

LIMIT = 8


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def ruling(family):
    first = FROM_CODES.get(family.name, 3)
    stop = first + 2
    rules = [
        ForcedTokens({1: first + 3}),
        MinNewTokens(4, (stop,)),
        NoRepeatNgram(2),
        RepetitionPenalty(1.3),
        BadWords([[first], [first + 3, first + 4]]),
    ]
    return stop, rules


def naive(model, batch, stop, rules):
    """One row, everything read anew for each token."""
    new = []
    while len(new) < LIMIT:
        state, first = model.start(batch)
        text = Text(torch.cat([first.tokens, torch.tensor([new], dtype=torch.long)], dim=1))
        scores = model.step(text, state)[:, -1]
        for rule in rules:
            scores = rule(scores, TokenHistory([first.tokens[0].tolist()], [list(new)], LIMIT))
        token = int(scores.argmax())
        if token == stop:
            break
        new.append(token)
    return new


@pytest.mark.parametrize("family", WRITERS, ids=names)
def test_with_memory_as_without_and_together_as_alone(family):
    model = rough(family)
    together, alone = uneven_rows(family)
    stop, rules = ruling(family)
    with torch.no_grad():
        wanted = [naive(model, one, stop, rules) for one in alone]
    assert generate(model, together, stop_ids=stop, max_new_tokens=LIMIT, processors=rules) == wanted
    assert [generate(model, one, stop_ids=stop, max_new_tokens=LIMIT, processors=rules)[0] for one in alone] == wanted
    assert wanted != [naive(model, one, stop, []) for one in alone]  # so that the rules did something
    for row in wanted:
        assert len(row) >= 4
        assert row[1] == FROM_CODES.get(family.name, 3) + 3
        assert len(set(pairwise(row))) == len(row) - 1


@pytest.mark.parametrize("family", WRITERS, ids=names)
def test_as_it_comes_as_in_the_end(family):
    model = rough(family)
    together, alone = uneven_rows(family)
    stop, rules = ruling(family)
    tokenizer = train_tokenizer([], "bytes")  # whose ids go beyond those of all tiny models
    whole = generate_texts(
        model, together, StoppingCriteria(stop_ids=stop, max_new_tokens=LIMIT, processors=rules), tokenizer=tokenizer
    )
    pieces = list(
        stream_texts(
            model, together, StoppingCriteria(stop_ids=stop, max_new_tokens=LIMIT, processors=rules), tokenizer
        )
    )
    assert ["".join(row) for row in zip(*pieces, strict=True)] == [one.text for one in whole]
    rows = [[], []]
    for step in decoding_steps(
        model, together, StoppingCriteria(stop_ids=stop, max_new_tokens=LIMIT, processors=rules)
    ):
        for row, token, goes in zip(rows, step.tokens.tolist(), step.active.tolist(), strict=True):
            row += [token] if goes else []
    assert rows == [one.tokens for one in whole]
    for row, one in zip(whole, alone, strict=True):
        target = [*row.tokens, stop] if row.hit_stop else row.tokens
        with torch.no_grad():
            scores = teacher_forced_logits(model, Batch(one.source, Text.pad([target])))[0].log_softmax(-1)
        wanted = scores[torch.arange(len(target)), target]
        got = row.logprobs + ([row.stop_logprob] if row.hit_stop else [])
        assert_close(torch.tensor(got), wanted, rtol=1e-4, atol=1e-5)
        assert row.cumulative_logprob == pytest.approx(float(wanted.sum()), rel=1e-4)


@pytest.mark.parametrize("family", WRITERS, ids=names)
def test_contrastive_search_equals_a_loop_that_remembers_nothing(family):
    model = rough(family)
    together, alone = uneven_rows(family)
    stop, _ = ruling(family)
    rules, alpha, count = [NoRepeatNgram(2)], 0.5, 3
    wanted = [contrasted(model, one, stop, rules, alpha, count) for one in alone]
    assert (
        contrastive_search(
            model,
            together,
            StoppingCriteria(stop_ids=stop, max_new_tokens=5, processors=rules),
            alpha=alpha,
            candidates=count,
        )
        == wanted
    )


@torch.no_grad()
def contrasted(model, batch, stop, rules, alpha, count):
    """By the formula, one candidate at a time, everything read anew."""

    def read(new):
        state, first = model.start(batch)
        text = Text(torch.cat([first.tokens, torch.tensor([new], dtype=torch.long)], dim=1))
        vectors = model.body.hidden_states(text, state)[0]
        state, first = model.start(batch)
        return vectors, model.step(text, state)[:, -1], first.tokens[0].tolist()

    new = []
    while len(new) < 5:
        vectors, scores, prompt = read(new)
        for rule in rules:
            scores = rule(scores, TokenHistory([prompt], [list(new)], 5))
        shares = scores[0].softmax(-1)
        values = {}
        for token in shares.topk(count).indices.tolist():
            mine = read([*new, token])[0][-1]
            alike = max(float(mine @ other / mine.norm() / other.norm()) for other in vectors)
            values[token] = (1 - alpha) * float(shares[token]) - alpha * alike
        token = max(values, key=values.__getitem__)
        if token == stop:
            break
        new.append(token)
    return new


@pytest.mark.parametrize("family", WRITERS, ids=names)
def test_steps_show_the_scores_before_and_after(family):
    model = rough(family)
    together, _ = uneven_rows(family)
    plain = list(decoding_steps(model, together, StoppingCriteria(stop_ids=None, max_new_tokens=3)))
    assert all(step.processed_logits is step.logits for step in plain)
    best = plain[0].tokens.tolist()
    ruled = next(
        iter(
            decoding_steps(
                model,
                together,
                StoppingCriteria(stop_ids=None, max_new_tokens=3, processors=[BadWords([[token] for token in best])]),
            )
        )
    )
    assert torch.equal(ruled.logits, plain[0].logits)
    assert all(ruled.processed_logits[:, token].isinf().all() for token in best)
    assert not set(ruled.tokens.tolist()) & set(best)
    assert plain[0].logits.size(-1) >= VOCAB
