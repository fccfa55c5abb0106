"""Memory in rooms, against plain memory: whatever moves are made, the same is remembered."""

import random

import torch

from saccade.engine import KVCache
from saccade.engine.kv_cache import KVBuffer
from saccade.parts.state import State


def test_rooms_remember_as_plain_memory_does():
    """A long row of random moves on both: whatever was remembered is the same after each."""
    for seed in range(12):
        _walk(random.Random(seed))


def _walk(chance):
    torch.manual_seed(chance.randrange(1000))
    states, marks = [State(), KVCache()], []
    _grow(states, chance, 3)
    for _ in range(40):
        move = chance.choice(["grow", "grow", "grow", "mark", "rewind", "reorder", "join", "leave", "spread"])
        rows = states[0].get("key").size(0)
        if move == "grow":
            _grow(states, chance, rows)
        elif move == "mark":
            marks.append([state.snapshot() for state in states])
        elif move == "rewind" and marks:
            there = marks.pop(chance.randrange(len(marks)))
            for state, mark in zip(states, there, strict=True):
                state.restore(mark)
        elif move == "reorder":
            index = torch.tensor([chance.randrange(rows) for _ in range(chance.randint(1, 4))])
            for state in states:
                state.reorder(index)
        elif move == "join":
            others = [State(), KVCache()]
            _grow(others, chance, 2)
            for state, other in zip(states, others, strict=True):
                state.append_rows(other)
        elif move == "leave" and rows > 1:
            gone = torch.tensor([chance.randrange(rows)] if rows < 6 else [0, 2, 3])
            for state in states:
                state.drop_rows(gone)
        elif move == "spread" and rows < 4:
            for state in states:
                state.expand_rows(2)
        _same(*states)
    for mark in marks:
        for state, there in zip(states, mark, strict=True):
            state.restore(there)
        _same(*states)


def _grow(states, chance, rows):
    count = chance.choice([1, 1, 1, 2, 70])
    keep = None if chance.random() < 0.5 else torch.rand(rows, count) < 0.7
    new, once = torch.randn(rows, 2, count, 3), torch.randn(rows, 2, 5, 3)
    for state in states:
        state.advance((rows, count), keep)
        state.append("key", new)
        state.at("deep").append("value", new * 2)
        state.get_or_make("source", lambda: once)
        state.put("hidden", new[:, 0, -1])


def _same(plain, memory):
    assert plain.length == memory.length
    assert (plain.keep is None) == (memory.keep is None)
    assert plain.keep is None or torch.equal(plain.keep, memory.keep)
    for name in ("key", "source", "hidden"):
        assert torch.equal(plain.get(name), memory.get(name)), name
    assert torch.equal(plain.at("deep").get("value"), memory.at("deep").get("value"))


def test_a_room_moves_only_when_it_is_full():
    memory, addresses = KVCache(), []
    for _ in range(300):
        memory.append("key", torch.zeros(1, 1, 1, 2))
        addresses.append(memory.get("key").data_ptr())
    assert len(set(addresses)) == 4  # 64, 130, 262, 526
    assert isinstance(memory._slots["key"], KVBuffer)


def test_rows_change_places_without_being_moved():
    """Whoever looks up where rows lie finds them in the space they were written to; whoever does not gets them in order."""
    memory, plain, chance = KVCache(), State(), torch.Generator().manual_seed(4)
    for state in (memory, plain):
        state.advance((4, 3))
    first = torch.randn(4, 2, 3, 5)
    memory.append("key", first)
    plain.append("key", first)
    whole = memory._slots["key"].storage  # type: ignore[attr-defined]
    for rows in ([1, 1, 0, 3], [3, 0, 2, 2], [2, 0, 1], [0, 0, 2]):
        new = torch.randn(len(rows), 2, 1, 5, generator=chance)
        for state in (memory, plain):
            state.reorder(torch.tensor(rows))
        room = memory.reserve_unordered("key", new)
        assert room.storage is whole
        assert room.indirection is not None
        whole[torch.arange(len(rows)), :, room.length - 1] = new[:, :, 0]
        assert torch.equal(memory.get("key"), plain.append("key", new))
    new = torch.randn(3, 2, 1, 5, generator=chance)
    room = memory.reserve("key", new)
    assert room.indirection is None
    assert torch.equal(room.storage[:, :, : room.length - 1], plain.get("key"))


def test_all_layers_share_one_table_of_places():
    memory = KVCache()
    for name in ("key", "value", "deep"):
        memory.append(name, torch.randn(3, 2, 4, 5))
    memory.reorder(torch.tensor([2, 0, 0]))
    origins = [slot.indirection for slot in memory._slots.values()]  # type: ignore[attr-defined]
    assert origins[0] is origins[1] is origins[2]


def test_what_inference_mode_remembered_goes_on_outside_of_it():
    memory = KVCache()
    with torch.inference_mode():
        memory.append("key", torch.ones(1, 1, 2, 1))
    assert memory.append("key", torch.zeros(1, 1, 1, 1)).flatten().tolist() == [1.0, 1.0, 0.0]
