"""Search for endings: the few tokens that complete a constrained text from any prefix, within the token limit.

llguidance tells which tokens may follow, but not how many are needed to reach the end, so an ending is searched for. Many
prefixes end alike (a quotation mark, a bracket): known endings are tried first, at about a microsecond each, and a search
stops as soon as it reaches one.
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

UNLIMITED_TOKENS = 100_000  # stands for no token limit
MAX_PREFIX_TOKENS_CHECKED = 3  # first tokens of an ending, which rule out most wrong endings
MAX_TOKENS_SKIPPED = 16  # first tokens of the likely ending that may be skipped
MAX_ENDINGS = 128  # known endings that are kept
MAX_BRANCHES = 48  # tokens that are tried after one prefix
MAX_TOP_RANKED_BRANCHES = 12  # of them, those with the best rank, if there are more
MAX_BRANCHES_PER_LEVEL = 24  # prefixes of one length that are expanded
MAX_BRANCHES_PER_MASK = 2  # of them, those that allow the same next tokens
CLOSING_BYTES = b'}]0"a1nt-'  # bytes that often end a value, or begin a short one, best first
OPENING_BYTES = b"[{"
MAX_CYCLE_TOKENS = 4  # distance in tokens at which a cycle is detected: a UTF-8 character has at most four bytes

Ending = tuple[int, ...]


@dataclass
class SearchBudget:
    """The number of search steps that remain."""

    remaining: int

    def spend(self) -> bool:
        self.remaining -= 1
        return self.remaining >= 0


@dataclass(frozen=True)
class Branch:
    """A path of tokens from the start of a search, and the matcher after it."""

    matcher: "LLMatcher"
    path: Ending
    at_start: bool = False  # whether the text is still empty


@dataclass
class EndingSearch:
    """The known endings of one constraint, and the search for new ones."""

    vocabulary: Vocabulary
    hints: Sequence[Ending] = ()  # strings that the grammar requires and that a search would hardly guess
    likely_ending: Ending = ()  # an ending of the current text; its alternatives mostly end in the same way
    known_endings: dict[Ending, None] = field(default_factory=lambda: {(): None})  # the most recently used is last

    def remember(self, ending: Ending) -> Ending:
        """Add an ending and all its suffixes to the known endings."""
        for start in range(min(len(ending), MAX_ENDINGS // 2), -1, -1):
            self.known_endings.pop(ending[start:], None)
            self.known_endings[ending[start:]] = None
        while len(self.known_endings) > MAX_ENDINGS:
            del self.known_endings[next(iter(self.known_endings))]
        return ending

    def find_known(self, matcher: "LLMatcher", max_tokens: int, prefix: Ending = ()) -> Ending | None:
        """A known ending of at most `max_tokens` tokens that completes the text after `prefix`."""
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
        """Whether an ending completes the text; long wrong ones are mostly ruled out by their first tokens."""
        head = prefix + ending[:MAX_PREFIX_TOKENS_CHECKED]
        if len(ending) > MAX_PREFIX_TOKENS_CHECKED and matcher.validate_tokens(list(head)) < len(head):
            return False
        return self.vocabulary.is_complete_after(matcher, prefix + ending)

    def find(self, start: Branch, max_tokens: int, budget: SearchBudget, *, exhaustive: bool = False) -> Ending | None:
        """Search an ending of at most `max_tokens` tokens: the shortest if it is short, otherwise any."""
        ending = self._search_breadth_first(start, max_tokens, SearchBudget(budget.remaining // 2), exhaustive)
        return ending if ending is not None else self._search_best_first(start, max_tokens, budget, exhaustive)

    def _search_breadth_first(
        self, start: Branch, max_tokens: int, budget: SearchBudget, exhaustive: bool
    ) -> Ending | None:
        """Breadth-first search, which finds the shortest ending, or nearly so."""
        level = [start]
        while level:
            endings = [path for branch in level for path in self._complete_endings(branch, max_tokens)]
            if endings:
                return self.remember(min(endings, key=len))
            if len(level[0].path) >= max_tokens:
                return None
            level = self._expand_level(level, budget, exhaustive)
        return None

    def _search_best_first(
        self, start: Branch, max_tokens: int, budget: SearchBudget, exhaustive: bool
    ) -> Ending | None:
        """Best-first search: paths that make progress come before those that do not (more letters of a string, a space)."""
        order = count()
        todo: list[tuple[int, int, int, Branch, tuple[bytes, ...]]] = [(0, 0, next(order), start, ())]
        while todo:
            detours, _, _, branch, recent_masks = heappop(todo)
            for path in self._complete_endings(branch, max_tokens):
                return self.remember(path)
            recent_masks = (*recent_masks[-MAX_CYCLE_TOKENS:], branch.matcher.compute_bitmask())
            by_mask: dict[bytes, list[Branch]] = {}
            for tokens in self._next_paths(branch, exhaustive) if len(branch.path) < max_tokens else ():
                if not budget.spend():
                    return None
                matcher = self.vocabulary.advance(branch.matcher, *tokens, at_start=branch.at_start)
                if matcher is not None:
                    self._add_branch(
                        by_mask.setdefault(matcher.compute_bitmask(), []), Branch(matcher, (*branch.path, *tokens)), 1
                    )
            for mask, (new,) in by_mask.items():
                is_space = self.vocabulary.inner_bytes[new.path[-1]].isspace()
                is_detour = len(by_mask) > 1 and (mask in recent_masks or is_space)
                heappush(todo, (detours + is_detour, -len(new.path), next(order), new, recent_masks))
        return None

    def _next_paths(self, branch: Branch, exhaustive: bool) -> list[Ending]:
        """The continuations of a branch that are tried: hints of the grammar, and single tokens."""
        hints = (
            []
            if branch.at_start
            else [hint for hint in self.hints if branch.matcher.validate_tokens(list(hint)) == len(hint)]
        )
        tokens = self._tokens_to_try(branch, exhaustive)
        tried = (
            tokens
            if exhaustive or len(tokens) <= MAX_BRANCHES // 2
            else tokens[: MAX_TOP_RANKED_BRANCHES + MAX_TOP_RANKED_BRANCHES // 3]
        )
        return [*hints, *((token,) for token in tried)]

    def _complete_endings(self, branch: Branch, max_tokens: int) -> Iterator[Ending]:
        """The path of a branch with its ending, if the text is complete there or a known ending completes it."""
        if branch.at_start:
            if branch.matcher.is_accepting():
                yield ()
            return
        ending = self.find_known(branch.matcher, max_tokens - len(branch.path))
        if ending is not None:
            yield branch.path + ending

    def _expand_level(self, level: Sequence[Branch], budget: SearchBudget, exhaustive: bool) -> list[Branch]:
        """Extend all branches by one token, and keep branches that differ in the tokens that may follow."""
        by_mask: dict[bytes, list[Branch]] = {}
        for branch in level:
            for token in self._tokens_to_try(branch, exhaustive):
                if not budget.spend():
                    return []
                matcher = self.vocabulary.advance(branch.matcher, token, at_start=branch.at_start)
                if matcher is not None:
                    self._add_branch(
                        by_mask.setdefault(matcher.compute_bitmask(), []),
                        Branch(matcher, (*branch.path, token)),
                        MAX_BRANCHES_PER_MASK,
                    )
        complete_first = sorted(by_mask.values(), key=lambda branches: not branches[0].matcher.is_accepting())
        limit = None if exhaustive else MAX_BRANCHES_PER_LEVEL
        return [branch for branches in complete_first for branch in branches][:limit]

    def _add_branch(self, branches: list[Branch], new: Branch, max_branches: int) -> None:
        """Add a branch to those with the same next tokens; beyond the maximum, it replaces the last if its token is longer."""
        if len(branches) < max_branches:
            branches.append(new)
        elif len(self.vocabulary.inner_bytes[new.path[-1]]) > len(self.vocabulary.inner_bytes[branches[-1].path[-1]]):
            branches[-1] = new

    def _tokens_to_try(self, branch: Branch, exhaustive: bool) -> list[int]:
        """The allowed tokens by rank; if they are many, single letters and a few long tokens."""
        allowed = np.flatnonzero(self.vocabulary.allowed_tokens(branch.matcher, at_start=branch.at_start))
        allowed = allowed[np.argsort(self._token_ranks[allowed], kind="stable")]
        if exhaustive or len(allowed) <= MAX_BRANCHES:
            return allowed.tolist()
        lengths = self._token_lengths[allowed]
        short = allowed[lengths <= 1] if (lengths <= 1).any() else allowed
        long = allowed[np.argpartition(-lengths, MAX_TOP_RANKED_BRANCHES // 3)[: MAX_TOP_RANKED_BRANCHES // 3]]
        spread = short[MAX_TOP_RANKED_BRANCHES :: 1 + len(short) // (MAX_BRANCHES - MAX_TOP_RANKED_BRANCHES)]
        return [*short[:MAX_TOP_RANKED_BRANCHES].tolist(), *long.tolist(), *spread.tolist()]

    @cached_property
    def _token_lengths(self) -> np.ndarray:
        return np.array([len(text) for text in self.vocabulary.inner_bytes])

    @cached_property
    def _token_ranks(self) -> np.ndarray:
        """The rank of each token by its first byte, (V,); lower ranks are tried first."""
        default = {byte: len(CLOSING_BYTES) + (byte in OPENING_BYTES) + (byte >= 0x80) for byte in range(256)}
        rank = default | {byte: position for position, byte in enumerate(CLOSING_BYTES)}
        return np.array([rank[text[0]] if text else len(CLOSING_BYTES) for text in self.vocabulary.inner_bytes])
