"""The memory of a fast writer is as large as what it has to hold, and answers as one that copies everything."""

import pytest
import torch

from saccade.data import Batch, Text
from saccade.decoding import BeamConfig, StoppingCriteria, beam_search, generate
from saccade.engine import KVCache, fast
from saccade.engine.kv_buffers import MIN_MMAP_BYTES, KVBuffer, SharedKVBuffer, mmap_empty
from saccade.engine.kv_cache import MAX_GROWTH_FACTOR, MIN_BUFFER_TOKENS
from saccade.models.build import new
from saccade.models.families import gpt2, t5
from saccade.parts.state import State


def places(memory: KVCache) -> set[int]:
    return {slot.storage.size(2) for slot in memory._slots.values() if isinstance(slot, KVBuffer)}


def told(total: int, first: int) -> list[int]:
    """The places of a room after each token, when so many are said to come and some are there at first."""
    memory, seen = KVCache(), []
    memory.expect_tokens(total)
    for count in (first, *[1] * (total - first)):
        memory.advance((2, count))
        memory.append("key", torch.zeros(2, 3, count, 4))
        seen += places(memory)
    return seen


def test_a_room_is_as_large_as_what_is_said_to_come():
    assert set(told(191, 64)) == {191}
    assert set(told(32, 1)) == {32}


def test_a_long_end_is_not_reserved_at_once():
    end = 10 * MIN_BUFFER_TOKENS
    sizes = told(end, 2)
    assert sizes[0] == MIN_BUFFER_TOKENS
    assert sizes[-1] == end
    assert all(size <= max(MIN_BUFFER_TOKENS, MAX_GROWTH_FACTOR * (number + 2)) for number, size in enumerate(sizes))


def test_more_than_was_said_finds_room_too():
    memory = KVCache()
    memory.expect_tokens(3)
    parts = [torch.randn(1, 2, count, 4) for count in (3, 1, 70)]
    for part in parts:
        memory.advance((1, part.size(2)))
        found = memory.append("key", part)
    assert found.equal(torch.cat(parts, 2))


def test_large_space_is_of_its_own_and_may_be_written():
    like = torch.zeros(1, dtype=torch.float32)
    large = mmap_empty((3, MIN_MMAP_BYTES // 4), like)
    large[:] = 1.5
    assert large.sum() == 1.5 * large.numel()
    assert mmap_empty((2, 5), like).shape == (2, 5)
    assert large.dtype is mmap_empty((2, 5), like).dtype is torch.float32


@pytest.fixture
def pair():
    """A plain state and a fast one with a text, what was read, and keys that grow."""
    states = State(), KVCache()
    source, key = torch.randn(3, 5, 2), torch.randn(3, 2, 1, 4)
    for state in states:
        state.advance((3, 1))
        state.put("source", source, 1)
        state.append("key", key)
        state.expand_rows(2)
    return states


MOVES = {
    "within groups": [1, 0, 2, 2, 5, 4],
    "a group leaves": [1, 1, 4, 5],
    "groups change places": [5, 4, 0, 1],
    "groups are torn": [0, 2, 1, 3],
    "an odd number": [4, 4, 1],
}


@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES.keys())
def test_what_rows_share_moves_as_if_it_were_copied(pair, moves):
    for state in pair:
        state.reorder(torch.tensor(moves))
        state.reorder(torch.tensor([1, 0]))
    plain, quick = pair
    for name in ("source", "key"):
        assert quick.get(name).equal(plain.get(name))


def test_what_rows_share_is_kept_once(pair):
    _, quick = pair
    few = quick.per_source("source")
    assert len(few) == 3
    assert quick.rows_per_source("source") == 2
    quick.reorder(torch.tensor([1, 0, 2, 2, 5, 4]))
    assert quick.per_source("source") is few
    slot = quick._slots["source"]
    assert isinstance(slot, SharedKVBuffer)
    assert slot.repeated_tensor is None
    quick.reorder(torch.tensor([0, 2, 1, 3]))
    assert quick.rows_per_source("source") == 1
    assert quick.rows_per_source("key") == 1


def test_nothing_that_is_remembered_cannot_be_spread():
    with pytest.raises(ValueError, match="remembers nothing yet"):
        KVCache().expand_rows(2)


def test_a_search_holds_no_place_more_than_it_writes(monkeypatch):
    """Of the beams' own keys as many places as tokens are read, and of the source one row for all beams."""
    model = fast(new("t5", t5.Config(31, 24, 2, heads=3, head_width=8, ffn_width=37)).eval(), "int8")
    seen: list[KVCache] = []
    start = model.start

    def noted(batch):
        state, text = start(batch)
        seen.append(state)
        return state, text

    monkeypatch.setattr(model, "start", noted)
    batch = Batch(Text.pad([[5, 6, 7], [8, 9]]))
    found = beam_search(model, batch, StoppingCriteria(None, 7), BeamConfig(3))
    (memory,) = seen
    assert places(memory) == {7}
    assert {len(slot.per_source) for slot in memory._slots.values() if isinstance(slot, SharedKVBuffer)} == {2}
    assert all(len(one.tokens) == 7 for row in found for one in row)


def test_a_text_holds_no_place_more_than_it_writes(monkeypatch):
    model = fast(new("gpt2", gpt2.Config(31, 24, 2, 3)).eval(), "float32")
    ends: list[int] = []
    expect = KVCache.expect_tokens
    monkeypatch.setattr(KVCache, "expect_tokens", lambda self, tokens: (ends.append(tokens), expect(self, tokens))[1])
    generate(model, Batch(Text.pad([[5, 6, 7], [8, 9]])), stop_ids=None, max_new_tokens=7)
    assert ends == [9]  # three are read, and six of the seven that are written
