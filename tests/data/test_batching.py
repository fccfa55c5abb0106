"""Batches as a function of (seed, epoch, step): each example once, within the budget, the same on every machine."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.batching import BatchPlan, WindowPlan

LENGTHS = st.one_of(
    st.lists(st.integers(0, 40), min_size=1, max_size=60),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=60),
)


def caption_lengths(count, *, columns=2):
    """Lengths as in a corpus of translated captions: about 13 words, the translation a fifth longer or shorter."""
    generator = np.random.default_rng(7)
    source = np.clip(np.exp(generator.normal(2.5, 0.35, count)), 3, 60).round().astype(int)
    target = np.clip(source * np.exp(generator.normal(0, 0.2, count)), 3, 70).round().astype(int)
    return source if columns == 1 else np.stack([source, target], 1)


def cost(lengths, batch):
    """Rows times the longest of each column, by plain loops."""
    rows = [np.atleast_1d(lengths[i]).tolist() for i in batch]
    return len(rows) * sum(max(column) for column in zip(*rows, strict=True)) if rows else 0


def same(one, two):
    return len(one) == len(two) and all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@given(LENGTHS, st.integers(1, 200), st.integers(0, 3), st.one_of(st.none(), st.integers(1, 7)), st.integers(0, 2))
@settings(deadline=None)
def test_each_example_once_and_every_batch_within_its_budget(lengths, budget, seed, rows, epoch):
    plan = BatchPlan(lengths, budget, seed, rows)
    batches = plan.plan_epoch(epoch)
    assert sorted(int(i) for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert 0 < len(batch) <= (rows or len(lengths))
        assert cost(lengths, batch) <= budget or len(batch) == 1
    assert plan.count_steps(epoch) == len(batches)
    padded = sum(cost(lengths, batch) for batch in batches)
    real = sum(sum(np.atleast_1d(x).tolist()) for x in lengths)
    assert plan.measure_padding(epoch) == pytest.approx(1 - real / padded if padded else 0)


@given(LENGTHS, st.integers(1, 200), st.integers(1, 5))
@settings(deadline=None)
def test_ranks_together_are_the_batch(lengths, budget, size):
    plan = BatchPlan(lengths, budget)
    shares = [plan.shard_epoch(1, rank, size) for rank in range(size)]
    for place, batch in enumerate(plan.plan_epoch(1)):
        together = [int(i) for share in shares for i in share[place]]
        assert sorted(together) == sorted(batch.tolist())
    assert {len(share) for share in shares} == {plan.count_steps(1)}


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(1, 3))
@settings(deadline=None, max_examples=60)
def test_the_dearest_share_is_as_cheap_as_any_split_can_make_it(lengths, size):
    plan = BatchPlan(lengths, batch_tokens=10_000)
    shares = [plan.shard_batch(np.arange(len(lengths)), rank, size) for rank in range(size)]
    every = itertools.product(range(size), repeat=len(lengths))
    best = min(
        max(cost(lengths, [i for i, r in enumerate(ranks) if r == rank]) for rank in range(size)) for ranks in every
    )
    assert max(cost(lengths, share) for share in shares) == best


def test_shares_of_equal_rows_differ_by_one_row_at_most():
    plan = BatchPlan([7] * 9, batch_tokens=63)
    assert [len(plan.shard_batch(plan.plan_epoch(0)[0], rank, 4)) for rank in range(4)] == [3, 2, 2, 2]
    assert [len(BatchPlan([5], 9).shard_epoch(0, rank, 3)[0]) for rank in range(3)] == [1, 0, 0]


def test_no_share_of_a_real_batch_is_much_dearer_than_the_others():
    plan = BatchPlan(caption_lengths(5_000), batch_tokens=4_096)
    shares = [plan.shard_epoch(0, rank, 4) for rank in range(4)]
    for place, batch in enumerate(plan.plan_epoch(0)):
        costs = [cost(plan.lengths, share[place]) for share in shares]
        assert max(costs) <= 1.1 * cost(plan.lengths, batch) / 4
        assert min(costs) >= 0.7 * max(costs)


def test_the_same_seed_and_epoch_give_the_same_batches_and_others_give_others():
    lengths = caption_lengths(1_000)
    plan = BatchPlan(lengths, batch_tokens=512, seed=3)
    third, first = plan.plan_epoch(3), plan.plan_epoch(1)
    assert same(third, BatchPlan(lengths, batch_tokens=512, seed=3).plan_epoch(3))  # whatever was asked before
    assert same(first, plan.plan_epoch(1))
    for other in (plan.plan_epoch(2), BatchPlan(lengths, batch_tokens=512, seed=4).plan_epoch(1)):
        assert not same(first, other)
        neighbours = lambda batches: {frozenset(batch.tolist()) for batch in batches}
        assert len(neighbours(first) & neighbours(other)) < len(first) / 10  # new batches, not only a new order


def test_batches_are_shuffled_by_length():
    lengths = caption_lengths(5_000, columns=1)
    longest = [lengths[batch].max() for batch in BatchPlan(lengths, batch_tokens=512).plan_epoch(0)]
    assert abs(np.corrcoef(longest[1:], longest[:-1])[0, 1]) < 0.3


def test_a_step_finds_its_epoch_in_any_order():
    plan = BatchPlan(caption_lengths(300), batch_tokens=300, seed=1)
    wanted = [(e, p, batch) for e in range(4) for p, batch in enumerate(BatchPlan(plan.lengths, 300, 1).plan_epoch(e))]
    assert len({plan.count_steps(e) for e in range(12)}) > 1  # so that counting is not a mere division
    for step in (len(wanted) - 1, 0, len(wanted) // 2, *range(len(wanted))):
        epoch, place, batch = plan.find_batch(step)
        assert (epoch, place) == wanted[step][:2]
        assert np.array_equal(batch, wanted[step][2])


def test_an_example_beyond_the_budget_stands_alone():
    batches = BatchPlan([5, 900, 5, 5], batch_tokens=100).plan_epoch(0)
    assert sorted(sorted(batch.tolist()) for batch in batches) == [[0, 2, 3], [1]]


@pytest.mark.parametrize(("columns", "most"), [(1, 0.03), (2, 0.05)])
def test_padding_of_captions_is_small(columns, most):
    plan = BatchPlan(caption_lengths(29_000, columns=columns), batch_tokens=4_096)
    assert plan.measure_padding(0) < most
    shuffled = np.array_split(np.random.default_rng(0).permutation(29_000), plan.count_steps(0))
    by_chance = 1 - np.sum(plan.lengths) / sum(cost(plan.lengths, batch) for batch in shuffled)
    assert by_chance > 0.3  # what it would be without sorting


def test_an_epoch_of_many_examples_is_planned_at_once():
    plan = BatchPlan(caption_lengths(150_000), batch_tokens=4_096)
    took = []
    for number in range(3):
        start = time.process_time()
        plan.plan_epoch(number)
        took.append(time.process_time() - start)
    assert min(took) < 0.3


def test_a_plan_keeps_its_own_lengths_and_hands_out_what_cannot_be_spoilt():
    lengths = np.array([3, 4, 5])
    plan = BatchPlan(lengths, batch_tokens=5)
    lengths[:] = 1
    assert plan.count_steps(0) == 3
    with pytest.raises(ValueError, match="read-only"):
        plan.plan_epoch(0)[0][0] = 2
    plan.plan_epoch(0).clear()
    assert plan.count_steps(0) == len(plan.plan_epoch(0)) == 3


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: BatchPlan([], 5), r"n of 1 or more.*\(0,\)"),
        (lambda: BatchPlan(np.ones((2, 3), int), 5), r"\(n, 2\) with .* got \(2, 3\)"),
        (lambda: BatchPlan([1, -2], 5), "minimum of -2"),
        (lambda: BatchPlan(np.ones(2), 5), "integers.*float64"),
        (lambda: BatchPlan([1], 0), "batch_tokens is 0; at least 1"),
        (lambda: BatchPlan([1], 5, seed=-1), "seed is -1"),
        (lambda: BatchPlan([1], 5, batch_size=0), "batch_size is 0"),
        (lambda: BatchPlan([1], 5).find_batch(-1), "step is -1"),
        (lambda: BatchPlan([1], 5).plan_epoch(-1), "epoch is -1"),
        (lambda: BatchPlan([1], 5).count_steps(-1), "epoch is -1"),
        (lambda: BatchPlan([1], 5).shard_epoch(0, 2, 2), "rank 2 of 2"),
        (lambda: WindowPlan(10, 10, 1), "10 tokens is too short for a window of 10.*task.max_tokens"),
        (lambda: WindowPlan(10, 0, 1), "window_tokens is 0"),
        (lambda: WindowPlan(10, 2, 0), "batch_size is 0"),
        (lambda: WindowPlan(10, 2, 1).find_batch(-1), "step is -1"),
        (lambda: WindowPlan(10, 2, 1).plan_epoch(-1), "epoch is -1"),
        (lambda: WindowPlan(10, 2, 1).shard_batch(np.arange(2), -1, 2), "rank -1 of 2"),
    ],
)
def test_what_cannot_be_planned_is_said(make, said):
    with pytest.raises(ValueError, match=said):
        make()


# running text


@given(st.integers(2, 300), st.integers(1, 40), st.integers(1, 5), st.integers(0, 3), st.integers(1, 4))
@settings(deadline=None)
def test_each_token_is_a_target_once_at_most_and_nearly_all_are(count, length, batch, epoch, size):
    if count <= length:
        count = length + 1
    blocks = WindowPlan(count, length, batch, seed=5)
    starts = [int(start) for part in blocks.plan_epoch(epoch) for start in part]
    targets = [start + 1 + i for start in starts for i in range(length)]
    assert len(set(targets)) == len(targets)
    assert min(targets) >= 1
    assert max(targets) < count
    assert count - 1 - len(targets) < 2 * length
    assert [len(part) for part in blocks.plan_epoch(epoch)][:-1] == [batch] * (blocks.count_steps(epoch) - 1)
    shares = [blocks.shard_epoch(epoch, rank, size) for rank in range(size)]
    for place, whole in enumerate(blocks.plan_epoch(epoch)):
        parts = [share[place] for share in shares]
        assert np.concatenate(parts).tolist() == whole.tolist()
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    step = epoch * blocks.count_steps(0) + blocks.count_steps(0) - 1
    assert blocks.find_batch(step)[:2] == (epoch, blocks.count_steps(0) - 1)
    assert blocks.find_batch(step)[2].tolist() == blocks.plan_epoch(epoch)[-1].tolist()


def test_windows_differ_from_epoch_to_epoch_and_every_offset_comes():
    blocks = WindowPlan(1_000, window_tokens=5, batch_size=8, seed=2)
    assert {blocks.draw_offset(epoch) for epoch in range(60)} == set(range(5))
    assert all(blocks.plan_epoch(e)[0].min() % 5 == blocks.draw_offset(e) for e in range(9))
    assert not same(blocks.plan_epoch(0), blocks.plan_epoch(1))
    assert same(blocks.plan_epoch(4), WindowPlan(1_000, window_tokens=5, batch_size=8, seed=2).plan_epoch(4))
    assert not same(blocks.plan_epoch(4), WindowPlan(1_000, window_tokens=5, batch_size=8, seed=3).plan_epoch(4))
    order = np.concatenate(blocks.plan_epoch(0))
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 0.3
    assert blocks.measure_padding(0) == 0


def test_a_far_step_of_running_text_is_found_at_once():
    blocks = WindowPlan(50_000_000, window_tokens=256, batch_size=32)
    start = time.process_time()
    epoch, place, starts = blocks.find_batch(10**9)
    assert (epoch, place) == divmod(10**9, blocks.count_steps(0))
    assert len(starts) == 32
    assert time.process_time() - start < 1
