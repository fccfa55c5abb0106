"""An expression as a machine over the bytes of UTF-8: states that are made when they are first reached.

>>> machine = Automaton(r"ab*|é")
>>> [machine.matches(text) for text in ("a", "abb", "é", "", "b")]
[True, True, True, False, False]

Bytes and not characters, because a token may be half a character. A state is the set of places of the expression at which a
reader may stand; state 0 is the empty set, from which nothing matches any more.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import numpy as np

from saccade.decoding.expression import Either, Join, Node, One, Ranges, Repeat, read
from saccade.errors import UsageError

PLACES = 4_000  # of an expression, its repetitions written out
STATES = 20_000
Bytes = tuple[tuple[int, int], ...]  # a range for each byte of a character


class Automaton:
    """The states of an expression; `start`, and from each state by each byte the next."""

    def __init__(self, expression: str):
        self.places = _Places(expression)
        self._sets: list[frozenset[int]] = [frozenset()]
        self._numbers = {self._sets[0]: 0}
        self._table = np.zeros((64, 256), np.int32)
        self._filled = np.zeros(64, bool)
        self._filled[0] = True
        self.start = self.state(self.places.reached(0))

    def __len__(self) -> int:
        return len(self._sets)

    def state(self, places: frozenset[int]) -> int:
        """The number of the state that is this set of places."""
        if places in self._numbers:
            return self._numbers[places]
        number = len(self._sets)
        if number >= STATES:
            raise UsageError(
                f"The expression {self.places.expression!r} needs more than {STATES:,} states; make it simpler, with fewer "
                "repetitions of alternatives that look alike."
            )
        if number == len(self._table):
            self._table = np.concatenate([self._table, np.zeros_like(self._table)])
            self._filled = np.concatenate([self._filled, np.zeros_like(self._filled)])
        self._sets.append(places)
        self._numbers[places] = number
        return number

    def set_of(self, state: int) -> frozenset[int]:
        """The places that a state stands for."""
        return self._sets[state]

    def full(self, state: int) -> bool:
        """Whether what was read up to this state matches."""
        return self.places.end in self._sets[state]

    def step(self, states: np.ndarray, letters: np.ndarray) -> np.ndarray:
        """The next state of each, by its own byte."""
        for state in np.flatnonzero(np.bincount(states, minlength=1)):
            if not self._filled[state]:
                self._fill(int(state))
        return self._table[states, letters]

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        state = np.array([self.start])
        for byte in text.encode():
            state = self.step(state, np.array([byte]))
        return self.full(int(state[0]))

    def _fill(self, state: int) -> None:
        """All 256 ways on, found for each stretch of bytes between the borders of ranges."""
        ways = [way for place in self._sets[state] for way in self.places.ways[place]]
        borders = sorted({border for low, high, _ in ways for border in (low, high + 1)})
        row = np.zeros(256, np.int32)
        for low, beyond in pairwise(borders):
            targets = [self.places.reached(place) for first, last, place in ways if first <= low <= last]
            row[low:beyond] = self.state(frozenset().union(*targets)) if targets else 0
        self._table[state] = row  # after all numbers are given, which may have made the table anew
        self._filled[state] = True


class _Places:
    """The places of an expression, the bytes that lead from one to another, and the steps that take none."""

    def __init__(self, expression: str):
        self.expression = expression
        self.ways: list[list[tuple[int, int, int]]] = []  # (first byte, last byte, place)
        self.free: list[list[int]] = []
        self._reached: dict[int, frozenset[int]] = {}
        self.end = self._add(read(expression), self._new())

    def reached(self, place: int) -> frozenset[int]:
        """Where one stands without reading anything more: places from which a byte leads on, and the end."""
        if place not in self._reached:
            seen, todo = {place}, [place]
            while todo:
                new = [other for other in self.free[todo.pop()] if other not in seen]
                seen.update(new)
                todo += new
            self._reached[place] = frozenset(at for at in seen if self.ways[at] or at == self.end)
        return self._reached[place]

    @cached_property
    def standing(self) -> list[int]:
        """All places at which one can stand between two bytes."""
        return sorted({at for place in range(len(self.ways)) for at in self.reached(place)})

    def _new(self) -> int:
        if len(self.ways) >= PLACES:
            raise UsageError(
                f"The expression {self.expression!r}, its repetitions written out, has more than {PLACES:,} places; "
                "repeat less often, or use * in place of a large number."
            )
        self.ways.append([])
        self.free.append([])
        return len(self.ways) - 1

    def _add(self, node: Node, start: int) -> int:
        """Write a part of the expression down from a place on; gives the place where it ends. Nothing leads back to `start`."""
        if isinstance(node, One):
            return self._one(node.ranges, start)
        if isinstance(node, Join):
            for part in node.parts:
                start = self._add(part, start)
            return start
        if isinstance(node, Either):
            ends = [self._add(part, start) for part in node.parts]
            end = self._new()
            for one in ends:
                self.free[one].append(end)
            return end
        return self._repeat(node, start)

    def _one(self, ranges: Ranges, start: int) -> int:
        end = self._new()
        rests: dict[Bytes, int] = {(): end}  # what is left of a character to the place where that is awaited

        def place(rest: Bytes) -> int:
            if rest not in rests:
                rests[rest] = self._new()
                (low, high), *more = rest
                self.ways[rests[rest]].append((low, high, place(tuple(more))))
            return rests[rest]

        for low, high in ranges:
            for (first, last), *rest in spelled(low, high):
                self.ways[start].append((first, last, place(tuple(rest))))
        return end

    def _repeat(self, node: Repeat, start: int) -> int:
        for _ in range(node.least):
            start = self._add(node.part, self._after(start))
        if node.most is None:
            loop = self._after(start)
            self.free[self._add(node.part, loop)].append(loop)
            return self._after(loop)
        end = self._new()
        for _ in range(node.most - node.least):
            self.free[start].append(end)
            start = self._add(node.part, self._after(start))
        self.free[start].append(end)
        return end

    def _after(self, place: int) -> int:
        new = self._new()
        self.free[place].append(new)
        return new


def spelled(low: int, high: int) -> Iterator[Bytes]:
    """The characters from one code point to another as ranges of bytes, one range for each byte of UTF-8.

    >>> list(spelled(0x41, 0x7FF))
    [((65, 127),), ((194, 223), (128, 191))]
    """
    for top in (0x7F, 0x7FF, 0xFFFF):  # the last of one, two and three bytes
        if low <= top < high:
            yield from spelled(low, top)
            yield from spelled(top + 1, high)
            return
    for bits in (6, 12, 18) if high > 0x7F else ():  # where earlier bytes differ, later ones have to be free
        rest = (1 << bits) - 1
        if low >> bits == high >> bits:
            break
        if low & rest:
            yield from spelled(low, low | rest)
            yield from spelled((low | rest) + 1, high)
            return
        if high & rest != rest:
            yield from spelled(low, (high & ~rest) - 1)
            yield from spelled(high & ~rest, high)
            return
    yield tuple(zip(chr(low).encode(), chr(high).encode(), strict=True))
