"""Texts of a grammar: at each step the tokens from which a whole text can be reached with what is left of the limit."""

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

MAX_PREFIXES_CACHED = 1024  # beginnings that are remembered
MIN_SLACK_TOKENS = (
    64  # tokens beyond those that end a text: with more of them left, only the likeliest tokens are looked at
)
MAX_TOKENS_CHECKED = 8
MAX_TOKENS_CHECKED_TIGHT = (
    128  # tokens that are looked at, the likeliest first, where there is less room; no others are allowed then
)
MAX_SEARCH_STEPS = 128  # tokens that searches for an ending may try at each step
MAX_SEARCH_STEPS_WITH_SLACK = 1_000
MAX_SEARCH_STEPS_AT_START = 4_000


@dataclass
class PrefixState:
    """Where a text stands, how it could end, and how after some of the tokens that may follow."""

    matcher: "LLMatcher"
    at_start: bool = False  # nothing is written yet
    ending: Ending | None = None
    ending_after: dict[int, Ending] = field(default_factory=dict)


class GrammarConstraint(CheckedProcessor):
    """Texts of a grammar of llguidance; `stop_ids` are the stop tokens, the tokenizer's own if none are given.

    `max_bytes_to_end` is the most bytes that any beginning is away from the end of a text, where that is known; `hints`
    are pieces of text that a search for an ending would hardly guess.
    """

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
        ] = {}  # what may follow where no ending was found, and within how many tokens
        self._prefix_states: OrderedDict[tuple[int, ...], PrefixState | None] = OrderedDict()

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary.from_tokenizer(self._tokenizer, self.stop_ids)

    @cached_property
    def _ending_search(self) -> EndingSearch:
        spelled = [self._vocabulary.encode_bytes(hint.encode(), at_start=False) for hint in self.hints]
        return EndingSearch(self._vocabulary, [hint for hint in spelled if hint])

    @cached_property
    def _start_state(self) -> PrefixState:
        place = PrefixState(self._vocabulary.start_matcher(self._grammar, self._character_classes), at_start=True)
        if place.matcher.is_error():
            raise self.usage_error(matcher_error(place.matcher))
        guess = self.initial_ending()
        place.ending = None if guess is None else self._ending_search.remember(guess)
        return place

    def usage_error(self, reason: str) -> UsageError:
        """What to say of a grammar that llguidance does not take."""
        return UsageError(f"A text that {self.description} cannot be asked for: {reason}.")

    def initial_ending(self) -> Ending | None:
        """A text that is known without a search."""
        return None

    def _search_from_start(self, max_tokens: int) -> Ending | None:
        """A text of at most so many tokens."""
        begin = Branch(self._start_state.matcher, (), True)
        efforts = [SearchBudget(MAX_SEARCH_STEPS_AT_START), SearchBudget(MAX_SEARCH_STEPS_AT_START)]
        for effort, every in zip(efforts, (False, True), strict=True):
            found = self._ending_search.find(begin, max_tokens, effort, exhaustive=every)
            if found is not None:
                return found
        if max_tokens == UNLIMITED_TOKENS and efforts[1].remaining < 0:
            raise UsageError(
                f"No text that {self.description} was found that can be written with the tokens of this tokenizer; "
                "ask for something "
                "simpler, or shorter."
            )
        return None

    def check(self, vocab: int, max_new_tokens: int) -> None:
        check_token_ids(self.stop_ids, vocab, repr(self))
        needed = self._min_tokens(max_new_tokens)
        if needed is None:
            raise UsageError(f"No text that {self.description} can be written with the tokens of this tokenizer.")
        if needed > max_new_tokens:
            raise UsageError(
                f"The shortest text found that {self.description} takes {needed} tokens, and at most "
                f"{max_new_tokens} are written; "
                "raise the limit."
            )

    def _min_tokens(self, max_new_tokens: int) -> int | None:
        """The tokens of a short text; one within the limit is searched for, and any at all if none is known."""
        place = self._start_state
        if place.ending is None or len(place.ending) > max_new_tokens:
            place.ending = (
                self._search_from_start(max_new_tokens) or place.ending or self._search_from_start(UNLIMITED_TOKENS)
            )
        return None if place.ending is None else len(place.ending)

    def __call__(self, scores: Tensor, history: TokenHistory) -> Tensor:
        values = scores.float().cpu().numpy()
        rows = [
            self._allowed_tokens(tuple(written), row, history.remaining_tokens(n))
            for n, (written, row) in enumerate(zip(history.new_tokens, values, strict=True))
        ]
        return allow_only(scores, rows, self.stop_ids)

    def _allowed_tokens(
        self, new_tokens: tuple[int, ...], scores: np.ndarray, remaining_tokens: int
    ) -> tuple[np.ndarray, bool]:
        """Which tokens may follow, (V,), and whether the text may end here."""
        place = self._state_after(new_tokens)
        if place is None:
            return np.zeros(0, bool), False
        allowed = self._vocabulary.allowed_tokens(place.matcher, at_start=place.at_start)
        whole = place.matcher.is_accepting()
        if not (self._vocabulary.covers_all_bytes and remaining_tokens > self.max_bytes_to_end):
            self._mask_unfinishable(place, allowed, scores, remaining_tokens)
        return allowed, whole

    def _mask_unfinishable(
        self, prefix_state: PrefixState, allowed: np.ndarray, scores: np.ndarray, remaining_tokens: int
    ) -> None:
        """Take away what could not be finished: where there is room, of the likeliest tokens; otherwise all that is not
        known to end in time."""
        effort = SearchBudget(
            MAX_SEARCH_STEPS if remaining_tokens <= 2 * MIN_SLACK_TOKENS else MAX_SEARCH_STEPS_WITH_SLACK
        )
        if prefix_state.ending is None or len(prefix_state.ending) > remaining_tokens:
            self._ending_search.likely_ending = ()
            prefix_state.ending = self._find_ending(prefix_state, remaining_tokens, effort)
        self._ending_search.likely_ending = prefix_state.ending or ()
        slack = (
            remaining_tokens - 1 - len(prefix_state.ending)
            if prefix_state.ending is not None
            else remaining_tokens // 4
        )
        tight = slack <= MIN_SLACK_TOKENS or not self._vocabulary.covers_all_bytes
        likely = _most_likely(allowed, scores, MAX_TOKENS_CHECKED_TIGHT if tight else MAX_TOKENS_CHECKED)
        late = [token for token in likely if not self._ends_in_time(prefix_state, token, remaining_tokens - 1, effort)]
        if tight:
            allowed[:] = False
            allowed[likely] = True
        allowed[late] = False
        if prefix_state.ending and len(prefix_state.ending) <= remaining_tokens:
            allowed[prefix_state.ending[0]] = True

    def _ends_in_time(self, prefix_state: PrefixState, token: int, remaining_tokens: int, budget: SearchBudget) -> bool:
        """Whether a text is known that goes on with this token and ends within so many more."""
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
        """An ending from here on, or after a token, if one is found with what effort is left."""
        if budget.remaining <= 0:
            return None
        try:
            after = (
                self._vocabulary.advance(prefix_state.matcher, *tokens, at_start=prefix_state.at_start)
                if tokens
                else prefix_state.matcher
            )
            if (
                after is None
                or self._failed_searches.get(what_follows := after.compute_bitmask(), -1) >= remaining_tokens
            ):
                return None
            found = self._ending_search.find(
                Branch(after, (), prefix_state.at_start and not tokens), remaining_tokens, budget
            )
        except ResourceError:  # somewhere beyond; what is allowed here can be followed
            return None
        if found is None and len(self._failed_searches) < MAX_PREFIXES_CACHED:
            self._failed_searches[what_follows] = remaining_tokens
        return found

    def _state_after(self, new_tokens: tuple[int, ...]) -> PrefixState | None:
        """Where a text stands after these tokens; None where the grammar has no such text."""
        done = len(new_tokens)
        while done and new_tokens[:done] not in self._prefix_states:
            done -= 1
        place = self._prefix_states[new_tokens[:done]] if done else self._start_state
        for end in range(done + 1, len(new_tokens) + 1):
            place = self._advance(place, new_tokens[end - 1])
            self._prefix_states[new_tokens[:end]] = place
        if new_tokens:
            self._prefix_states.move_to_end(new_tokens)
        while len(self._prefix_states) > MAX_PREFIXES_CACHED:
            self._prefix_states.popitem(last=False)
        return place

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
    """Of the tokens that are allowed those with the highest scores, the best first; what other rules forbid is left out."""
    tokens = np.flatnonzero(allowed[: len(scores)])
    best = torch.from_numpy(scores[tokens]).topk(min(count, len(tokens)))  # twice as fast as numpy's
    found = zip(tokens[best.indices.numpy()].tolist(), best.values.tolist(), strict=True)
    return [token for token, value in found if value > -math.inf]


def stop_ids_or_eos(tokenizer: Tokenizer, stop_ids: Collection[int] | None) -> tuple[int, ...]:
    """The tokens that end a text; there has to be one."""
    found = stop_ids if stop_ids is not None else () if tokenizer.eos_id is None else (tokenizer.eos_id,)
    if not found:
        raise UsageError(
            "The tokenizer has no token that ends a text, and what is allowed has to end; name one in `stop_ids`."
        )
    return tuple(found)


def allow_only(scores: Tensor, rows: Sequence[tuple[np.ndarray, bool]], stop_ids: Sequence[int]) -> Tensor:
    """The scores of what each row may write, and of the ends where its text is whole; -inf everywhere else."""
    vocab = scores.size(-1)
    allowed = np.zeros((len(rows), vocab), bool)
    for number, (tokens, whole) in enumerate(rows):
        allowed[number, : len(tokens)] = tokens[:vocab]
        allowed[number, list(stop_ids)] = whole
    return scores.masked_fill(~torch.from_numpy(allowed).to(scores.device), -math.inf)
