"""The life of slots: any order of events, several threads, requests and models that fail, and what is refused."""

import random
import threading

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from saccade.data import Batch, Text
from saccade.decoding import StoppingCriteria
from saccade.decoding.logits_processors import MinNewTokens
from saccade.engine.batching.scheduler import BatchScheduler, QueueFull
from support.scheduler import (
    LIMIT,
    STOP,
    VOCAB,
    SumModel,
    expected_tokens,
    make_batch,
    make_tiny_model,
    random_requests,
    run_all,
)


class Machine(RuleBasedStateMachine):
    """Submitting, cancelling and stepping in any order: no answer changes, nobody is lost, nothing overflows."""

    @initialize(fixed=st.booleans(), size=st.integers(1, 4))
    def begin(self, fixed, size):
        self.slots, self.asked = BatchScheduler(SumModel(), size, 12, fixed, max_waiting=3), []

    @rule(
        row=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=7), limit=st.integers(1, 5), copy=st.integers(0, 3)
    )
    def submit(self, row, limit, copy):
        full = self.slots.waiting_count == 3
        try:
            self.asked.append(
                (
                    self.slots.submit(
                        make_batch(row), StoppingCriteria(stop_ids=STOP, max_new_tokens=limit), copy_index=copy
                    ),
                    row,
                    limit,
                )
            )
            assert not full
        except QueueFull:
            assert full

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def cancel(self, data):
        ticket, _, _ = data.draw(st.sampled_from(self.asked))
        ended = ticket.finish_reason
        assert self.slots.cancel(ticket) == (ended is None)
        assert ticket.finish_reason == (ended or "cancelled")

    @rule()
    def step(self):
        before = {ticket: len(ticket.tokens) for ticket, _, _ in self.asked}
        for event in self.slots.step():
            assert event.finish_reason == event.handle.finish_reason
            assert len(event.handle.tokens) == before[event.handle] + (event.token is not None)

    @invariant()
    def nobody_is_lost(self):
        going = [ticket for ticket, _, _ in self.asked if ticket.finish_reason is None]
        here = {*self.slots._waiting, *self.slots._rows.running}
        assert here >= set(going)
        assert self.slots.running_count <= self.slots.batch_size
        assert self.slots.waiting_count <= 3

    def teardown(self):
        run_all(self.slots)
        assert (self.slots.running_count, self.slots.waiting_count, self.slots._rows.state) == (0, 0, None)
        for ticket, row, limit in self.asked:
            wanted = expected_tokens(row, limit)
            if ticket.finish_reason == "cancelled":
                wanted = wanted[: len(ticket.tokens)]
            assert ticket.tokens == wanted
            assert ticket.finish_reason in ("cancelled", "length" if len(wanted) == limit else "stop")


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


# threads


@pytest.mark.parametrize("fixed", [False, True])
def test_one_thread_steps_and_others_submit_stream_and_cancel(fixed):
    slots, wrong, closing = BatchScheduler(SumModel(), 3, LIMIT, fixed, max_waiting=100), [], threading.Event()

    def write():
        while not closing.is_set():
            if slots.wait(0.05):
                slots.step()

    def ask(number):
        rng = random.Random(number)
        for row, limit in random_requests(rng, 12):
            ticket, wanted = (
                slots.submit(make_batch(row), StoppingCriteria(stop_ids=STOP, max_new_tokens=limit)),
                expected_tokens(row, limit),
            )
            got = []
            for token in ticket.stream(timeout=120):
                got.append(token)
                if rng.random() < 0.1 and slots.cancel(ticket):
                    wanted = wanted[: len(ticket.tokens)]
            if [*got] != wanted:
                wrong.append((row, got, wanted))

    threads = [threading.Thread(target=write), *(threading.Thread(target=ask, args=(n,)) for n in range(4))]
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join(600)
    closing.set()
    threads[0].join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong
    run_all(slots)
    assert (slots.running_count, slots.waiting_count) == (0, 0)


def test_closing_ends_everything_and_takes_no_more():
    slots = BatchScheduler(SumModel(), 1, LIMIT)
    tickets = [slots.submit(make_batch([n]), StoppingCriteria(stop_ids=None, max_new_tokens=5)) for n in range(2)]
    with pytest.raises(TimeoutError, match=r"no new token for 0.01 seconds; is a thread calling `BatchScheduler.step`"):
        tickets[0].result(timeout=0.01)
    slots.step()
    slots.close()
    assert [ticket.finish_reason for ticket in tickets] == ["cancelled", "cancelled"]
    assert tickets[0].result() == expected_tokens([0], 1, stop=None)
    assert [event.finish_reason for event in slots.step()] == ["cancelled", "cancelled"]
    assert not slots.wait(0.01)
    with pytest.raises(RuntimeError, match="closed and takes no more"):
        slots.submit(make_batch([1]), StoppingCriteria(stop_ids=None, max_new_tokens=1))


# what goes wrong


@pytest.mark.parametrize("fixed", [False, True])
def test_what_goes_wrong_in_one_request_is_its_own_affair(fixed):
    slots = BatchScheduler(SumModel(), 4, LIMIT, fixed)
    good = slots.submit(make_batch([3, 2]), StoppingCriteria(stop_ids=STOP, max_new_tokens=6))
    unknown = slots.submit(make_batch([3, 99]), StoppingCriteria(stop_ids=None, max_new_tokens=3))
    broken = slots.submit(
        make_batch([2, 2]), StoppingCriteria(stop_ids=None, max_new_tokens=3), lambda scores: scores / 0 + {}
    )
    wide = slots.submit(make_batch([2, 1]), StoppingCriteria(stop_ids=None, max_new_tokens=3), lambda scores: scores)
    run_all(slots)
    assert good.result() == expected_tokens([3, 2], 6)
    for ticket, error, said in (
        (unknown, IndexError, "no such"),
        (broken, TypeError, "unsupported operand"),
        (wide, ValueError, r"\(1, 23\)"),
    ):
        assert ticket.finish_reason == "failed"
        with pytest.raises(error, match=said):
            ticket.result()
    assert slots.running_count == 0


def test_a_model_that_fails_fails_those_who_are_in_it_and_no_later_ones():
    model = SumModel()
    slots = BatchScheduler(model, 2, LIMIT)
    first = [slots.submit(make_batch([n]), StoppingCriteria(stop_ids=None, max_new_tokens=5)) for n in (3, 4, 6)]
    slots.step()
    model.broken = ValueError("out of order")
    assert [(event.handle, event.finish_reason) for event in slots.step()] == [
        (first[0], "failed"),
        (first[1], "failed"),
    ]
    model.broken = None
    run_all(slots)
    assert first[2].tokens == expected_tokens([6], 5, stop=None)
    stopped = slots.submit(make_batch([3]), StoppingCriteria(stop_ids=None, max_new_tokens=5))
    slots.step()
    model.broken = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        slots.step()
    model.broken = None
    with pytest.raises(RuntimeError, match="interrupted; submit again"):
        stopped.result()
    assert not slots.has_work


def test_scores_that_are_no_numbers_are_an_error():
    model = make_tiny_model("gpt2")
    model.body.head.score.weight.data.fill_(torch.nan)
    slots = BatchScheduler(model, 2, LIMIT)
    ticket = slots.submit(make_batch([1, 2]), StoppingCriteria(stop_ids=None, max_new_tokens=3))
    run_all(slots)
    with pytest.raises(ValueError, match="scores are not finite"):
        ticket.result()


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        ({"row": []}, "text is empty"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1"),
        (
            {"row": [1] * 10, "max_new_tokens": 7},
            "10 tokens and 7 new ones need 17 tokens; max_total_tokens is 16",
        ),
        ({"stop_ids": 23}, "stop token 23 is unknown"),
        ({"processors": [MinNewTokens(9, stop_ids=(2,))]}, "A minimum of 9 tokens is above max_new_tokens=3"),
    ],
)
def test_what_cannot_be_written_is_refused_at_once(ask, said):
    slots = BatchScheduler(make_tiny_model("gpt2"), 2, LIMIT)
    settings = {"row": [1, 2], "stop_ids": None, "max_new_tokens": 3} | ask
    row = settings.pop("row")
    with pytest.raises(ValueError, match=said):
        slots.submit(Batch(Text(torch.tensor([row], dtype=torch.long))), StoppingCriteria(**settings))
    assert not slots.has_work


def test_a_source_and_what_is_written_from_it_have_a_limit_each():
    slots = BatchScheduler(make_tiny_model("transformer"), 2, LIMIT)
    ticket = slots.submit(make_batch([3] * 16), StoppingCriteria(stop_ids=None, max_new_tokens=15))
    run_all(slots)
    assert len(ticket.tokens) == 15
    for row, limit in (([3] * 17, 1), ([3], 16)):
        with pytest.raises(ValueError, match="need 17 tokens; max_total_tokens is 16"):
            slots.submit(make_batch(row), StoppingCriteria(stop_ids=None, max_new_tokens=limit))


def test_slots_are_refused_that_could_not_work():
    with pytest.raises(ValueError, match="size=0"):
        BatchScheduler(SumModel(), 0, 4)
    with pytest.raises(ValueError, match="at most 16 tokens; max_total_tokens=17 is more"):
        BatchScheduler(make_tiny_model("gpt2"), 2, 17)
    with pytest.raises(ValueError, match=r"model.eval\(\)"):
        BatchScheduler(make_tiny_model("gpt2").train(), 2, 4)
    with pytest.raises(ValueError, match="one row; the batch has 2"):
        BatchScheduler(SumModel(), 2, 4).submit(
            Batch(Text.pad([[1], [2]])), StoppingCriteria(stop_ids=None, max_new_tokens=1)
        )
    with pytest.raises(ValueError, match="document_ids and global_mask are not supported"):
        BatchScheduler(SumModel(), 2, 4).submit(
            Batch(Text.pack([[[1], [2]]])), StoppingCriteria(stop_ids=None, max_new_tokens=1)
        )
