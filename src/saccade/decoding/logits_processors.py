"""Logits processors: functions that change the scores of the next token before it is chosen.

    processors = [MinNewTokens(5, (2,)), NoRepeatNgram(3), RepetitionPenalty(1.2)]
    generate(model, batch, stop_ids=2, max_new_tokens=64, processors=processors)

A processor takes the scores of the next token, (B, V), and the tokens of each row so far (`TokenHistory`), and returns
new scores; -inf forbids a token. It has no state, so the same processor serves all rows, beams and batches. Any such
function works; a `CheckedProcessor` can also refuse settings before decoding begins. `ForcedTokens` forces a token at a
position; to force a word anywhere, use the regular expression `.*word.*` (see `constraints.processors`).
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
    """The tokens of each row: the input of the first step (a prompt, or the start token of a target), and the new tokens.

    >>> history = TokenHistory([[7], [8]], [[], []], max_new_tokens=5).append([1, 2]).append([3, 4], [True, False])
    >>> history.new_tokens, history.all_tokens(0), history.select_rows([1]).remaining_tokens(0)
    ([[1, 3], [2]], [7, 1, 3], 4)
    """

    prompt: list[list[int]]
    new_tokens: list[list[int]]
    max_new_tokens: int  # maximum number of new tokens per row

    def __len__(self) -> int:
        return len(self.new_tokens)

    def all_tokens(self, row: int) -> list[int]:
        """Prompt and new tokens of a row."""
        return self.prompt[row] + self.new_tokens[row]

    def remaining_tokens(self, row: int) -> int:
        """The number of tokens that may still be generated, including the next one."""
        return self.max_new_tokens - len(self.new_tokens[row])

    def append(self, tokens: Sequence[int], active: Sequence[bool] | None = None) -> "TokenHistory":
        """Append one token to each active row."""
        is_active = active or [True] * len(tokens)
        rows = [
            [*row, token] if goes_on else row
            for row, token, goes_on in zip(self.new_tokens, tokens, is_active, strict=True)
        ]
        return TokenHistory(self.prompt, rows, self.max_new_tokens)

    def select_rows(self, rows: Iterable[int]) -> "TokenHistory":
        """Select and reorder rows, as beam search does; a row may be selected several times or not at all."""
        indices = list(rows)
        return TokenHistory(
            [self.prompt[i] for i in indices], [self.new_tokens[i] for i in indices], self.max_new_tokens
        )


LogitsProcessor = Callable[[Tensor, TokenHistory], Tensor]  # scores (B, V) and history -> scores (B, V)


class CheckedProcessor:
    """A logits processor that can check its settings before decoding begins."""

    def __call__(self, scores: Tensor, history: TokenHistory) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must return scores (B, V)")

    def check(self, vocab: int, max_new_tokens: int) -> None:
        """Raise an error if the processor cannot work with this vocabulary size and limit of new tokens."""


def check_processors(processors: Sequence[LogitsProcessor], vocab: int, max_new_tokens: int) -> None:
    """Check all processors that can be checked, before decoding begins."""
    for processor in processors:
        if isinstance(processor, CheckedProcessor):
            processor.check(vocab, max_new_tokens)


def apply_processors(
    processors: Sequence[LogitsProcessor], scores: Tensor, history: TokenHistory, active: Tensor | None = None
) -> Tensor:
    """Apply processors to the scores of active rows; raises an error if they forbid every token of a row."""
    processed = scores
    if processors:
        rows = None if active is None or bool(active.all()) else active.nonzero()[:, 0]
        processed, seen = (scores, history) if rows is None else (scores[rows], history.select_rows(rows.tolist()))
        for processor in processors:
            processed = processor(processed, seen)
        processed = processed if rows is None else scores.index_copy(0, rows, processed)
    has_no_token = processed.amax(-1).isfinite().logical_not()
    has_no_token = has_no_token if active is None else has_no_token & active
    if bool(has_no_token.any()):
        _raise_no_token_left(processors, int(has_no_token.nonzero()[0, 0]), scores, history)
    return processed


def check_finite(best_scores: Tensor, history: TokenHistory, active: Tensor) -> None:
    """Raise an error if the best score (B,) of an active row is NaN or infinite."""
    is_bad = best_scores.isfinite().logical_not() & active
    if bool(is_bad.any()):
        row = int(is_bad.nonzero()[0, 0])
        raise ModelError(
            f"{_describe_row(row, history)}: the model's scores are not finite (the best is {float(best_scores[row])}); its "
            "weights have diverged, or it allows no next token."
        )


def _describe_row(row: int, history: TokenHistory) -> str:
    return f"Row {row}, after {len(history.new_tokens[row])} new tokens"


def _raise_no_token_left(
    processors: Sequence[LogitsProcessor], row: int, scores: Tensor, history: TokenHistory
) -> NoReturn:
    best = scores.amax(-1)
    check_finite(best, history, torch.arange(len(best), device=best.device) == row)
    where = _describe_row(row, history)
    names = ", ".join(getattr(processor, "__name__", type(processor).__name__) for processor in processors)
    raise UsageError(
        f"{where}: the logits processors together ({names}) forbid every token; remove one of them, or relax it."
    )


@dataclass(frozen=True)
class MinNewTokens(CheckedProcessor):
    """Forbid the `stop_ids` until `min_new_tokens` tokens are generated."""

    min_new_tokens: int
    stop_ids: Collection[int]

    def __post_init__(self) -> None:
        if self.min_new_tokens < 0 or not self.stop_ids:
            raise UsageError(
                f"MinNewTokens needs a minimum of 0 or more and at least one stop token; got {self.min_new_tokens} and "
                f"{list(self.stop_ids)}."
            )

    def check(self, vocab: int, max_new_tokens: int) -> None:
        check_token_ids(self.stop_ids, vocab, "MinNewTokens")
        if self.min_new_tokens > max_new_tokens:
            raise UsageError(
                f"A minimum of {self.min_new_tokens} tokens is above max_new_tokens={max_new_tokens}; raise the limit."
            )

    def __call__(self, scores: Tensor, history: TokenHistory) -> Tensor:
        too_short = [len(row) < self.min_new_tokens for row in history.new_tokens]
        return _mask_tokens(scores, [self.stop_ids if short else () for short in too_short])


@dataclass(frozen=True)
class NoRepeatNgram(CheckedProcessor):
    """Forbid n-grams of this size that occurred before, prompt included (Paulus et al. 2018, arXiv 1705.04304)."""

    ngram_size: int

    def __post_init__(self) -> None:
        if self.ngram_size < 1:
            raise UsageError(f"The n-gram size must be at least 1; got {self.ngram_size}.")

    def __call__(self, scores: Tensor, history: TokenHistory) -> Tensor:
        return _mask_tokens(scores, [self._repeating_tokens(history.all_tokens(row)) for row in range(len(history))])

    def _repeating_tokens(self, tokens: list[int]) -> set[int]:
        """The tokens that would complete an n-gram that occurred before."""
        prefix_length = self.ngram_size - 1
        if len(tokens) < prefix_length:
            return set()
        prefix = tokens[len(tokens) - prefix_length :]
        starts = range(len(tokens) - prefix_length)
        return {tokens[i + prefix_length] for i in starts if tokens[i : i + prefix_length] == prefix}


@dataclass(frozen=True)
class RepetitionPenalty(CheckedProcessor):
    """Repetition penalty for tokens that occurred before, prompt included (Keskar et al. 2019, arXiv 1909.05858).

    Positive scores are divided by the penalty, and negative ones multiplied by it. Above 1 it discourages repetition, below 1 it
    encourages it.
    """

    penalty: float

    def __post_init__(self) -> None:
        if not 0 < self.penalty < math.inf:
            raise UsageError(f"The repetition penalty must be above 0, and 1 disables it; got {self.penalty}.")

    def __call__(self, scores: Tensor, history: TokenHistory) -> Tensor:
        at = _index_pairs(scores, [set(history.all_tokens(row)) for row in range(len(history))])
        repeated = scores[at]
        return scores.index_put(at, torch.where(repeated < 0, repeated * self.penalty, repeated / self.penalty))


@dataclass(frozen=True)
class BadWords(CheckedProcessor):
    """Forbid token sequences, including those that begin in the prompt."""

    sequences: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        if any(len(sequence) == 0 for sequence in self.sequences):
            raise UsageError("A sequence of bad words is empty; give at least one token.")

    def check(self, vocab: int, max_new_tokens: int) -> None:
        check_token_ids([token for sequence in self.sequences for token in sequence], vocab, "BadWords")
        if len({sequence[0] for sequence in self.sequences if len(sequence) == 1}) == vocab:
            raise UsageError(f"All {vocab} tokens are forbidden, so nothing can be generated; allow at least one.")

    def __call__(self, scores: Tensor, history: TokenHistory) -> Tensor:
        return _mask_tokens(scores, [self._forbidden_next(history.all_tokens(row)) for row in range(len(history))])

    def _forbidden_next(self, tokens: list[int]) -> set[int]:
        splits = [(list(sequence[:-1]), sequence[-1]) for sequence in self.sequences]
        return {last for prefix, last in splits if not prefix or tokens[-len(prefix) :] == prefix}


@dataclass(frozen=True)
class ForcedTokens(CheckedProcessor):
    """Force tokens at positions: 0 is the first new token, -1 the last one within the token limit.

    >>> ForcedTokens({0: 5, -1: 2})  # start with 5; end with 2 at the token limit
    ForcedTokens(positions={0: 5, -1: 2})
    """

    positions: Mapping[int, int] = field(hash=False)

    def check(self, vocab: int, max_new_tokens: int) -> None:
        check_token_ids(self.positions.values(), vocab, "ForcedTokens")
        beyond = [position for position in self.positions if not -max_new_tokens <= position < max_new_tokens]
        if beyond:
            raise UsageError(
                f"A token is forced at position {beyond[0]}, but max_new_tokens is {max_new_tokens}; raise the limit."
            )
        for position, token in self.positions.items():
            if position < 0 and self.positions.get(max_new_tokens + position, token) != token:
                raise UsageError(
                    f"Of {max_new_tokens} tokens, position {position} is position {max_new_tokens + position}, and two "
                    "different tokens are forced there."
                )

    def __call__(self, scores: Tensor, history: TokenHistory) -> Tensor:
        forced = [
            self._token_at(len(tokens), history.remaining_tokens(row)) for row, tokens in enumerate(history.new_tokens)
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
    """Row and column indices into the scores, for the given tokens of each row."""
    pairs = [(row, token) for row, ids in enumerate(tokens) for token in ids if token < scores.size(-1)]
    rows, columns = torch.tensor(pairs, dtype=torch.long, device=scores.device).view(-1, 2).T
    return rows, columns


def _mask_tokens(scores: Tensor, tokens: Sequence[Collection[int]]) -> Tensor:
    """Set the scores of the given tokens of each row to -inf."""
    if not any(tokens):
        return scores
    return scores.index_put(
        _index_pairs(scores, tokens), torch.tensor(-math.inf, dtype=scores.dtype, device=scores.device)
    )


def check_token_ids(tokens: Iterable[int], vocab: int, caller: str) -> None:
    """Raise an error for ids outside the vocabulary."""
    for token in tokens:
        if not 0 <= token < vocab:
            raise UsageError(f"{caller} names the token {token}; the model has tokens from 0 to {vocab - 1}.")
