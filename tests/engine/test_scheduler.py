"""Continuous batching: whoever else is there, a request gets what it would get alone, and no row is lost."""

import random

import pytest
import torch
from torch.testing import assert_close

from saccade.data import Batch, Image
from saccade.decoding import Sampler, StoppingCriteria, generate, greedy
from saccade.decoding.logits_processors import MinNewTokens, NoRepeatNgram
from saccade.decoding.loop import decoding_steps
from saccade.engine import fast
from saccade.engine.batching.scheduler import BatchScheduler, QueueFull
from saccade.models.families import captioner, gpt2
from support.scheduler import (
    LIMIT,
    STOP,
    TINY,
    VISION_SIZES,
    VOCAB,
    SumModel,
    expected_tokens,
    make_batch,
    make_tiny_model,
    random_requests,
    run_all,
)


class Seen:
    """Greedy, and remembers what it chose from."""

    def __init__(self):
        self.scores = []

    def __call__(self, scores):
        self.scores.append(scores[0].clone())
        return greedy(scores)


def storm(slots, pool, rng, arrivals, submit):
    """Requests come and go at random; gives the number in the pool and the ticket of each, and who was cancelled."""
    tickets, cancelled = [], set()
    while len(tickets) < arrivals or slots.has_work:
        for _ in range(rng.choice([0, 0, 1, 1, 2, 5])):
            if len(tickets) < arrivals and slots.waiting_count < 12:
                number = rng.randrange(len(pool))
                tickets.append((number, submit(slots, *pool[number])))
        if tickets and rng.random() < 0.2:
            ticket = rng.choice(tickets[-12:])[1]
            if slots.cancel(ticket):
                cancelled.add(ticket)
        slots.step()
        assert slots.running_count <= slots.batch_size
    return tickets, cancelled


@pytest.mark.parametrize("arrivals", [250, pytest.param(1000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", TINY)
def test_arrivals_and_cancellations_change_no_answer(name, arrivals):
    """1,000 over the families; an answer may differ only where the two best scores of the lone request all but tie."""
    model, rng = make_tiny_model(name), random.Random(3)
    pool = random_requests(rng)
    alone = [
        list(decoding_steps(model, make_batch(row), StoppingCriteria(stop_ids=STOP, max_new_tokens=limit)))
        for row, limit in pool
    ]
    slots, seen = BatchScheduler(model, 5, LIMIT, max_waiting=12), {}

    def submit(slots, row, limit):
        choose = rng.choice([greedy, Seen()])  # rows that are greedy are asked together
        ticket = slots.submit(make_batch(row), StoppingCriteria(stop_ids=STOP, max_new_tokens=limit), choose)
        seen[ticket] = getattr(choose, "scores", [])
        return ticket

    tickets, cancelled = storm(slots, pool, rng, arrivals, submit)
    assert 20 < len(cancelled) < arrivals // 2
    assert len({len(lone) for lone in alone}) > 3
    for number, ticket in tickets:
        wanted = [int(step.tokens[0]) for step in alone[number] if step.active[0]]
        assert ticket.finish_reason == (
            "cancelled" if ticket in cancelled else "length" if alone[number][-1].active[0] else "stop"
        )
        if ticket in cancelled:
            wanted = wanted[: len(ticket.tokens)]
        if ticket.tokens != wanted:
            at = next(i for i, step in enumerate(alone[number]) if ticket.tokens[i : i + 1] != step.tokens.tolist())
            best = alone[number][at].logits[0].topk(2).values
            assert best[0] - best[1] < 1e-3
        else:
            for mine, step in zip(seen[ticket], alone[number], strict=False):
                assert_close(mine, step.logits[0], rtol=0, atol=1e-4)
    assert sum(map(bool, seen.values())) > arrivals // 4
    assert (slots.running_count, slots.waiting_count, slots._rows.state) == (0, 0, None)


@pytest.mark.parametrize("arrivals", [80, pytest.param(1000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", TINY)
def test_in_fixed_slots_arrivals_and_cancellations_move_no_bit(name, arrivals):
    """Every score that a request was chosen from is that of the same request alone, to the last bit."""
    model, rng = make_tiny_model(name), random.Random(4)
    pool = random_requests(rng, 15)
    seen = {}

    def submit(slots, row, limit):
        choose = Seen()
        ticket = slots.submit(make_batch(row), StoppingCriteria(stop_ids=STOP, max_new_tokens=limit), choose)
        seen[ticket] = choose.scores
        return ticket

    alone = []
    for row, limit in pool:
        slots = BatchScheduler(model, 5, LIMIT, fixed_rows=True)
        alone.append(submit(slots, row, limit))
        run_all(slots)
        assert alone[-1].tokens == generate(model, make_batch(row), stop_ids=STOP, max_new_tokens=limit)[0]
    slots = BatchScheduler(model, 5, LIMIT, fixed_rows=True, max_waiting=12)
    tickets, cancelled = storm(slots, pool, rng, arrivals, submit)
    assert 5 < len(cancelled) < arrivals // 2
    for number, ticket in tickets:
        lone, mine = seen[alone[number]], seen[ticket]
        assert ticket in cancelled or (ticket.tokens, ticket.finish_reason) == (
            alone[number].tokens,
            alone[number].finish_reason,
        )
        assert len(mine) == len(lone) or ticket in cancelled
        assert all(torch.equal(a, b) for a, b in zip(mine, lone, strict=False))
    assert (slots.running_count, slots.waiting_count, slots._rows.state) == (0, 0, None)


def neighbours_move_no_bit(model, prompts, limit, tokens):
    """Each prompt alone, and among seven others that come before, with and after it."""
    rng = random.Random(5)
    for prompt in prompts:
        scores = []
        for company in (0, 7):
            slots, seen = BatchScheduler(model, 8, limit, fixed_rows=True), Seen()
            others = [[rng.randrange(3, VOCAB) for _ in range(rng.randint(1, limit // 2))] for _ in range(company)]
            for number, other in enumerate(others[:5]):
                slots.submit(
                    make_batch(other),
                    StoppingCriteria(stop_ids=None, max_new_tokens=rng.randint(1, limit // 2)),
                    copy_index=number,
                )
            for _ in range(rng.randint(0, 2) if company else 0):
                slots.step()
            ticket = slots.submit(make_batch(prompt), StoppingCriteria(stop_ids=None, max_new_tokens=tokens), seen)
            slots.step()
            for other in others[5:]:
                slots.submit(make_batch(other), StoppingCriteria(stop_ids=None, max_new_tokens=3))
            while ticket.finish_reason is None:
                slots.step()
            scores.append(torch.stack(seen.scores))
        assert torch.equal(*scores), prompt


@pytest.mark.parametrize("threads", [1, 2])
def test_fixed_slots_are_exact_with_several_threads_and_real_widths(threads):
    """Heads of 64, where a row that the second thread computes is rounded differently from the same row in the first."""
    torch.set_num_threads(threads)
    model = make_tiny_model("gpt2", gpt2.Config(VOCAB, 128, 1, 2, max_positions=64))
    neighbours_move_no_bit(model, [[9, 8, 7, 6, 5]], 24, tokens=5)


@pytest.mark.nightly
@pytest.mark.parametrize("name", TINY)
def test_500_prompts_and_seven_neighbours(name):
    """125 for each family."""
    torch.set_num_threads(2)
    neighbours_move_no_bit(
        make_tiny_model(name), [row for row, _ in random_requests(random.Random(6), 125)], LIMIT, tokens=8
    )


def test_pictures_are_captioned_in_slots_too():
    model = make_tiny_model("captioner_rnn", captioner.Config(VOCAB, **VISION_SIZES | {"width": 48}))
    pictures = [Batch(Image(torch.rand(1, 3, 8, 8))) for _ in range(5)]
    wanted = [generate(model, picture, stop_ids=STOP, max_new_tokens=6)[0] for picture in pictures]
    assert len(set(map(tuple, wanted))) > 1
    for fixed in (False, True):
        slots = BatchScheduler(model, 3, LIMIT, fixed)
        tickets = [slots.submit(picture, StoppingCriteria(stop_ids=STOP, max_new_tokens=6)) for picture in pictures]
        run_all(slots)
        assert [ticket.tokens for ticket in tickets] == wanted
    with pytest.raises(ValueError, match=r"all inputs have the shape of the first, \(1, 3, 8, 8\)"):
        slots.submit(Batch(Image(torch.rand(1, 3, 16, 16))), StoppingCriteria(stop_ids=None, max_new_tokens=2))


@pytest.mark.parametrize("fixed", [False, True])
def test_each_request_has_its_own_chance_rules_and_end(fixed):
    model, row = make_tiny_model("gpt2").double(), [3, 1, 4]
    asks = [{"sampler": Sampler(1.5, seed=n), "stop_ids": None} for n in range(6)]
    asks += [
        {"processors": [NoRepeatNgram(1)], "stop_ids": None},
        {"processors": [MinNewTokens(6, stop_ids=(STOP,))], "stop_ids": STOP},
    ]
    asks += [{"stop_ids": [STOP, 7, 9]}, {"stop_ids": None}]
    wanted = [generate(model, make_batch(row), max_new_tokens=9, **ask)[0] for ask in asks]
    assert len(set(map(tuple, wanted))) > 6
    chances = [Sampler(1.5, seed=ask.pop("sampler").seed) for ask in asks[:6]]  # from the beginning
    slots, chances = BatchScheduler(model, 4, LIMIT, fixed), [*chances, *[greedy] * 4]
    asked = enumerate(zip(asks, chances, strict=True))
    tickets = [
        slots.submit(make_batch(row), StoppingCriteria(max_new_tokens=9, **ask), choose, copy_index=n)
        for n, (ask, choose) in asked
    ]
    run_all(slots)
    assert [ticket.tokens for ticket in tickets] == wanted
    until = slots.submit(
        make_batch(row),
        StoppingCriteria(
            stop_ids=None, max_new_tokens=9, stop_condition=lambda sofar: [len(sofar.all_tokens(0)) == 3 + 4]
        ),
    )
    run_all(slots)
    assert (until.tokens, until.finish_reason) == (wanted[-1][:4], "stop")


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("name", ["gpt2", "rnn"])
def test_a_fast_model_is_a_model(name, fixed):
    model = fast(make_tiny_model(name), "int8")
    pool = random_requests(random.Random(7), 10)
    slots = BatchScheduler(model, 4, LIMIT, fixed)
    tickets = [
        slots.submit(make_batch(row), StoppingCriteria(stop_ids=STOP, max_new_tokens=limit)) for row, limit in pool
    ]
    run_all(slots)
    wanted = [generate(model, make_batch(row), stop_ids=STOP, max_new_tokens=limit)[0] for row, limit in pool]
    assert [ticket.tokens for ticket in tickets] == wanted


# order, room and what is left behind


def test_newcomers_of_like_length_are_read_together():
    model = SumModel()
    slots = BatchScheduler(model, 6, LIMIT)
    rows = [[1] * length for length in (5, 2, 8, 6, 9)]
    tickets = [slots.submit(make_batch(row), StoppingCriteria(stop_ids=None, max_new_tokens=2)) for row in rows]
    model.started.clear()
    slots.step()
    assert sorted(model.started) == [(1, 2), (1, 9), (3, 8)]
    run_all(slots)
    assert [ticket.tokens for ticket in tickets] == [expected_tokens(row, 2, stop=None) for row in rows]


def test_first_come_first_served_and_no_more_than_may_wait():
    slots = BatchScheduler(SumModel(), 2, LIMIT, max_waiting=3)
    tickets = [slots.submit(make_batch([n]), StoppingCriteria(stop_ids=None, max_new_tokens=n + 1)) for n in range(3)]
    with pytest.raises(QueueFull, match="3 requests are waiting"):
        slots.submit(make_batch([1]), StoppingCriteria(stop_ids=None, max_new_tokens=1))
    slots.cancel(tickets[1])  # makes room at once
    tickets.append(slots.submit(make_batch([9]), StoppingCriteria(stop_ids=None, max_new_tokens=2)))
    events = [[(event.handle.request_id, event.token, event.finish_reason) for event in slots.step()] for _ in range(4)]
    assert events[0] == [(1, None, "cancelled"), (0, 0, "length"), (2, 2, None)]
    assert [number for number, _, _ in events[1]] == [2, 3]
    assert events[2] == [(2, expected_tokens([2], 3)[2], "length"), (3, expected_tokens([9], 2)[1], "length")]
    assert events[3] == []
    assert not slots.has_work


def test_in_fixed_slots_everyone_waits_for_a_row_of_their_own_and_copies_go_side_by_side():
    slots = BatchScheduler(SumModel(), 4, LIMIT, fixed_rows=True)
    same = [slots.submit(make_batch([3, 4]), StoppingCriteria(stop_ids=None, max_new_tokens=3)) for _ in range(3)]
    slots.step()
    assert [len(ticket.tokens) for ticket in same] == [1, 0, 0]
    copies = [
        slots.submit(make_batch([3, 4]), StoppingCriteria(stop_ids=None, max_new_tokens=3), copy_index=n)
        for n in range(1, 4)
    ]
    slots.step()
    assert [len(ticket.tokens) for ticket in copies] == [1, 1, 1]
    run_all(slots)
    assert all(ticket.tokens == expected_tokens([3, 4], 3) for ticket in same + copies)


def test_who_leaves_takes_along_what_only_they_needed():
    slots = BatchScheduler(make_tiny_model("transformer"), 3, LIMIT)
    slots.submit(make_batch([7] * 15), StoppingCriteria(stop_ids=None, max_new_tokens=2))
    slots.submit(make_batch([8, 9, 10]), StoppingCriteria(stop_ids=None, max_new_tokens=8))
    slots.step()
    assert slots._rows.state.get("memory").shape == (2, 15, 12)
    slots.step()
    state = slots._rows.state
    assert state.get("memory").shape == (1, 3, 12)
    assert state.at("0").at("across").get("key").shape == (1, 3, 3, 4)
    assert state.length == 2
    run_all(slots)
    assert slots._rows.state is None
