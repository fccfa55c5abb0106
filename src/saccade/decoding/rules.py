"""What may not be written, or not so readily: small parts between the scores and the choice.

    generate(model, batch, stop=2, limit=64, rules=[MinLength(5, ends=(2,)), NoRepeat(3), Repetition(1.2)])

A rule takes the scores of the next token, (B, V), and what each row has written so far, and gives scores again: -inf
forbids. It keeps nothing between steps, so the same rule serves every row, every beam and every batch. Any function of
the two will do; a `Rule` can besides refuse, before anything is written, what can never be kept. `Force` puts a token at a
place; a word that has to stand somewhere, no matter where, is the expression `.*word.*` (see `constrain`).
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import torch
from torch import Tensor

from saccade.errors import ModelError, UsageError


@dataclass(frozen=True)
class Sofar:
    """What stands in each row: what the first step read (a prompt, or the token that begins a target), and what came after.

    >>> sofar = Sofar([[7], [8]], [[], []], limit=5).then([1, 2]).then([3, 4], [True, False])
    >>> sofar.written, sofar.whole(0), sofar.pick([1]).left(0)
    ([[1, 3], [2]], [7, 1, 3], 4)
    """

    prompt: list[list[int]]
    written: list[list[int]]
    limit: int  # the most tokens that a row may write

    def __len__(self) -> int:
        return len(self.written)

    def whole(self, row: int) -> list[int]:
        """All tokens of a row."""
        return self.prompt[row] + self.written[row]

    def left(self, row: int) -> int:
        """How many tokens the row may still write, the one that is chosen now among them."""
        return self.limit - len(self.written[row])

    def then(self, tokens: Sequence[int], going: Sequence[bool] | None = None) -> "Sofar":
        """With one more token in each row that goes on with it."""
        goes = going or [True] * len(tokens)
        rows = [[*row, token] if go else row for row, token, go in zip(self.written, tokens, goes, strict=True)]
        return Sofar(self.prompt, rows, self.limit)

    def pick(self, rows: Iterable[int]) -> "Sofar":
        """These rows, in this order; a row may be taken more than once or not at all, as beams do."""
        chosen = list(rows)
        return Sofar([self.prompt[i] for i in chosen], [self.written[i] for i in chosen], self.limit)


Ruling = Callable[[Tensor, Sofar], Tensor]  # scores (B, V) and what stands there to scores (B, V)


class Rule:
    """A ruling that knows beforehand what it can never keep."""

    def __call__(self, scores: Tensor, sofar: Sofar) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must give scores (B, V)")

    def check(self, vocab: int, limit: int) -> None:
        """Refuse what cannot be kept with so many tokens to choose from and so many to write."""


def check_rules(rules: Sequence[Ruling], vocab: int, limit: int) -> None:
    """Refuse rules that cannot be kept, before anything is written."""
    for rule in rules:
        if isinstance(rule, Rule):
            rule.check(vocab, limit)


def obey(rules: Sequence[Ruling], scores: Tensor, sofar: Sofar, going: Tensor | None = None) -> Tensor:
    """The scores after all rules, which see only the rows that go on; a row that may write nothing at all is an error."""
    ruled = scores
    if rules:
        some = None if going is None or bool(going.all()) else going.nonzero()[:, 0]
        ruled, seen = (scores, sofar) if some is None else (scores[some], sofar.pick(some.tolist()))
        for rule in rules:
            ruled = rule(ruled, seen)
        ruled = ruled if some is None else scores.index_copy(0, some, ruled)
    empty = ruled.amax(-1).isfinite().logical_not()
    empty = empty if going is None else empty & going
    if bool(empty.any()):
        _refuse(rules, int(empty.nonzero()[0, 0]), scores, sofar)
    return ruled


def need_numbers(best: Tensor, sofar: Sofar, going: Tensor) -> None:
    """A row that goes on and whose best score (B,) is no number is an error."""
    empty = best.isfinite().logical_not() & going
    if bool(empty.any()):
        row = int(empty.nonzero()[0, 0])
        raise ModelError(
            f"{_where(row, sofar)}: the model's scores are no numbers (the best is {float(best[row])}); its weights have "
            "diverged, or nothing may follow."
        )


def _where(row: int, sofar: Sofar) -> str:
    return f"Row {row}, after {len(sofar.written[row])} written tokens"


def _refuse(rules: Sequence[Ruling], row: int, scores: Tensor, sofar: Sofar) -> NoReturn:
    best = scores.amax(-1)
    need_numbers(best, sofar, torch.arange(len(best), device=best.device) == row)
    where = _where(row, sofar)
    names = ", ".join(getattr(rule, "__name__", type(rule).__name__) for rule in rules)
    raise UsageError(
        f"{where}: every token is forbidden by the rules together ({names}); take one of them away, or give it more room."
    )


@dataclass(frozen=True)
class MinLength(Rule):
    """None of the `ends` before so many tokens are written."""

    length: int
    ends: Collection[int]

    def __post_init__(self) -> None:
        if self.length < 0 or not self.ends:
            raise UsageError(
                f"A least length is 0 or more, and needs the tokens that end a text; got {self.length} and {list(self.ends)}."
            )

    def check(self, vocab: int, limit: int) -> None:
        known(self.ends, vocab, "MinLength")
        if self.length > limit:
            raise UsageError(f"At least {self.length} tokens and at most {limit} cannot both be; raise the limit.")

    def __call__(self, scores: Tensor, sofar: Sofar) -> Tensor:
        short = [len(row) < self.length for row in sofar.written]
        return _without(scores, [self.ends if early else () for early in short])


@dataclass(frozen=True)
class NoRepeat(Rule):
    """No `length` tokens in a row that stand there already, prompt included (Paulus et al. 2018, arXiv 1705.04304)."""

    length: int

    def __post_init__(self) -> None:
        if self.length < 1:
            raise UsageError(f"What may not be repeated is 1 token long or longer; got {self.length}.")

    def __call__(self, scores: Tensor, sofar: Sofar) -> Tensor:
        return _without(scores, [self._again(sofar.whole(row)) for row in range(len(sofar))])

    def _again(self, tokens: list[int]) -> set[int]:
        """What followed, earlier on, the last tokens of the row."""
        before = self.length - 1
        if len(tokens) < before:
            return set()
        last = tokens[len(tokens) - before :]
        return {tokens[i + before] for i in range(len(tokens) - before) if tokens[i : i + before] == last}


@dataclass(frozen=True)
class Repetition(Rule):
    """Scores of tokens that stand there already, prompt included, divided by the penalty, or times it where they are below 0
    (Keskar et al. 2019, arXiv 1909.05858). Above 1 it keeps from repeating, below 1 it invites to.
    """

    penalty: float

    def __post_init__(self) -> None:
        if not 0 < self.penalty < math.inf:
            raise UsageError(f"A penalty of repetition is a number above 0, and 1 changes nothing; got {self.penalty}.")

    def __call__(self, scores: Tensor, sofar: Sofar) -> Tensor:
        at = _pairs(scores, [set(sofar.whole(row)) for row in range(len(sofar))])
        seen = scores[at]
        return scores.index_put(at, torch.where(seen < 0, seen * self.penalty, seen / self.penalty))


@dataclass(frozen=True)
class Forbid(Rule):
    """Token sequences that may not be written; one that the prompt has begun may not be finished."""

    sequences: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        if any(len(sequence) == 0 for sequence in self.sequences):
            raise UsageError("A forbidden sequence is empty, and nothing can be forbidden that way; give its tokens.")

    def check(self, vocab: int, limit: int) -> None:
        known([token for sequence in self.sequences for token in sequence], vocab, "Forbid")
        if len({sequence[0] for sequence in self.sequences if len(sequence) == 1}) == vocab:
            raise UsageError(f"All {vocab} tokens are forbidden, so nothing can be written; allow at least one.")

    def __call__(self, scores: Tensor, sofar: Sofar) -> Tensor:
        return _without(scores, [self._next(sofar.whole(row)) for row in range(len(sofar))])

    def _next(self, tokens: list[int]) -> set[int]:
        rests = [(list(sequence[:-1]), sequence[-1]) for sequence in self.sequences]
        return {last for begun, last in rests if not begun or tokens[-len(begun) :] == begun}


@dataclass(frozen=True)
class Force(Rule):
    """A token at a place: 0 is the first that is written, -1 the last that there is room for.

    >>> Force({0: 5, -1: 2})  # begin with 5; if the text has not stopped before, the last token is 2
    Force(places={0: 5, -1: 2})
    """

    places: Mapping[int, int] = field(hash=False)

    def check(self, vocab: int, limit: int) -> None:
        known(self.places.values(), vocab, "Force")
        beyond = [place for place in self.places if not -limit <= place < limit]
        if beyond:
            raise UsageError(f"A token is forced at place {beyond[0]}, and only {limit} are written; raise the limit.")
        for place, token in self.places.items():
            if place < 0 and self.places.get(limit + place, token) != token:
                raise UsageError(
                    f"Of {limit} tokens, place {place} is place {limit + place}, and two different tokens are forced there."
                )

    def __call__(self, scores: Tensor, sofar: Sofar) -> Tensor:
        forced = [self._at(len(written), sofar.left(row)) for row, written in enumerate(sofar.written)]
        if all(token is None for token in forced):
            return scores
        out = scores.clone()
        for row, token in enumerate(forced):
            if token is not None:
                out[row] = -math.inf
                out[row, token] = scores[row, token]
        return out

    def _at(self, place: int, left: int) -> int | None:
        return self.places.get(place, self.places.get(-left))


def _pairs(scores: Tensor, tokens: Sequence[Collection[int]]) -> tuple[Tensor, Tensor]:
    """The rows and the tokens of all of these, to index scores with."""
    pairs = [(row, token) for row, some in enumerate(tokens) for token in some if token < scores.size(-1)]
    rows, found = torch.tensor(pairs, dtype=torch.long, device=scores.device).view(-1, 2).T
    return rows, found


def _without(scores: Tensor, tokens: Sequence[Collection[int]]) -> Tensor:
    """The scores with -inf at these tokens of each row."""
    if not any(tokens):
        return scores
    return scores.index_put(_pairs(scores, tokens), torch.tensor(-math.inf, dtype=scores.dtype, device=scores.device))


def known(tokens: Iterable[int], vocab: int, who: str) -> None:
    """Refuse tokens that the model cannot write."""
    for token in tokens:
        if not 0 <= token < vocab:
            raise UsageError(f"{who} names the token {token}; the model writes tokens from 0 to {vocab - 1}.")
