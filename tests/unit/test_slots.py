"""Continuous batching: whoever else is there, a request gets what it would get alone, and no row is lost."""

import random
import threading

import pytest
import torch
import torch.nn.functional as F
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch import nn
from torch.testing import assert_close

from saccade.data import Batch, Image, Text
from saccade.decoding import Bounds, Draw, generate, greedy
from saccade.decoding.loop import steps
from saccade.decoding.rules import MinLength, NoRepeat
from saccade.engine import fast
from saccade.engine.slots import Full, Slots
from saccade.models import captioner, gpt2, llama, rnn, transformer
from saccade.models.new import new
from saccade.parts.state import State

VOCAB, STOP, LIMIT = 23, 5, 16
SIZES = {"vocab": VOCAB, "width": 12, "layers": 1, "heads": 3, "inner": 17, "length": LIMIT, "dropout": 0.0}
SEEING = {"width": 12, "layers": 1, "heads": 3, "inner": 17, "dropout": 0.0, "size": 8, "cell": 4}
TINY = {
    "gpt2": gpt2.Config(**SIZES),
    "llama": llama.Config(**SIZES | {"heads": 6, "head_width": 2}, key_heads=2),
    "transformer": transformer.Config(**SIZES),
    "rnn": rnn.Config(VOCAB, 12, dropout=0.0),
}


def tiny(name, config=None):
    """With weights so large that texts differ and end at different times."""
    torch.manual_seed(1)
    model = new(name, config or TINY[name]).eval()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.4)
    return model


def text(row):
    return Batch(Text(torch.tensor([row])))


def run(slots):
    """Step until all is done; each event in its order."""
    events = []
    while slots.busy:
        events += slots.step()
    return events


class Sum:
    """A writer whose next token is known by a formula: the sum of n times the n-th token, modulo the vocabulary."""

    def __init__(self):
        self.broken, self.started = None, []

    def start(self, batch):
        self.started.append(tuple(batch.source.tokens.shape))
        return State(), batch.source

    def step(self, text, state):
        if self.broken is not None:
            raise self.broken
        if int(text.tokens.max()) >= VOCAB:
            raise IndexError("no such token")
        state.advance(tuple(text.tokens.shape), text.keep)
        tokens = state.append("tokens", text.tokens, axis=1)
        weighed = (state.k_pos + 1) * tokens
        weighed = weighed if state.keep is None else weighed.masked_fill(~state.keep, 0)
        return F.one_hot(weighed.cumsum(1)[:, -text.tokens.size(1) :] % VOCAB, VOCAB).float()


def summed(row, limit, stop=STOP):
    out = []
    while len(out) < limit:
        token = sum((n + 1) * token for n, token in enumerate([*row, *out])) % VOCAB
        if token == stop:
            break
        out.append(token)
    return out


# whoever else is there


class Seen:
    """Greedy, and remembers what it chose from."""

    def __init__(self):
        self.scores = []

    def __call__(self, scores):
        self.scores.append(scores[0].clone())
        return greedy(scores)


def asked(rng, count=25):
    """Different requests: (tokens, limit)."""
    return [([rng.randrange(VOCAB) for _ in range(rng.randint(1, 8))], rng.randint(1, 8)) for _ in range(count)]


def storm(slots, pool, rng, arrivals, submit):
    """Requests come and go at random; gives the number in the pool and the ticket of each, and who was cancelled."""
    tickets, cancelled = [], set()
    while len(tickets) < arrivals or slots.busy:
        for _ in range(rng.choice([0, 0, 1, 1, 2, 5])):
            if len(tickets) < arrivals and slots.queued < 12:
                number = rng.randrange(len(pool))
                tickets.append((number, submit(slots, *pool[number])))
        if tickets and rng.random() < 0.2:
            ticket = rng.choice(tickets[-12:])[1]
            if slots.cancel(ticket):
                cancelled.add(ticket)
        slots.step()
        assert slots.seated <= slots.size
    return tickets, cancelled


@pytest.mark.parametrize("arrivals", [250, pytest.param(1000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", TINY)
def test_arrivals_and_cancellations_change_no_answer(name, arrivals):
    """1,000 over the families; an answer may differ only where the two best scores of the lone request all but tie."""
    model, rng = tiny(name), random.Random(3)
    pool = asked(rng)
    alone = [list(steps(model, text(row), Bounds(stop=STOP, limit=limit))) for row, limit in pool]
    slots, seen = Slots(model, 5, LIMIT, waiting=12), {}

    def submit(slots, row, limit):
        choose = rng.choice([greedy, Seen()])  # rows that are greedy are asked together
        ticket = slots.submit(text(row), Bounds(stop=STOP, limit=limit), choose)
        seen[ticket] = getattr(choose, "scores", [])
        return ticket

    tickets, cancelled = storm(slots, pool, rng, arrivals, submit)
    assert 20 < len(cancelled) < arrivals // 2
    assert len({len(lone) for lone in alone}) > 3
    for number, ticket in tickets:
        wanted = [int(step.tokens[0]) for step in alone[number] if step.going[0]]
        assert ticket.ended == (
            "cancelled" if ticket in cancelled else "limit" if alone[number][-1].going[0] else "stop"
        )
        if ticket in cancelled:
            wanted = wanted[: len(ticket.tokens)]
        if ticket.tokens != wanted:
            at = next(i for i, step in enumerate(alone[number]) if ticket.tokens[i : i + 1] != step.tokens.tolist())
            best = alone[number][at].scores[0].topk(2).values
            assert best[0] - best[1] < 1e-3
        else:
            for mine, step in zip(seen[ticket], alone[number], strict=False):
                assert_close(mine, step.scores[0], rtol=0, atol=1e-4)
    assert sum(map(bool, seen.values())) > arrivals // 4
    assert (slots.seated, slots.queued, slots._rows.state) == (0, 0, None)


@pytest.mark.parametrize("arrivals", [80, pytest.param(1000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", TINY)
def test_in_fixed_slots_arrivals_and_cancellations_move_no_bit(name, arrivals):
    """Every score that a request was chosen from is that of the same request alone, to the last bit."""
    model, rng = tiny(name), random.Random(4)
    pool = asked(rng, 15)
    seen = {}

    def submit(slots, row, limit):
        choose = Seen()
        ticket = slots.submit(text(row), Bounds(stop=STOP, limit=limit), choose)
        seen[ticket] = choose.scores
        return ticket

    alone = []
    for row, limit in pool:
        slots = Slots(model, 5, LIMIT, fixed=True)
        alone.append(submit(slots, row, limit))
        run(slots)
        assert alone[-1].tokens == generate(model, text(row), stop=STOP, limit=limit)[0]
    slots = Slots(model, 5, LIMIT, fixed=True, waiting=12)
    tickets, cancelled = storm(slots, pool, rng, arrivals, submit)
    assert 5 < len(cancelled) < arrivals // 2
    for number, ticket in tickets:
        lone, mine = seen[alone[number]], seen[ticket]
        assert ticket in cancelled or (ticket.tokens, ticket.ended) == (alone[number].tokens, alone[number].ended)
        assert len(mine) == len(lone) or ticket in cancelled
        assert all(torch.equal(a, b) for a, b in zip(mine, lone, strict=False))
    assert (slots.seated, slots.queued, slots._rows.state) == (0, 0, None)


def neighbours_move_no_bit(model, prompts, limit, tokens):
    """Each prompt alone, and among seven others that come before, with and after it."""
    rng = random.Random(5)
    for prompt in prompts:
        scores = []
        for company in (0, 7):
            slots, seen = Slots(model, 8, limit, fixed=True), Seen()
            others = [[rng.randrange(3, VOCAB) for _ in range(rng.randint(1, limit // 2))] for _ in range(company)]
            for number, other in enumerate(others[:5]):
                slots.submit(text(other), Bounds(stop=None, limit=rng.randint(1, limit // 2)), copy=number)
            for _ in range(rng.randint(0, 2) if company else 0):
                slots.step()
            ticket = slots.submit(text(prompt), Bounds(stop=None, limit=tokens), seen)
            slots.step()
            for other in others[5:]:
                slots.submit(text(other), Bounds(stop=None, limit=3))
            while ticket.ended is None:
                slots.step()
            scores.append(torch.stack(seen.scores))
        assert torch.equal(*scores), prompt


@pytest.mark.parametrize("threads", [1, 2])
def test_fixed_slots_are_exact_with_several_threads_and_real_widths(threads):
    """Heads of 64, where a row that the second thread computes is rounded differently from the same row in the first."""
    torch.set_num_threads(threads)
    model = tiny("gpt2", gpt2.Config(VOCAB, 128, 1, 2, length=64))
    neighbours_move_no_bit(model, [[9, 8, 7, 6, 5]], 24, tokens=5)


@pytest.mark.nightly
@pytest.mark.parametrize("name", TINY)
def test_500_prompts_and_seven_neighbours(name):
    """125 for each family."""
    torch.set_num_threads(2)
    neighbours_move_no_bit(tiny(name), [row for row, _ in asked(random.Random(6), 125)], LIMIT, tokens=8)


def test_pictures_are_captioned_in_slots_too():
    model = tiny("captioner_rnn", captioner.Config(VOCAB, **SEEING | {"width": 48}))
    pictures = [Batch(Image(torch.rand(1, 3, 8, 8))) for _ in range(5)]
    wanted = [generate(model, picture, stop=STOP, limit=6)[0] for picture in pictures]
    assert len(set(map(tuple, wanted))) > 1
    for fixed in (False, True):
        slots = Slots(model, 3, LIMIT, fixed)
        tickets = [slots.submit(picture, Bounds(stop=STOP, limit=6)) for picture in pictures]
        run(slots)
        assert [ticket.tokens for ticket in tickets] == wanted
    with pytest.raises(ValueError, match=r"all inputs have the shape of the first, \(1, 3, 8, 8\)"):
        slots.submit(Batch(Image(torch.rand(1, 3, 16, 16))), Bounds(stop=None, limit=2))


@pytest.mark.parametrize("fixed", [False, True])
def test_each_request_has_its_own_chance_rules_and_end(fixed):
    model, row = tiny("gpt2").double(), [3, 1, 4]
    asks = [{"choose": Draw(1.5, seed=n), "stop": None} for n in range(6)]
    asks += [{"rules": [NoRepeat(1)], "stop": None}, {"rules": [MinLength(6, ends=(STOP,))], "stop": STOP}]
    asks += [{"stop": [STOP, 7, 9]}, {"stop": None}]
    wanted = [generate(model, text(row), limit=9, **ask)[0] for ask in asks]
    assert len(set(map(tuple, wanted))) > 6
    chances = [Draw(1.5, seed=ask.pop("choose").seed) for ask in asks[:6]]  # from the beginning
    slots, chances = Slots(model, 4, LIMIT, fixed), [*chances, *[greedy] * 4]
    asked = enumerate(zip(asks, chances, strict=True))
    tickets = [slots.submit(text(row), Bounds(limit=9, **ask), choose, copy=n) for n, (ask, choose) in asked]
    run(slots)
    assert [ticket.tokens for ticket in tickets] == wanted
    until = slots.submit(text(row), Bounds(stop=None, limit=9, until=lambda sofar: [len(sofar.whole(0)) == 3 + 4]))
    run(slots)
    assert (until.tokens, until.ended) == (wanted[-1][:4], "stop")


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("name", ["gpt2", "rnn"])
def test_a_fast_model_is_a_model(name, fixed):
    model = fast(tiny(name), "int8")
    pool = asked(random.Random(7), 10)
    slots = Slots(model, 4, LIMIT, fixed)
    tickets = [slots.submit(text(row), Bounds(stop=STOP, limit=limit)) for row, limit in pool]
    run(slots)
    wanted = [generate(model, text(row), stop=STOP, limit=limit)[0] for row, limit in pool]
    assert [ticket.tokens for ticket in tickets] == wanted


# order, room and what is left behind


def test_newcomers_of_like_length_are_read_together():
    model = Sum()
    slots = Slots(model, 6, LIMIT)
    rows = [[1] * length for length in (5, 2, 8, 6, 9)]
    tickets = [slots.submit(text(row), Bounds(stop=None, limit=2)) for row in rows]
    model.started.clear()
    slots.step()
    assert sorted(model.started) == [(1, 2), (1, 9), (3, 8)]
    run(slots)
    assert [ticket.tokens for ticket in tickets] == [summed(row, 2, stop=None) for row in rows]


def test_first_come_first_served_and_no_more_than_may_wait():
    slots = Slots(Sum(), 2, LIMIT, waiting=3)
    tickets = [slots.submit(text([n]), Bounds(stop=None, limit=n + 1)) for n in range(3)]
    with pytest.raises(Full, match="3 requests wait already"):
        slots.submit(text([1]), Bounds(stop=None, limit=1))
    slots.cancel(tickets[1])  # makes room at once
    tickets.append(slots.submit(text([9]), Bounds(stop=None, limit=2)))
    events = [[(event.ticket.number, event.token, event.ended) for event in slots.step()] for _ in range(4)]
    assert events[0] == [(1, None, "cancelled"), (0, 0, "limit"), (2, 2, None)]
    assert [number for number, _, _ in events[1]] == [2, 3]
    assert events[2] == [(2, summed([2], 3)[2], "limit"), (3, summed([9], 2)[1], "limit")]
    assert events[3] == []
    assert not slots.busy


def test_in_fixed_slots_everyone_waits_for_a_row_of_their_own_and_copies_go_side_by_side():
    slots = Slots(Sum(), 4, LIMIT, fixed=True)
    same = [slots.submit(text([3, 4]), Bounds(stop=None, limit=3)) for _ in range(3)]
    slots.step()
    assert [len(ticket.tokens) for ticket in same] == [1, 0, 0]
    copies = [slots.submit(text([3, 4]), Bounds(stop=None, limit=3), copy=n) for n in range(1, 4)]
    slots.step()
    assert [len(ticket.tokens) for ticket in copies] == [1, 1, 1]
    run(slots)
    assert all(ticket.tokens == summed([3, 4], 3) for ticket in same + copies)


def test_who_leaves_takes_along_what_only_they_needed():
    slots = Slots(tiny("transformer"), 3, LIMIT)
    slots.submit(text([7] * 15), Bounds(stop=None, limit=2))
    slots.submit(text([8, 9, 10]), Bounds(stop=None, limit=8))
    slots.step()
    assert slots._rows.state.get("memory").shape == (2, 15, 12)
    slots.step()
    state = slots._rows.state
    assert state.get("memory").shape == (1, 3, 12)
    assert state.at("0").at("across").get("key").shape == (1, 3, 3, 4)
    assert state.length == 2
    run(slots)
    assert slots._rows.state is None


class Machine(RuleBasedStateMachine):
    """Submitting, cancelling and stepping in any order: no answer changes, nobody is lost, nothing overflows."""

    @initialize(fixed=st.booleans(), size=st.integers(1, 4))
    def begin(self, fixed, size):
        self.slots, self.asked = Slots(Sum(), size, 12, fixed, waiting=3), []

    @rule(
        row=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=7), limit=st.integers(1, 5), copy=st.integers(0, 3)
    )
    def submit(self, row, limit, copy):
        full = self.slots.queued == 3
        try:
            self.asked.append((self.slots.submit(text(row), Bounds(stop=STOP, limit=limit), copy=copy), row, limit))
            assert not full
        except Full:
            assert full

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def cancel(self, data):
        ticket, _, _ = data.draw(st.sampled_from(self.asked))
        ended = ticket.ended
        assert self.slots.cancel(ticket) == (ended is None)
        assert ticket.ended == (ended or "cancelled")

    @rule()
    def step(self):
        before = {ticket: len(ticket.tokens) for ticket, _, _ in self.asked}
        for event in self.slots.step():
            assert event.ended == event.ticket.ended
            assert len(event.ticket.tokens) == before[event.ticket] + (event.token is not None)

    @invariant()
    def nobody_is_lost(self):
        going = [ticket for ticket, _, _ in self.asked if ticket.ended is None]
        here = {*self.slots._waiting, *self.slots._rows.seated}
        assert here >= set(going)
        assert self.slots.seated <= self.slots.size
        assert self.slots.queued <= 3

    def teardown(self):
        run(self.slots)
        assert (self.slots.seated, self.slots.queued, self.slots._rows.state) == (0, 0, None)
        for ticket, row, limit in self.asked:
            wanted = summed(row, limit)
            if ticket.ended == "cancelled":
                wanted = wanted[: len(ticket.tokens)]
            assert ticket.tokens == wanted
            assert ticket.ended in ("cancelled", "limit" if len(wanted) == limit else "stop")


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


# threads


@pytest.mark.parametrize("fixed", [False, True])
def test_one_thread_steps_and_others_submit_stream_and_cancel(fixed):
    slots, wrong, closing = Slots(Sum(), 3, LIMIT, fixed, waiting=100), [], threading.Event()

    def write():
        while not closing.is_set():
            if slots.wait(0.05):
                slots.step()

    def ask(number):
        rng = random.Random(number)
        for row, limit in asked(rng, 12):
            ticket, wanted = slots.submit(text(row), Bounds(stop=STOP, limit=limit)), summed(row, limit)
            got = []
            for token in ticket.stream(timeout=20):
                got.append(token)
                if rng.random() < 0.1 and slots.cancel(ticket):
                    wanted = wanted[: len(ticket.tokens)]
            if [*got] != wanted:
                wrong.append((row, got, wanted))

    threads = [threading.Thread(target=write), *(threading.Thread(target=ask, args=(n,)) for n in range(4))]
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join(60)
    closing.set()
    threads[0].join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong
    run(slots)
    assert (slots.seated, slots.queued) == (0, 0)


def test_closing_ends_everything_and_takes_no_more():
    slots = Slots(Sum(), 1, LIMIT)
    tickets = [slots.submit(text([n]), Bounds(stop=None, limit=5)) for n in range(2)]
    with pytest.raises(TimeoutError, match=r"no news for 0.01 seconds; is a thread calling `Slots.step`"):
        tickets[0].result(timeout=0.01)
    slots.step()
    slots.close()
    assert [ticket.ended for ticket in tickets] == ["cancelled", "cancelled"]
    assert tickets[0].result() == summed([0], 1, stop=None)
    assert [event.ended for event in slots.step()] == ["cancelled", "cancelled"]
    assert not slots.wait(0.01)
    with pytest.raises(RuntimeError, match="closed and take no more"):
        slots.submit(text([1]), Bounds(stop=None, limit=1))


# what goes wrong


@pytest.mark.parametrize("fixed", [False, True])
def test_what_goes_wrong_in_one_request_is_its_own_affair(fixed):
    slots = Slots(Sum(), 4, LIMIT, fixed)
    good = slots.submit(text([3, 2]), Bounds(stop=STOP, limit=6))
    unknown = slots.submit(text([3, 99]), Bounds(stop=None, limit=3))
    broken = slots.submit(text([2, 2]), Bounds(stop=None, limit=3), lambda scores: scores / 0 + {})
    wide = slots.submit(text([2, 1]), Bounds(stop=None, limit=3), lambda scores: scores)
    run(slots)
    assert good.result() == summed([3, 2], 6)
    for ticket, error, said in (
        (unknown, IndexError, "no such"),
        (broken, TypeError, "unsupported operand"),
        (wide, ValueError, r"\(1, 23\)"),
    ):
        assert ticket.ended == "failed"
        with pytest.raises(error, match=said):
            ticket.result()
    assert slots.seated == 0


def test_a_model_that_fails_fails_those_who_are_in_it_and_no_later_ones():
    model = Sum()
    slots = Slots(model, 2, LIMIT)
    first = [slots.submit(text([n]), Bounds(stop=None, limit=5)) for n in (3, 4, 6)]
    slots.step()
    model.broken = ValueError("out of order")
    assert [(event.ticket, event.ended) for event in slots.step()] == [(first[0], "failed"), (first[1], "failed")]
    model.broken = None
    run(slots)
    assert first[2].tokens == summed([6], 5, stop=None)
    stopped = slots.submit(text([3]), Bounds(stop=None, limit=5))
    slots.step()
    model.broken = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        slots.step()
    model.broken = None
    with pytest.raises(RuntimeError, match="interrupted; submit again"):
        stopped.result()
    assert not slots.busy


def test_scores_that_are_no_numbers_are_an_error():
    model = tiny("gpt2")
    model.body.head.score.weight.data.fill_(torch.nan)
    slots = Slots(model, 2, LIMIT)
    ticket = slots.submit(text([1, 2]), Bounds(stop=None, limit=3))
    run(slots)
    with pytest.raises(ValueError, match="scores are no numbers"):
        ticket.result()


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        ({"row": []}, "text is empty"),
        ({"limit": 0}, "At least one token"),
        ({"row": [1] * 10, "limit": 7}, "10 tokens and 7 to be written need a slot of 17 tokens; these have 16"),
        ({"stop": 23}, "stop token 23 is unknown"),
        ({"rules": [MinLength(9, ends=(2,))]}, "At least 9 tokens and at most 3"),
    ],
)
def test_what_cannot_be_written_is_refused_at_once(ask, said):
    slots = Slots(tiny("gpt2"), 2, LIMIT)
    settings = {"row": [1, 2], "stop": None, "limit": 3} | ask
    row = settings.pop("row")
    with pytest.raises(ValueError, match=said):
        slots.submit(Batch(Text(torch.tensor([row], dtype=torch.long))), Bounds(**settings))
    assert not slots.busy


def test_a_source_and_what_is_written_from_it_have_a_limit_each():
    slots = Slots(tiny("transformer"), 2, LIMIT)
    ticket = slots.submit(text([3] * 16), Bounds(stop=None, limit=15))
    run(slots)
    assert len(ticket.tokens) == 15
    for row, limit in (([3] * 17, 1), ([3], 16)):
        with pytest.raises(ValueError, match="need a slot of 17 tokens"):
            slots.submit(text(row), Bounds(stop=None, limit=limit))


def test_slots_are_refused_that_could_not_work():
    with pytest.raises(ValueError, match="size=0"):
        Slots(Sum(), 0, 4)
    with pytest.raises(ValueError, match="at most 16 tokens, so a slot cannot have 17"):
        Slots(tiny("gpt2"), 2, 17)
    with pytest.raises(ValueError, match=r"model.eval\(\)"):
        Slots(tiny("gpt2").train(), 2, 4)
    with pytest.raises(ValueError, match="one row; the batch has 2"):
        Slots(Sum(), 2, 4).submit(Batch(Text.of([[1], [2]])), Bounds(stop=None, limit=1))
    with pytest.raises(ValueError, match="parts are not taken"):
        Slots(Sum(), 2, 4).submit(Batch(Text.packed([[[1], [2]]])), Bounds(stop=None, limit=1))
