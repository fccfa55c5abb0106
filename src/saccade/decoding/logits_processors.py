"""What may not be written, or not so readily: small parts between the scores and the choice.

    rules = [MinNewTokens(5, (2,)), NoRepeatNgram(3), RepetitionPenalty(1.2)]
    generate(model, batch, stop_ids=2, max_new_tokens=64, processors=rules)

A rule takes the scores of the next token, (B, V), and what each row has written so far, and gives scores again: -inf
forbids. It keeps nothing between steps, so the same rule serves every row, every beam and every batch. Any function of
the two will do; a `CheckedProcessor` can besides refuse, before anything is written, what can never be kept.
`ForcedTokens` puts a token at a place; a word that has to stand somewhere, no matter where, is the expression `.*word.*`
(see `constraints.processors`).
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import torch
from torch import Tensor

from saccade.errors import ModelError, UsageError


@dataclass(frozen=True)
class TokenHistory:
    """What stands in each row: what the first step read (a prompt, or the token that begins a target), and what came after.

    >>> sofar = TokenHistory([[7], [8]], [[], []], max_new_tokens=5).append([1, 2]).append([3, 4], [True, False])
    >>> sofar.new_tokens, sofar.all_tokens(0), sofar.select_rows([1]).remaining_tokens(0)
    ([[1, 3], [2]], [7, 1, 3], 4)
    """

    prompt: list[list[int]]
    new_tokens: list[list[int]]
    max_new_tokens: int  # the most tokens that a row may write

    def __len__(self) -> int:
        return len(self.new_tokens)

    def all_tokens(self, row: int) -> list[int]:
        """All tokens of a row."""
        return self.prompt[row] + self.new_tokens[row]

    def remaining_tokens(self, row: int) -> int:
        """How many tokens the row may still write, the one that is chosen now among them."""
        return self.max_new_tokens - len(self.new_tokens[row])

    def append(self, tokens: Sequence[int], active: Sequence[bool] | None = None) -> "TokenHistory":
        """With one more token in each row that goes on with it."""
        goes = active or [True] * len(tokens)
        rows = [[*row, token] if go else row for row, token, go in zip(self.new_tokens, tokens, goes, strict=True)]
        return TokenHistory(self.prompt, rows, self.max_new_tokens)

    def select_rows(self, rows: Iterable[int]) -> "TokenHistory":
        """These rows, in this order; a row may be taken more than once or not at all, as beams do."""
        chosen = list(rows)
        return TokenHistory([self.prompt[i] for i in chosen], [self.new_tokens[i] for i in chosen], self.max_new_tokens)


LogitsProcessor = Callable[[Tensor, TokenHistory], Tensor]  # scores (B, V) and what stands there to scores (B, V)


class CheckedProcessor:
    """A ruling that knows beforehand what it can never keep."""

    def __call__(self, scores: Tensor, history: TokenHistory) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must give scores (B, V)")

    def check(self, vocab: int, max_new_tokens: int) -> None:
        """Refuse what cannot be kept with so many tokens to choose from and so many to write."""


def check_processors(processors: Sequence[LogitsProcessor], vocab: int, max_new_tokens: int) -> None:
    """Refuse rules that cannot be kept, before anything is written."""
    for rule in processors:
        if isinstance(rule, CheckedProcessor):
            rule.check(vocab, max_new_tokens)


def apply_processors(
    processors: Sequence[LogitsProcessor], scores: Tensor, history: TokenHistory, active: Tensor | None = None
) -> Tensor:
    """The scores after all rules, which see only the rows that go on; a row that may write nothing at all is an error."""
    ruled = scores
    if processors:
        some = None if active is None or bool(active.all()) else active.nonzero()[:, 0]
        ruled, seen = (scores, history) if some is None else (scores[some], history.select_rows(some.tolist()))
        for rule in processors:
            ruled = rule(ruled, seen)
        ruled = ruled if some is None else scores.index_copy(0, some, ruled)
    empty = ruled.amax(-1).isfinite().logical_not()
    empty = empty if active is None else empty & active
    if bool(empty.any()):
        _raise_no_token_left(processors, int(empty.nonzero()[0, 0]), scores, history)
    return ruled


def check_finite(best_scores: Tensor, history: TokenHistory, active: Tensor) -> None:
    """A row that goes on and whose best score (B,) is no number is an error."""
    empty = best_scores.isfinite().logical_not() & active
    if bool(empty.any()):
        row = int(empty.nonzero()[0, 0])
        raise ModelError(
            f"{_describe_row(row, history)}: the model's scores are no numbers (the best is "
            f"{float(best_scores[row])}); its weights have "
            "diverged, or nothing may follow."
        )


def _describe_row(row: int, history: TokenHistory) -> str:
    return f"Row {row}, after {len(history.new_tokens[row])} written tokens"


def _raise_no_token_left(
    processors: Sequence[LogitsProcessor], row: int, scores: Tensor, history: TokenHistory
) -> NoReturn:
    best = scores.amax(-1)
    check_finite(best, history, torch.arange(len(best), device=best.device) == row)
    where = _describe_row(row, history)
    names = ", ".join(getattr(rule, "__name__", type(rule).__name__) for rule in processors)
    raise UsageError(
        f"{where}: every token is forbidden by the rules together ({names}); take one of them away, or give it more room."
    )


@dataclass(frozen=True)
class MinNewTokens(CheckedProcessor):
    """None of the `stop_ids` before so many tokens are written."""

    min_new_tokens: int
    stop_ids: Collection[int]

    def __post_init__(self) -> None:
        if self.min_new_tokens < 0 or not self.stop_ids:
            raise UsageError(
                f"A least length is 0 or more, and needs the tokens that end a text; got {self.min_new_tokens} and "
                f"{list(self.stop_ids)}."
            )

    def check(self, vocab: int, max_new_tokens: int) -> None:
        check_token_ids(self.stop_ids, vocab, "MinNewTokens")
        if self.min_new_tokens > max_new_tokens:
            raise UsageError(
                f"At least {self.min_new_tokens} tokens and at most {max_new_tokens} cannot both be; raise the limit."
            )

    def __call__(self, scores: Tensor, history: TokenHistory) -> Tensor:
        short = [len(row) < self.min_new_tokens for row in history.new_tokens]
        return _mask_tokens(scores, [self.stop_ids if early else () for early in short])


@dataclass(frozen=True)
class NoRepeatNgram(CheckedProcessor):
    """No `ngram_size` tokens in a row that stand there already, prompt included (Paulus et al. 2018, arXiv 1705.04304)."""

    ngram_size: int

    def __post_init__(self) -> None:
        if self.ngram_size < 1:
            raise UsageError(f"What may not be repeated is 1 token long or longer; got {self.ngram_size}.")

    def __call__(self, scores: Tensor, history: TokenHistory) -> Tensor:
        return _mask_tokens(scores, [self._repeating_tokens(history.all_tokens(row)) for row in range(len(history))])

    def _repeating_tokens(self, tokens: list[int]) -> set[int]:
        """What followed, earlier on, the last tokens of the row."""
        before = self.ngram_size - 1
        if len(tokens) < before:
            return set()
        last = tokens[len(tokens) - before :]
        return {tokens[i + before] for i in range(len(tokens) - before) if tokens[i : i + before] == last}


@dataclass(frozen=True)
class RepetitionPenalty(CheckedProcessor):
    """Scores of tokens that stand there already, prompt included, divided by the penalty, or times it where they are below 0
    (Keskar et al. 2019, arXiv 1909.05858). Above 1 it keeps from repeating, below 1 it invites to.
    """

    penalty: float

    def __post_init__(self) -> None:
        if not 0 < self.penalty < math.inf:
            raise UsageError(f"A penalty of repetition is a number above 0, and 1 changes nothing; got {self.penalty}.")

    def __call__(self, scores: Tensor, history: TokenHistory) -> Tensor:
        at = _index_pairs(scores, [set(history.all_tokens(row)) for row in range(len(history))])
        seen = scores[at]
        return scores.index_put(at, torch.where(seen < 0, seen * self.penalty, seen / self.penalty))


@dataclass(frozen=True)
class BadWords(CheckedProcessor):
    """Token sequences that may not be written; one that the prompt has begun may not be finished."""

    sequences: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        if any(len(sequence) == 0 for sequence in self.sequences):
            raise UsageError("A forbidden sequence is empty, and nothing can be forbidden that way; give its tokens.")

    def check(self, vocab: int, max_new_tokens: int) -> None:
        check_token_ids([token for sequence in self.sequences for token in sequence], vocab, "BadWords")
        if len({sequence[0] for sequence in self.sequences if len(sequence) == 1}) == vocab:
            raise UsageError(f"All {vocab} tokens are forbidden, so nothing can be written; allow at least one.")

    def __call__(self, scores: Tensor, history: TokenHistory) -> Tensor:
        return _mask_tokens(scores, [self._forbidden_next(history.all_tokens(row)) for row in range(len(history))])

    def _forbidden_next(self, tokens: list[int]) -> set[int]:
        rests = [(list(sequence[:-1]), sequence[-1]) for sequence in self.sequences]
        return {last for begun, last in rests if not begun or tokens[-len(begun) :] == begun}


@dataclass(frozen=True)
class ForcedTokens(CheckedProcessor):
    """A token at a place: 0 is the first that is written, -1 the last that there is room for.

    >>> ForcedTokens({0: 5, -1: 2})  # begin with 5; if the text has not stopped before, the last token is 2
    ForcedTokens(positions={0: 5, -1: 2})
    """

    positions: Mapping[int, int] = field(hash=False)

    def check(self, vocab: int, max_new_tokens: int) -> None:
        check_token_ids(self.positions.values(), vocab, "ForcedTokens")
        beyond = [place for place in self.positions if not -max_new_tokens <= place < max_new_tokens]
        if beyond:
            raise UsageError(
                f"A token is forced at place {beyond[0]}, and only {max_new_tokens} are written; raise the limit."
            )
        for place, token in self.positions.items():
            if place < 0 and self.positions.get(max_new_tokens + place, token) != token:
                raise UsageError(
                    f"Of {max_new_tokens} tokens, place {place} is place {max_new_tokens + place}, and two "
                    "different tokens are forced there."
                )

    def __call__(self, scores: Tensor, history: TokenHistory) -> Tensor:
        forced = [
            self._token_at(len(written), history.remaining_tokens(row))
            for row, written in enumerate(history.new_tokens)
        ]
        if all(token is None for token in forced):
            return scores
        out = scores.clone()
        for row, token in enumerate(forced):
            if token is not None:
                out[row] = -math.inf
                out[row, token] = scores[row, token]
        return out

    def _token_at(self, position: int, remaining_tokens: int) -> int | None:
        return self.positions.get(position, self.positions.get(-remaining_tokens))


def _index_pairs(scores: Tensor, tokens: Sequence[Collection[int]]) -> tuple[Tensor, Tensor]:
    """The rows and the tokens of all of these, to index scores with."""
    pairs = [(row, token) for row, some in enumerate(tokens) for token in some if token < scores.size(-1)]
    rows, found = torch.tensor(pairs, dtype=torch.long, device=scores.device).view(-1, 2).T
    return rows, found


def _mask_tokens(scores: Tensor, tokens: Sequence[Collection[int]]) -> Tensor:
    """The scores with -inf at these tokens of each row."""
    if not any(tokens):
        return scores
    return scores.index_put(
        _index_pairs(scores, tokens), torch.tensor(-math.inf, dtype=scores.dtype, device=scores.device)
    )


def check_token_ids(tokens: Iterable[int], vocab: int, caller: str) -> None:
    """Refuse tokens that the model cannot write."""
    for token in tokens:
        if not 0 <= token < vocab:
            raise UsageError(f"{caller} names the token {token}; the model writes tokens from 0 to {vocab - 1}.")
