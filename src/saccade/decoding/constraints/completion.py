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

from saccade.decoding.constraints.matcher import Vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher

UNLIMITED_TOKENS = 100_000  # more tokens than any text has
MAX_PREFIX_TOKENS_CHECKED = 3  # tokens that tell most wrong endings from the right one
MAX_TOKENS_SKIPPED = 16  # tokens of an ending that may be left out
MAX_ENDINGS = 128  # known ones
MAX_BRANCHES = 48  # tokens that are tried after one beginning,
MAX_TOP_RANKED_BRANCHES = 12  # the first of them by rank, where there are more
MAX_BRANCHES_PER_LEVEL = 24  # beginnings of one length that are followed
MAX_BRANCHES_PER_MASK = 2  # of them, those after which the same tokens may follow
CLOSING_BYTES = b'}]0"a1nt-'  # what often ends a value, or begins a short one, the best first
OPENING_BYTES = b"[{"
MAX_CYCLE_TOKENS = 4  # tokens after which it is noticed that nothing has changed: a character has at most four bytes

Ending = tuple[int, ...]


@dataclass
class SearchBudget:
    """How much a search may still do."""

    remaining: int

    def spend(self) -> bool:
        self.remaining -= 1
        return self.remaining >= 0


@dataclass(frozen=True)
class Branch:
    """A way on from where a search began."""

    matcher: "LLMatcher"
    path: Ending
    at_start: bool = False  # whether nothing stands there yet


@dataclass
class EndingSearch:
    """The endings that are known for one constraint, and the search for others."""

    vocabulary: Vocabulary
    hints: Sequence[Ending] = ()  # texts that something in the grammar asks for, and that a search could hardly guess
    likely_ending: Ending = ()  # how the text could end that is looked at: most that could be written instead ends alike
    known_endings: dict[Ending, None] = field(
        default_factory=lambda: {(): None}
    )  # the one that was right last is the last

    def remember(self, ending: Ending) -> Ending:
        """Keep an ending and what remains of it on the way."""
        for start in range(min(len(ending), MAX_ENDINGS // 2), -1, -1):
            self.known_endings.pop(ending[start:], None)
            self.known_endings[ending[start:]] = None
        while len(self.known_endings) > MAX_ENDINGS:
            del self.known_endings[next(iter(self.known_endings))]
        return ending

    def find_known(self, matcher: "LLMatcher", max_tokens: int, prefix: Ending = ()) -> Ending | None:
        """A known ending of at most so many tokens, if one fits after the tokens before it."""
        for start in range(min(len(self.likely_ending), MAX_TOKENS_SKIPPED)):
            if len(self.likely_ending) - start <= max_tokens and self._completes_text(
                matcher, prefix, self.likely_ending[start:]
            ):
                return self.likely_ending[start:]
        for ending in reversed(self.known_endings):
            if len(ending) <= max_tokens and self._completes_text(matcher, prefix, ending):
                self.known_endings[ending] = self.known_endings.pop(ending)
                return ending
        return None

    def _completes_text(self, matcher: "LLMatcher", prefix: Ending, ending: Ending) -> bool:
        """Whether it ends the text; a long one is refused by its first tokens, mostly."""
        head = prefix + ending[:MAX_PREFIX_TOKENS_CHECKED]
        if len(ending) > MAX_PREFIX_TOKENS_CHECKED and matcher.validate_tokens(list(head)) < len(head):
            return False
        return self.vocabulary.is_complete_after(matcher, prefix + ending)

    def find(self, start: Branch, max_tokens: int, budget: SearchBudget, *, exhaustive: bool = False) -> Ending | None:
        """An ending of at most so many tokens: the shortest if there is one nearby, otherwise any that can be found."""
        near = self._search_breadth_first(start, max_tokens, SearchBudget(budget.remaining // 2), exhaustive)
        return near if near is not None else self._search_best_first(start, max_tokens, budget, exhaustive)

    def _search_breadth_first(
        self, start: Branch, max_tokens: int, budget: SearchBudget, exhaustive: bool
    ) -> Ending | None:
        """In all directions at once, so that what is met first is the shortest, or nearly so."""
        level = [start]
        while level:
            found = [path for branch in level for path in self._complete_endings(branch, max_tokens)]
            if found:
                return self.remember(min(found, key=len))
            if len(level[0].path) >= max_tokens:
                return None
            level = self._expand_level(level, budget, exhaustive)
        return None

    def _search_best_first(
        self, start: Branch, max_tokens: int, budget: SearchBudget, exhaustive: bool
    ) -> Ending | None:
        """Straight ahead: what leads on to something new goes before what leads nowhere (more letters of a string, a space)."""
        order = count()
        todo: list[tuple[int, int, int, Branch, tuple[bytes, ...]]] = [(0, 0, next(order), start, ())]
        while todo:
            detours, _, _, branch, before = heappop(todo)
            for path in self._complete_endings(branch, max_tokens):
                return self.remember(path)
            before = (*before[-MAX_CYCLE_TOKENS:], branch.matcher.compute_bitmask())
            found: dict[bytes, list[Branch]] = {}
            for tokens in self._next_paths(branch, exhaustive) if len(branch.path) < max_tokens else ():
                if not budget.spend():
                    return None
                after = self.vocabulary.advance(branch.matcher, *tokens, at_start=branch.at_start)
                if after is not None:
                    self._add_branch(
                        found.setdefault(after.compute_bitmask(), []), Branch(after, (*branch.path, *tokens)), 1
                    )
            for mask, (new,) in found.items():
                idle = len(found) > 1 and (mask in before or self.vocabulary.inner_bytes[new.path[-1]].isspace())
                heappush(todo, (detours + idle, -len(new.path), next(order), new, before))
        return None

    def _next_paths(self, branch: Branch, exhaustive: bool) -> list[Ending]:
        """What to go on with: a text that is asked for, or one token."""
        hints = (
            []
            if branch.at_start
            else [hint for hint in self.hints if branch.matcher.validate_tokens(list(hint)) == len(hint)]
        )
        tokens = self._tokens_to_try(branch, exhaustive)
        few = (
            tokens
            if exhaustive or len(tokens) <= MAX_BRANCHES // 2
            else tokens[: MAX_TOP_RANKED_BRANCHES + MAX_TOP_RANKED_BRANCHES // 3]
        )
        return [*hints, *((token,) for token in few)]

    def _complete_endings(self, branch: Branch, max_tokens: int) -> Iterator[Ending]:
        """The ending that a way on leads to, if it has come to the end of a text or to an ending that is known."""
        if branch.at_start:
            if branch.matcher.is_accepting():
                yield ()
            return
        ending = self.find_known(branch.matcher, max_tokens - len(branch.path))
        if ending is not None:
            yield branch.path + ending

    def _expand_level(self, level: Sequence[Branch], budget: SearchBudget, exhaustive: bool) -> list[Branch]:
        """One token further, by several ways that differ in what may follow."""
        found: dict[bytes, list[Branch]] = {}
        for branch in level:
            for token in self._tokens_to_try(branch, exhaustive):
                if not budget.spend():
                    return []
                after = self.vocabulary.advance(branch.matcher, token, at_start=branch.at_start)
                if after is not None:
                    self._add_branch(
                        found.setdefault(after.compute_bitmask(), []),
                        Branch(after, (*branch.path, token)),
                        MAX_BRANCHES_PER_MASK,
                    )
        nearest = sorted(found.values(), key=lambda alike: not alike[0].matcher.is_accepting())
        return [branch for alike in nearest for branch in alike][: None if exhaustive else MAX_BRANCHES_PER_LEVEL]

    def _add_branch(self, branches: list[Branch], new: Branch, max_branches: int) -> None:
        """Add a branch to those after which the same may follow; of too many, the last is the one with the longest token."""
        if len(branches) < max_branches:
            branches.append(new)
        elif len(self.vocabulary.inner_bytes[new.path[-1]]) > len(self.vocabulary.inner_bytes[branches[-1].path[-1]]):
            branches[-1] = new

    def _tokens_to_try(self, branch: Branch, exhaustive: bool) -> list[int]:
        """The tokens to try, by rank: all that may follow, or, where those are many, single letters and a few long ones."""
        allowed = np.flatnonzero(self.vocabulary.allowed_tokens(branch.matcher, at_start=branch.at_start))
        allowed = allowed[np.argsort(self._token_ranks[allowed], kind="stable")]
        if exhaustive or len(allowed) <= MAX_BRANCHES:
            return allowed.tolist()
        lengths = self._token_lengths[allowed]
        short = allowed[lengths <= 1] if (lengths <= 1).any() else allowed
        long = allowed[np.argpartition(-lengths, MAX_TOP_RANKED_BRANCHES // 3)[: MAX_TOP_RANKED_BRANCHES // 3]]
        few = short[MAX_TOP_RANKED_BRANCHES :: 1 + len(short) // (MAX_BRANCHES - MAX_TOP_RANKED_BRANCHES)]
        return [*short[:MAX_TOP_RANKED_BRANCHES].tolist(), *long.tolist(), *few.tolist()]

    @cached_property
    def _token_lengths(self) -> np.ndarray:
        return np.array([len(text) for text in self.vocabulary.inner_bytes])

    @cached_property
    def _token_ranks(self) -> np.ndarray:
        """Which tokens are tried before others, (V,)."""
        worst = {byte: len(CLOSING_BYTES) + (byte in OPENING_BYTES) + (byte >= 0x80) for byte in range(256)}
        rank = worst | {byte: place for place, byte in enumerate(CLOSING_BYTES)}
        return np.array([rank[text[0]] if text else len(CLOSING_BYTES) for text in self.vocabulary.inner_bytes])
