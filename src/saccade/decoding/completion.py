"""Ending in time: the few tokens that make a text whole, from wherever it stands.

llguidance says what may follow, and not how far it is to the end; so an ending is searched for. What one search finds serves
many beginnings, since most of them end alike (a quotation mark, a bracket): known endings are tried first, which takes about a
microsecond each, and a search is over as soon as it meets one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from saccade.decoding.matcher import Vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher

MANY = 100_000  # more tokens than any text has
FEW = 3  # tokens that tell most wrong endings from the right one
NEAR = 16  # tokens of an ending that may be left out
MAX_ENDINGS = 128  # known ones
MAX_BRANCHES = 48  # tokens that are tried after one beginning,
FIRST_BRANCHES = 12  # the first of them by rank, where there are more
MAX_LEVEL = 24  # beginnings of one length that are followed
ALIKE = 2  # of them, those after which the same tokens may follow
CLOSING = b'}]0"a1nt-'  # what often ends a value, or begins a short one, the best first
OPENING = b"[{"
CYCLE = 4  # tokens after which it is noticed that nothing has changed: a character has at most four bytes

Ending = tuple[int, ...]


@dataclass
class Effort:
    """How much a search may still do."""

    left: int

    def spend(self) -> bool:
        self.left -= 1
        return self.left >= 0


@dataclass(frozen=True)
class Branch:
    """A way on from where a search began."""

    matcher: "LLMatcher"
    path: Ending
    first: bool = False  # whether nothing stands there yet


@dataclass
class Endings:
    """The endings that are known for one constraint, and the search for others."""

    vocabulary: Vocabulary
    hints: Sequence[Ending] = ()  # texts that something in the grammar asks for, and that a search could hardly guess
    near: Ending = ()  # how the text could end that is looked at: most that could be written instead ends alike
    known: dict[Ending, None] = field(default_factory=lambda: {(): None})  # the one that was right last is the last

    def learn(self, ending: Ending) -> Ending:
        """Keep an ending and what remains of it on the way."""
        for start in range(min(len(ending), MAX_ENDINGS // 2), -1, -1):
            self.known.pop(ending[start:], None)
            self.known[ending[start:]] = None
        while len(self.known) > MAX_ENDINGS:
            del self.known[next(iter(self.known))]
        return ending

    def recall(self, matcher: "LLMatcher", most: int, before: Ending = ()) -> Ending | None:
        """A known ending of at most so many tokens, if one fits after the tokens before it."""
        for start in range(min(len(self.near), NEAR)):
            if len(self.near) - start <= most and self._fits(matcher, before, self.near[start:]):
                return self.near[start:]
        for ending in reversed(self.known):
            if len(ending) <= most and self._fits(matcher, before, ending):
                self.known[ending] = self.known.pop(ending)
                return ending
        return None

    def _fits(self, matcher: "LLMatcher", before: Ending, ending: Ending) -> bool:
        """Whether it ends the text; a long one is refused by its first tokens, mostly."""
        head = before + ending[:FEW]
        if len(ending) > FEW and matcher.validate_tokens(list(head)) < len(head):
            return False
        return self.vocabulary.ends_after(matcher, before + ending)

    def find(self, begin: Branch, most: int, effort: Effort, *, every: bool = False) -> Ending | None:
        """An ending of at most so many tokens: the shortest if there is one nearby, otherwise any that can be found."""
        near = self._search(begin, most, Effort(effort.left // 2), every)
        return near if near is not None else self._dive(begin, most, effort, every)

    def _search(self, begin: Branch, most: int, effort: Effort, every: bool) -> Ending | None:
        """In all directions at once, so that what is met first is the shortest, or nearly so."""
        level = [begin]
        while level:
            found = [path for branch in level for path in self._met(branch, most)]
            if found:
                return self.learn(min(found, key=len))
            if len(level[0].path) >= most:
                return None
            level = self._next(level, effort, every)
        return None

    def _dive(self, begin: Branch, most: int, effort: Effort, every: bool) -> Ending | None:
        """Straight ahead: what leads on to something new goes before what leads nowhere (more letters of a string, a space)."""
        order = count()
        todo: list[tuple[int, int, int, Branch, tuple[bytes, ...]]] = [(0, 0, next(order), begin, ())]
        while todo:
            detours, _, _, branch, before = heappop(todo)
            for path in self._met(branch, most):
                return self.learn(path)
            before = (*before[-CYCLE:], branch.matcher.compute_bitmask())
            found: dict[bytes, list[Branch]] = {}
            for tokens in self._steps(branch, every) if len(branch.path) < most else ():
                if not effort.spend():
                    return None
                after = self.vocabulary.then(branch.matcher, *tokens, first=branch.first)
                if after is not None:
                    self._keep(found.setdefault(after.compute_bitmask(), []), Branch(after, (*branch.path, *tokens)), 1)
            for mask, (new,) in found.items():
                idle = len(found) > 1 and (mask in before or self.vocabulary.later[new.path[-1]].isspace())
                heappush(todo, (detours + idle, -len(new.path), next(order), new, before))
        return None

    def _steps(self, branch: Branch, every: bool) -> list[Ending]:
        """What to go on with: a text that is asked for, or one token."""
        hints = (
            []
            if branch.first
            else [hint for hint in self.hints if branch.matcher.validate_tokens(list(hint)) == len(hint)]
        )
        tokens = self._tokens(branch, every)
        few = tokens if every or len(tokens) <= MAX_BRANCHES // 2 else tokens[: FIRST_BRANCHES + FIRST_BRANCHES // 3]
        return [*hints, *((token,) for token in few)]

    def _met(self, branch: Branch, most: int) -> Iterator[Ending]:
        """The ending that a way on leads to, if it has come to the end of a text or to an ending that is known."""
        if branch.first:
            if branch.matcher.is_accepting():
                yield ()
            return
        ending = self.recall(branch.matcher, most - len(branch.path))
        if ending is not None:
            yield branch.path + ending

    def _next(self, level: Sequence[Branch], effort: Effort, every: bool) -> list[Branch]:
        """One token further, by several ways that differ in what may follow."""
        found: dict[bytes, list[Branch]] = {}
        for branch in level:
            for token in self._tokens(branch, every):
                if not effort.spend():
                    return []
                after = self.vocabulary.then(branch.matcher, token, first=branch.first)
                if after is not None:
                    self._keep(
                        found.setdefault(after.compute_bitmask(), []), Branch(after, (*branch.path, token)), ALIKE
                    )
        nearest = sorted(found.values(), key=lambda alike: not alike[0].matcher.is_accepting())
        return [branch for alike in nearest for branch in alike][: None if every else MAX_LEVEL]

    def _keep(self, alike: list[Branch], new: Branch, most: int) -> None:
        """Add a branch to those after which the same may follow; of too many, the last is the one with the longest token."""
        if len(alike) < most:
            alike.append(new)
        elif len(self.vocabulary.later[new.path[-1]]) > len(self.vocabulary.later[alike[-1].path[-1]]):
            alike[-1] = new

    def _tokens(self, branch: Branch, every: bool) -> list[int]:
        """The tokens to try, by rank: all that may follow, or, where those are many, single letters and a few long ones."""
        allowed = np.flatnonzero(self.vocabulary.allowed(branch.matcher, first=branch.first))
        allowed = allowed[np.argsort(self._rank[allowed], kind="stable")]
        if every or len(allowed) <= MAX_BRANCHES:
            return allowed.tolist()
        lengths = self._lengths[allowed]
        short = allowed[lengths <= 1] if (lengths <= 1).any() else allowed
        long = allowed[np.argpartition(-lengths, FIRST_BRANCHES // 3)[: FIRST_BRANCHES // 3]]
        few = short[FIRST_BRANCHES :: 1 + len(short) // (MAX_BRANCHES - FIRST_BRANCHES)]
        return [*short[:FIRST_BRANCHES].tolist(), *long.tolist(), *few.tolist()]

    @cached_property
    def _lengths(self) -> np.ndarray:
        return np.array([len(text) for text in self.vocabulary.later])

    @cached_property
    def _rank(self) -> np.ndarray:
        """Which tokens are tried before others, (V,)."""
        worst = {byte: len(CLOSING) + (byte in OPENING) + (byte >= 0x80) for byte in range(256)}
        rank = worst | {byte: place for place, byte in enumerate(CLOSING)}
        return np.array([rank[text[0]] if text else len(CLOSING) for text in self.vocabulary.later])
