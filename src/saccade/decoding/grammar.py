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

from saccade.decoding.completion import MANY, Branch, Effort, Ending, Endings
from saccade.decoding.matcher import Vocabulary, explain
from saccade.decoding.rules import Rule, Sofar, known
from saccade.errors import ResourceError, UsageError
from saccade.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher

KEPT = 1024  # beginnings that are remembered
ROOM = 64  # tokens beyond those that end a text: with more of them left, only the likeliest tokens are looked at
LIKELIEST = 8
CHECKED = 128  # tokens that are looked at, the likeliest first, where there is less room; no others are allowed then
EFFORT = 128  # tokens that searches for an ending may try at each step
EFFORT_WITH_ROOM = 1_000
EFFORT_AT_FIRST = 4_000


@dataclass
class Place:
    """Where a text stands, how it could end, and how after some of the tokens that may follow."""

    matcher: "LLMatcher"
    first: bool = False  # nothing is written yet
    ending: Ending | None = None
    after: dict[int, Ending] = field(default_factory=dict)


class Grammar(Rule):
    """Texts of a grammar of llguidance; `ends` are the stop tokens, the tokenizer's own if none are given.

    `reach` is the most bytes that any beginning is away from the end of a text, where that is known; `hints` are pieces of
    text that a search for an ending would hardly guess.
    """

    def __init__(
        self,
        grammar: str,
        what: str,
        tokenizer: Tokenizer,
        ends: Collection[int] | None = None,
        *,
        reach: float = math.inf,
        hints: Sequence[str] = (),
        classes: Sequence[str] = (),
    ):
        self.what, self.ends, self.reach, self.hints = what, ends_of(tokenizer, ends), reach, hints
        self._grammar, self._tokenizer, self._classes = grammar, tokenizer, classes
        self._in_vain: dict[bytes, int] = {}  # what may follow where no ending was found, and within how many tokens
        self._places: OrderedDict[tuple[int, ...], Place | None] = OrderedDict()

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary.of(self._tokenizer, self.ends)

    @cached_property
    def _endings(self) -> Endings:
        spelled = [self._vocabulary.spell(hint.encode(), first=False) for hint in self.hints]
        return Endings(self._vocabulary, [hint for hint in spelled if hint])

    @cached_property
    def _start(self) -> Place:
        place = Place(self._vocabulary.start(self._grammar, self._classes), first=True)
        if place.matcher.is_error():
            raise self.refuse(explain(place.matcher))
        guess = self.first_guess()
        place.ending = None if guess is None else self._endings.learn(guess)
        return place

    def refuse(self, why: str) -> UsageError:
        """What to say of a grammar that llguidance does not take."""
        return UsageError(f"A text that {self.what} cannot be asked for: {why}.")

    def first_guess(self) -> Ending | None:
        """A text that is known without a search."""
        return None

    def _search(self, most: int) -> Ending | None:
        """A text of at most so many tokens."""
        begin = Branch(self._start.matcher, (), True)
        efforts = [Effort(EFFORT_AT_FIRST), Effort(EFFORT_AT_FIRST)]
        for effort, every in zip(efforts, (False, True), strict=True):
            found = self._endings.find(begin, most, effort, every=every)
            if found is not None:
                return found
        if most == MANY and efforts[1].left < 0:
            raise UsageError(
                f"No text that {self.what} was found that can be written with the tokens of this tokenizer; ask for something "
                "simpler, or shorter."
            )
        return None

    def check(self, vocab: int, limit: int) -> None:
        known(self.ends, vocab, repr(self))
        needed = self._needed(limit)
        if needed is None:
            raise UsageError(f"No text that {self.what} can be written with the tokens of this tokenizer.")
        if needed > limit:
            raise UsageError(
                f"The shortest text found that {self.what} takes {needed} tokens, and at most {limit} are written; "
                "raise the limit."
            )

    def _needed(self, limit: int) -> int | None:
        """The tokens of a short text; one within the limit is searched for, and any at all if none is known."""
        place = self._start
        if place.ending is None or len(place.ending) > limit:
            place.ending = self._search(limit) or place.ending or self._search(MANY)
        return None if place.ending is None else len(place.ending)

    def __call__(self, scores: Tensor, sofar: Sofar) -> Tensor:
        values = scores.float().cpu().numpy()
        rows = [
            self._row(tuple(written), row, sofar.left(n))
            for n, (written, row) in enumerate(zip(sofar.written, values, strict=True))
        ]
        return allow_only(scores, rows, self.ends)

    def _row(self, written: tuple[int, ...], scores: np.ndarray, left: int) -> tuple[np.ndarray, bool]:
        """Which tokens may follow, (V,), and whether the text may end here."""
        place = self._place(written)
        if place is None:
            return np.zeros(0, bool), False
        allowed = self._vocabulary.allowed(place.matcher, first=place.first)
        whole = place.matcher.is_accepting()
        if not (self._vocabulary.complete and left > self.reach):
            self._steer(place, allowed, scores, left)
        return allowed, whole

    def _steer(self, place: Place, allowed: np.ndarray, scores: np.ndarray, left: int) -> None:
        """Take away what could not be finished: where there is room, of the likeliest tokens; otherwise all that is not
        known to end in time."""
        effort = Effort(EFFORT if left <= 2 * ROOM else EFFORT_WITH_ROOM)
        if place.ending is None or len(place.ending) > left:
            self._endings.near = ()
            place.ending = self._ending(place, left, effort)
        self._endings.near = place.ending or ()
        slack = left - 1 - len(place.ending) if place.ending is not None else left // 4
        tight = slack <= ROOM or not self._vocabulary.complete
        likely = _likeliest(allowed, scores, CHECKED if tight else LIKELIEST)
        late = [token for token in likely if not self._ends_in_time(place, token, left - 1, effort)]
        if tight:
            allowed[:] = False
            allowed[likely] = True
        allowed[late] = False
        if place.ending and len(place.ending) <= left:
            allowed[place.ending[0]] = True

    def _ends_in_time(self, place: Place, token: int, left: int, effort: Effort) -> bool:
        """Whether a text is known that goes on with this token and ends within so many more."""
        if token in place.after and len(place.after[token]) <= left:
            return True
        before = (self._vocabulary.number(token, first=place.first),)
        ending = self._endings.recall(place.matcher, left, before)
        if ending is None:
            ending = self._ending(place, left, effort, token)
        if ending is not None:
            place.after[token] = ending
        return ending is not None

    def _ending(self, place: Place, left: int, effort: Effort, *tokens: int) -> Ending | None:
        """An ending from here on, or after a token, if one is found with what effort is left."""
        if effort.left <= 0:
            return None
        try:
            after = self._vocabulary.then(place.matcher, *tokens, first=place.first) if tokens else place.matcher
            if after is None or self._in_vain.get(what_follows := after.compute_bitmask(), -1) >= left:
                return None
            found = self._endings.find(Branch(after, (), place.first and not tokens), left, effort)
        except ResourceError:  # somewhere beyond; what is allowed here can be followed
            return None
        if found is None and len(self._in_vain) < KEPT:
            self._in_vain[what_follows] = left
        return found

    def _place(self, written: tuple[int, ...]) -> Place | None:
        """Where a text stands after these tokens; None where the grammar has no such text."""
        done = len(written)
        while done and written[:done] not in self._places:
            done -= 1
        place = self._places[written[:done]] if done else self._start
        for end in range(done + 1, len(written) + 1):
            place = self._then(place, written[end - 1])
            self._places[written[:end]] = place
        if written:
            self._places.move_to_end(written)
        while len(self._places) > KEPT:
            self._places.popitem(last=False)
        return place

    def _then(self, place: Place | None, token: int) -> Place | None:
        matcher = None if place is None else self._vocabulary.then(place.matcher, token, first=place.first)
        if place is None or matcher is None:
            return None
        ending = place.after.get(token)
        if ending is None and place.ending and place.ending[0] == token:
            ending = place.ending[1:]
        return Place(matcher, ending=ending)


def _likeliest(allowed: np.ndarray, scores: np.ndarray, count: int) -> list[int]:
    """Of the tokens that are allowed those with the highest scores, the best first; what other rules forbid is left out."""
    tokens = np.flatnonzero(allowed[: len(scores)])
    best = torch.from_numpy(scores[tokens]).topk(min(count, len(tokens)))  # twice as fast as numpy's
    found = zip(tokens[best.indices.numpy()].tolist(), best.values.tolist(), strict=True)
    return [token for token, value in found if value > -math.inf]


def ends_of(tokenizer: Tokenizer, ends: Collection[int] | None) -> tuple[int, ...]:
    """The tokens that end a text; there has to be one."""
    found = ends if ends is not None else () if tokenizer.end is None else (tokenizer.end,)
    if not found:
        raise UsageError(
            "The tokenizer has no token that ends a text, and what is allowed has to end; name one in `ends`."
        )
    return tuple(found)


def allow_only(scores: Tensor, rows: Sequence[tuple[np.ndarray, bool]], ends: Sequence[int]) -> Tensor:
    """The scores of what each row may write, and of the ends where its text is whole; -inf everywhere else."""
    vocab = scores.size(-1)
    allowed = np.zeros((len(rows), vocab), bool)
    for number, (tokens, whole) in enumerate(rows):
        allowed[number, : len(tokens)] = tokens[:vocab]
        allowed[number, list(ends)] = whole
    return scores.masked_fill(~torch.from_numpy(allowed).to(scores.device), -math.inf)
