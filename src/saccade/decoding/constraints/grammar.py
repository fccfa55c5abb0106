"""Grammar-constrained decoding: allows at each step the tokens from which the grammar can be completed within the token limit."""

import math
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from saccade.decoding.constraints.completion import UNLIMITED_TOKENS, Branch, Ending, EndingSearch, SearchBudget
from saccade.decoding.constraints.matcher import Vocabulary, matcher_error
from saccade.decoding.logits_processors import CheckedProcessor, TokenHistory, check_token_ids
from saccade.errors import ResourceError, UsageError
from saccade.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher

MAX_PREFIXES_CACHED = 1024
MIN_SLACK_TOKENS = (
    64  # with more tokens left than an ending needs plus this many, only the likeliest tokens are checked
)
MAX_TOKENS_CHECKED = 8  # the number of likeliest tokens that are checked in that case
MAX_TOKENS_CHECKED_TIGHT = 128  # the number that is checked with less slack; no other tokens are allowed then
MAX_SEARCH_STEPS = 128  # tokens that searches for an ending may try per decoding step
MAX_SEARCH_STEPS_WITH_SLACK = 1_000
MAX_SEARCH_STEPS_AT_START = 4_000


@dataclass
class PrefixState:
    """The matcher after a prefix, a known ending, and known endings after some of the next tokens."""

    matcher: "LLMatcher"
    at_start: bool = False  # whether the prefix is empty
    ending: Ending | None = None
    ending_after: dict[int, Ending] = field(default_factory=dict)


class GrammarConstraint(CheckedProcessor):
    """Constrain the text to a grammar of llguidance. `stop_ids` defaults to the end token of the tokenizer.

    `max_bytes_to_end` is a bound on the bytes that complete any prefix, where one is known; `hints` are strings that a
    search for an ending would hardly guess.
    """

    description: str
    stop_ids: tuple[int, ...]
    max_bytes_to_end: float
    hints: Sequence[str]

    def __init__(
        self,
        grammar: str,
        description: str,
        tokenizer: Tokenizer,
        stop_ids: Collection[int] | None = None,
        *,
        max_bytes_to_end: float = math.inf,
        hints: Sequence[str] = (),
        character_classes: Sequence[str] = (),
    ):
        self.description, self.stop_ids, self.max_bytes_to_end, self.hints = (
            description,
            stop_ids_or_eos(tokenizer, stop_ids),
            max_bytes_to_end,
            hints,
        )
        self._grammar, self._tokenizer, self._character_classes = grammar, tokenizer, character_classes
        self._failed_searches: dict[
            bytes, int
        ] = {}  # bitmask of next tokens -> largest limit at which no ending was found
        self._prefix_states: OrderedDict[tuple[int, ...], PrefixState | None] = OrderedDict()

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary.from_tokenizer(self._tokenizer, self.stop_ids)

    @cached_property
    def _ending_search(self) -> EndingSearch:
        hints = [self._vocabulary.encode_bytes(hint.encode(), at_start=False) for hint in self.hints]
        return EndingSearch(self._vocabulary, [hint for hint in hints if hint])

    @cached_property
    def _start_state(self) -> PrefixState:
        state = PrefixState(self._vocabulary.start_matcher(self._grammar, self._character_classes), at_start=True)
        if state.matcher.is_error():
            raise self.usage_error(matcher_error(state.matcher))
        ending = self.initial_ending()
        state.ending = None if ending is None else self._ending_search.remember(ending)
        return state

    def usage_error(self, reason: str) -> UsageError:
        """The error for a grammar that llguidance refuses."""
        return UsageError(f"A text that {self.description} cannot be generated: {reason}.")

    def initial_ending(self) -> Ending | None:
        """A complete text that is known without a search."""
        return None

    def _search_from_start(self, max_tokens: int) -> Ending | None:
        """Search a complete text of at most `max_tokens` tokens."""
        start = Branch(self._start_state.matcher, (), True)
        budgets = [SearchBudget(MAX_SEARCH_STEPS_AT_START), SearchBudget(MAX_SEARCH_STEPS_AT_START)]
        for budget, exhaustive in zip(budgets, (False, True), strict=True):
            ending = self._ending_search.find(start, max_tokens, budget, exhaustive=exhaustive)
            if ending is not None:
                return ending
        if max_tokens == UNLIMITED_TOKENS and budgets[1].remaining < 0:
            raise UsageError(
                f"No text that {self.description} was found that can be generated with the tokens of this tokenizer; use a "
                "simpler or shorter constraint."
            )
        return None

    def check(self, vocab: int, max_new_tokens: int) -> None:
        check_token_ids(self.stop_ids, vocab, repr(self))
        needed = self._min_tokens(max_new_tokens)
        if needed is None:
            raise UsageError(f"No text that {self.description} can be generated with the tokens of this tokenizer.")
        if needed > max_new_tokens:
            raise UsageError(
                f"The shortest text found that {self.description} takes {needed} tokens; max_new_tokens is "
                f"{max_new_tokens}. Raise it."
            )

    def _min_tokens(self, max_new_tokens: int) -> int | None:
        """The length of a short complete text in tokens; within the limit if the search finds one."""
        state = self._start_state
        if state.ending is None or len(state.ending) > max_new_tokens:
            state.ending = (
                self._search_from_start(max_new_tokens) or state.ending or self._search_from_start(UNLIMITED_TOKENS)
            )
        return None if state.ending is None else len(state.ending)

    def __call__(self, scores: Tensor, history: TokenHistory) -> Tensor:
        values = scores.float().cpu().numpy()
        rows = [
            self._allowed_tokens(tuple(tokens), row, history.remaining_tokens(n))
            for n, (tokens, row) in enumerate(zip(history.new_tokens, values, strict=True))
        ]
        return allow_only(scores, rows, self.stop_ids)

    def _allowed_tokens(
        self, new_tokens: tuple[int, ...], scores: np.ndarray, remaining_tokens: int
    ) -> tuple[np.ndarray, bool]:
        """Which tokens may follow, (V,), and whether the text may end here."""
        state = self._state_after(new_tokens)
        if state is None:
            return np.zeros(0, bool), False
        allowed = self._vocabulary.allowed_tokens(state.matcher, at_start=state.at_start)
        is_complete = state.matcher.is_accepting()
        if not (self._vocabulary.covers_all_bytes and remaining_tokens > self.max_bytes_to_end):
            self._mask_unfinishable(state, allowed, scores, remaining_tokens)
        return allowed, is_complete

    def _mask_unfinishable(
        self, prefix_state: PrefixState, allowed: np.ndarray, scores: np.ndarray, remaining_tokens: int
    ) -> None:
        """Forbid tokens after which the text could not be completed in time. With enough slack only the likeliest tokens are
        checked; otherwise all tokens are forbidden that are not known to end in time."""
        budget = SearchBudget(
            MAX_SEARCH_STEPS if remaining_tokens <= 2 * MIN_SLACK_TOKENS else MAX_SEARCH_STEPS_WITH_SLACK
        )
        if prefix_state.ending is None or len(prefix_state.ending) > remaining_tokens:
            self._ending_search.likely_ending = ()
            prefix_state.ending = self._find_ending(prefix_state, remaining_tokens, budget)
        self._ending_search.likely_ending = prefix_state.ending or ()
        slack = (
            remaining_tokens - 1 - len(prefix_state.ending)
            if prefix_state.ending is not None
            else remaining_tokens // 4
        )
        is_tight = slack <= MIN_SLACK_TOKENS or not self._vocabulary.covers_all_bytes
        likely = _most_likely(allowed, scores, MAX_TOKENS_CHECKED_TIGHT if is_tight else MAX_TOKENS_CHECKED)
        late = [token for token in likely if not self._ends_in_time(prefix_state, token, remaining_tokens - 1, budget)]
        if is_tight:
            allowed[:] = False
            allowed[likely] = True
        allowed[late] = False
        if prefix_state.ending and len(prefix_state.ending) <= remaining_tokens:
            allowed[prefix_state.ending[0]] = True

    def _ends_in_time(self, prefix_state: PrefixState, token: int, remaining_tokens: int, budget: SearchBudget) -> bool:
        """Whether an ending after this token is known or found that has at most `remaining_tokens` tokens."""
        if token in prefix_state.ending_after and len(prefix_state.ending_after[token]) <= remaining_tokens:
            return True
        before = (self._vocabulary.to_guidance_id(token, at_start=prefix_state.at_start),)
        ending = self._ending_search.find_known(prefix_state.matcher, remaining_tokens, before)
        if ending is None:
            ending = self._find_ending(prefix_state, remaining_tokens, budget, token)
        if ending is not None:
            prefix_state.ending_after[token] = ending
        return ending is not None

    def _find_ending(
        self, prefix_state: PrefixState, remaining_tokens: int, budget: SearchBudget, *tokens: int
    ) -> Ending | None:
        """Search an ending from this prefix, or after further tokens, within the remaining budget."""
        if budget.remaining <= 0:
            return None
        try:
            matcher = (
                self._vocabulary.advance(prefix_state.matcher, *tokens, at_start=prefix_state.at_start)
                if tokens
                else prefix_state.matcher
            )
            if matcher is None or self._failed_searches.get(mask := matcher.compute_bitmask(), -1) >= remaining_tokens:
                return None
            ending = self._ending_search.find(
                Branch(matcher, (), prefix_state.at_start and not tokens), remaining_tokens, budget
            )
        except ResourceError:  # a limit of llguidance was hit in the search; the current prefix is still valid
            return None
        if ending is None and len(self._failed_searches) < MAX_PREFIXES_CACHED:
            self._failed_searches[mask] = remaining_tokens
        return ending

    def _state_after(self, new_tokens: tuple[int, ...]) -> PrefixState | None:
        """The state after these tokens, from the cache or from its longest cached prefix; None if the grammar forbids them."""
        cached = len(new_tokens)
        while cached and new_tokens[:cached] not in self._prefix_states:
            cached -= 1
        state = self._prefix_states[new_tokens[:cached]] if cached else self._start_state
        for end in range(cached + 1, len(new_tokens) + 1):
            state = self._advance(state, new_tokens[end - 1])
            self._prefix_states[new_tokens[:end]] = state
        if new_tokens:
            self._prefix_states.move_to_end(new_tokens)
        while len(self._prefix_states) > MAX_PREFIXES_CACHED:
            self._prefix_states.popitem(last=False)
        return state

    def _advance(self, prefix_state: PrefixState | None, token: int) -> PrefixState | None:
        matcher = (
            None
            if prefix_state is None
            else self._vocabulary.advance(prefix_state.matcher, token, at_start=prefix_state.at_start)
        )
        if prefix_state is None or matcher is None:
            return None
        ending = prefix_state.ending_after.get(token)
        if ending is None and prefix_state.ending and prefix_state.ending[0] == token:
            ending = prefix_state.ending[1:]
        return PrefixState(matcher, ending=ending)


def _most_likely(allowed: np.ndarray, scores: np.ndarray, count: int) -> list[int]:
    """The allowed tokens with the highest scores, best first; tokens that other processors forbid are left out."""
    tokens = np.flatnonzero(allowed[: len(scores)])
    best = torch.from_numpy(scores[tokens]).topk(min(count, len(tokens)))  # twice as fast as numpy's
    pairs = zip(tokens[best.indices.numpy()].tolist(), best.values.tolist(), strict=True)
    return [token for token, value in pairs if value > -math.inf]


def stop_ids_or_eos(tokenizer: Tokenizer, stop_ids: Collection[int] | None) -> tuple[int, ...]:
    """The given stop tokens, or else the end token of the tokenizer; a constraint needs at least one."""
    ids = stop_ids if stop_ids is not None else () if tokenizer.eos_id is None else (tokenizer.eos_id,)
    if not ids:
        raise UsageError(
            "The tokenizer has no end-of-sequence token, which constrained decoding needs; name stop tokens in `stop_ids`."
        )
    return tuple(ids)


def allow_only(scores: Tensor, rows: Sequence[tuple[np.ndarray, bool]], stop_ids: Sequence[int]) -> Tensor:
    """Set the scores of all tokens but the allowed ones to -inf; stop tokens are allowed in rows whose text is complete."""
    vocab = scores.size(-1)
    allowed = np.zeros((len(rows), vocab), bool)
    for number, (tokens, is_complete) in enumerate(rows):
        allowed[number, : len(tokens)] = tokens[:vocab]
        allowed[number, list(stop_ids)] = is_complete
    return scores.masked_fill(~torch.from_numpy(allowed).to(scores.device), -math.inf)
