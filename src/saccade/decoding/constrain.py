"""Only what is allowed: texts that match an expression, or one of a list of texts.

    generate(model, batch, stop=tokenizer.end, limit=64, rules=[Matching(r"\\d{4}-\\d\\d-\\d\\d", tokenizer)])
    generate(model, batch, stop=tokenizer.end, limit=64, rules=[Among.texts(["yes", "no"], tokenizer)])

A token is allowed if what stands there and the token begin a text that is allowed, and if that text can still be finished
with the tokens that are left. The stop token is allowed only when the text is whole. So what is written always keeps to the
rule, also when the limit cuts it off; if that is impossible from the outset, it is an error before anything is written.
The text is that of the written tokens alone, without the prompt.
"""

import math
from collections import deque
from collections.abc import Collection, Sequence
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from saccade.decoding.automaton import Automaton
from saccade.decoding.rules import Rule, Sofar, known
from saccade.decoding.spelling import Spelling, spelling
from saccade.errors import UsageError
from saccade.text.tokenizer import Tokenizer

FAR = np.iinfo(np.int32).max  # tokens to a full match, where there is no way
KEPT = 128  # states whose tokens are remembered; with 50,000 tokens each takes 0.2 MB


class Matching(Rule):
    """Texts that match a regular expression, from the first letter to the last; `expression` says what is read.

    `ends` are the stop tokens, the tokenizer's own if none are given.
    """

    def __init__(self, expression: str, tokenizer: Tokenizer, ends: Collection[int] | None = None):
        self.expression = expression
        self.ends = _ends(tokenizer, ends)
        self._first, self._later = spelling(tokenizer)
        self._machine = Automaton(expression)
        self._letters = _Distance(self._machine, self._later.short)
        self._after = lru_cache(KEPT)(self._all_after)

    def __repr__(self) -> str:
        return f"Matching({self.expression!r})"

    @cached_property
    def _tokens(self) -> "_Distance":
        """Exact, and dear; asked for only where writing letter by letter would take too long, or cannot be."""
        return _Distance(self._machine, self._later)

    def check(self, vocab: int, limit: int) -> None:
        known(self.ends, vocab, repr(self))
        if self._machine.full(self._machine.start) or self._needed(self._letters) <= limit:
            return
        needed = self._needed(self._tokens)
        if needed > FAR:
            raise UsageError(
                f"No text that matches {self.expression!r} can be written with the tokens of this tokenizer."
            )
        if needed > limit:
            raise UsageError(
                f"The shortest text that matches {self.expression!r} takes {needed} tokens, and at most {limit} are written; "
                "raise the limit."
            )

    def __call__(self, scores: Tensor, sofar: Sofar) -> Tensor:
        rows = [self._allowed(written, sofar.left(row)) for row, written in enumerate(sofar.written)]
        return _only(scores, rows, self.ends)

    def _allowed(self, written: Sequence[int], left: int) -> tuple[np.ndarray, bool]:
        """Which tokens may follow, (V,), and whether the text may end here."""
        state = self._machine.start
        for number, token in enumerate(written):
            after = self._after(state, number == 0)
            state = int(after[token]) if token < len(after) else 0
        after, whole = self._after(state, not written), self._machine.full(state)
        needed = self._letters(after)
        allowed = needed < left
        if bool(((needed == FAR) & (after != 0)).any()) or not (whole or bool(allowed.any())):
            allowed = self._tokens(after) < left
        return allowed, whole

    def _all_after(self, state: int, first: bool) -> np.ndarray:
        """The state after each token of the vocabulary, (V,)."""
        return (self._first if first else self._later).run(self._machine, state)

    def _needed(self, distance: "_Distance") -> int:
        return 1 + int(distance(self._after(self._machine.start, True)).min(initial=FAR))


class _Distance:
    """How many tokens of a vocabulary a state needs at least until the text matches."""

    def __init__(self, machine: Automaton, vocabulary: Spelling):
        self.machine, self.vocabulary = machine, vocabulary
        self._near = self._from_places()
        self._far = np.zeros(0, np.int64)  # of each state that was asked for

    def __call__(self, states: np.ndarray) -> np.ndarray:
        new = range(len(self._far), len(self.machine))
        if new:
            sets = [self.machine.set_of(state) for state in new]
            far = [min((self._near[place] for place in places), default=FAR) for places in sets]
            self._far = np.concatenate([self._far, np.array(far, np.int64)])
        return self._far[states]

    def _from_places(self) -> dict[int, int]:
        """From each place of the expression to its end, searched backwards from there."""
        places = self.machine.places
        before: dict[int, list[int]] = {}
        for place in places.standing:
            ends = np.unique(self.vocabulary.run(self.machine, self.machine.state(frozenset([place]))))
            for other in frozenset().union(*(self.machine.set_of(int(end)) for end in ends)):
                before.setdefault(other, []).append(place)
        near = dict.fromkeys(places.standing, FAR)
        near[places.end], todo = 0, deque([places.end])
        while todo:
            here = todo.popleft()
            for place in before.get(here, ()):
                if near[place] == FAR:
                    near[place] = near[here] + 1
                    todo.append(place)
        return near


class Among(Rule):
    """One of these rows of tokens, to its end.

    >>> rule = Among([[1, 2], [1, 3, 3], [4]], ends=[0])
    >>> rule(torch.zeros(1, 5), Sofar([[7]], [[1]], limit=3))
    tensor([[-inf, -inf, 0., 0., -inf]])
    """

    def __init__(self, rows: Sequence[Sequence[int]], ends: Collection[int]):
        if not rows:
            raise UsageError(
                "The list of allowed continuations is empty, so nothing could be written; give at least one."
            )
        if not ends:
            raise UsageError("A list of allowed continuations needs the tokens that end a text; got none.")
        self.ends = tuple(ends)
        self.tree: dict[
            tuple[int, ...], dict[int, int]
        ] = {}  # what stands there: which tokens follow, and how many more
        self.whole = {tuple(row) for row in rows}
        for row in self.whole:
            if set(row) & set(self.ends):
                raise UsageError(f"The continuation {list(row)} has a token in it that ends a text; leave it out.")
            for place, token in enumerate(row):
                follow = self.tree.setdefault(row[:place], {})
                follow[token] = min(follow.get(token, FAR), len(row) - place)

    @classmethod
    def texts(cls, texts: Sequence[str], tokenizer: Tokenizer, ends: Collection[int] | None = None) -> "Among":
        """One of these texts, each in the tokens that the tokenizer itself gives it; after a word, begin them with a space."""
        if isinstance(texts, str):
            raise UsageError(f"Allowed continuations are a list of texts; got one string, {texts!r}. Put it in a list.")
        rows = [found.ids for found in tokenizer.encode_batch(texts, special=False)]
        for text, row in zip(texts, rows, strict=True):
            if tokenizer.unknown is not None and tokenizer.unknown in row:
                raise UsageError(f"The tokenizer has no tokens for {text!r}, so it cannot be written; take it out.")
        return cls(rows, _ends(tokenizer, ends))

    def __repr__(self) -> str:
        return f"Among({len(self.whole)} rows)"

    def check(self, vocab: int, limit: int) -> None:
        known([*self.ends, *(token for row in self.whole for token in row)], vocab, repr(self))
        shortest = min(map(len, self.whole))
        if shortest > limit:
            raise UsageError(
                f"The shortest allowed continuation has {shortest} tokens, and at most {limit} are written; raise the limit."
            )

    def __call__(self, scores: Tensor, sofar: Sofar) -> Tensor:
        rows = []
        for number, written in enumerate(sofar.written):
            follow, left = self.tree.get(tuple(written), {}), sofar.left(number)
            allowed = np.zeros(scores.size(-1), bool)
            allowed[[token for token, more in follow.items() if more <= left]] = True
            rows.append((allowed, tuple(written) in self.whole))
        return _only(scores, rows, self.ends)


def _ends(tokenizer: Tokenizer, ends: Collection[int] | None) -> tuple[int, ...]:
    found = ends if ends is not None else () if tokenizer.end is None else (tokenizer.end,)
    if not found:
        raise UsageError(
            "The tokenizer has no token that ends a text, and what is allowed has to end; name one in `ends`."
        )
    return tuple(found)


def _only(scores: Tensor, rows: Sequence[tuple[np.ndarray, bool]], ends: Sequence[int]) -> Tensor:
    """The scores of what each row may write, and of the ends where its text is whole; -inf everywhere else."""
    vocab = scores.size(-1)
    allowed = np.zeros((len(rows), vocab), bool)
    for number, (tokens, whole) in enumerate(rows):
        allowed[number, : len(tokens)] = tokens[:vocab]
        allowed[number, list(ends)] = whole
    return scores.masked_fill(~torch.from_numpy(allowed).to(scores.device), -math.inf)
