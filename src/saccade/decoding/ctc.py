"""Decoding and alignment of CTC: one score per token and frame, where a blank separates repeated tokens (Graves et al. 2006).

A path has one token or blank per frame; equal neighbors are merged and blanks are removed. A text has the probability of all of
its paths together, and `ctc_beam_search` looks for the most probable text, `ctc_greedy` for the text of the most probable path.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from saccade.errors import UsageError

Prefix = tuple[int, ...]
TokenScores = Callable[[Prefix], Sequence[float] | np.ndarray]  # log-probabilities of every token after a prefix

TOKEN_MIN_LOG_PROB = -7.0  # tokens that are less probable in a frame are not tried there


@dataclass(frozen=True)
class CTCHypothesis:
    """A text of a beam: its tokens, its log-probability, and its score with that of the language model."""

    tokens: Prefix
    log_prob: float
    score: float


def collapse_path(path: Sequence[int], blank: int) -> list[int]:
    """The tokens of a path: equal neighbors are merged, then blanks are removed.

    >>> collapse_path([0, 8, 8, 0, 8, 5, 5, 0], blank=0)
    [8, 8, 5]
    """
    merged = [token for index, token in enumerate(path) if index == 0 or token != path[index - 1]]
    return [token for token in merged if token != blank]


def ctc_greedy(log_probs: np.ndarray, blank: int) -> list[int]:
    """The tokens of the most probable path of log-probabilities (frames, V)."""
    return collapse_path(log_probs.argmax(-1).tolist(), blank)


def ctc_beam_search(
    log_probs: np.ndarray,
    blank: int,
    beam_size: int,
    *,
    score_tokens: TokenScores | None = None,
    lm_weight: float = 0.0,
    length_bonus: float = 0.0,
    end_token: int | None = None,
    token_min_log_prob: float = TOKEN_MIN_LOG_PROB,
) -> list[CTCHypothesis]:
    """Prefix beam search (Hannun et al. 2014, arXiv 1408.2873): the most probable texts, best first.

    With `score_tokens`, a language model, each token adds `lm_weight` times its log-probability after the tokens before it, and
    `length_bonus` (shallow fusion); the `end_token` of the language model is scored at the end.
    """
    search = PrefixBeam(blank, beam_size, score_tokens, lm_weight, length_bonus)
    for row in log_probs.tolist():
        tokens = [t for t, score in enumerate(row) if t != blank and score > token_min_log_prob]
        search.advance(row, tokens)
    return search.finish(end_token)


class PrefixBeam:
    """The best prefixes so far, each with the log-probabilities of its paths that end in a blank and of those that do not."""

    def __init__(
        self, blank: int, beam_size: int, score_tokens: TokenScores | None, lm_weight: float, length_bonus: float
    ):
        self.blank, self.beam_size = blank, beam_size
        self.score_tokens, self.lm_weight, self.length_bonus = score_tokens, lm_weight, length_bonus
        self.beam: dict[Prefix, tuple[float, float]] = {(): (0.0, -math.inf)}
        self.lm_scores: dict[Prefix, float] = {(): 0.0}  # of a prefix: weighted, with the bonus
        self._next_scores: dict[Prefix, Sequence[float] | np.ndarray] = {}

    def advance(self, row: Sequence[float], tokens: Sequence[int]) -> None:
        """Read the log-probabilities of one frame, and try to append `tokens`."""
        grown: dict[Prefix, tuple[float, float]] = {}

        def add(prefix: Prefix, blank_part: float, token_part: float) -> None:
            a, b = grown.get(prefix, (-math.inf, -math.inf))
            grown[prefix] = (_log_add(a, blank_part), _log_add(b, token_part))

        for prefix, (ends_blank, ends_token) in self.beam.items():
            total = _log_add(ends_blank, ends_token)
            add(prefix, total + row[self.blank], ends_token + row[prefix[-1]] if prefix else -math.inf)
            for token in tokens:
                before = (
                    ends_blank if prefix and token == prefix[-1] else total
                )  # a repeated token needs a blank between
                if before > -math.inf:
                    add((*prefix, token), -math.inf, before + row[token])
        best = sorted(grown, key=lambda prefix: self._score(prefix, grown[prefix]), reverse=True)[: self.beam_size]
        self.beam = {prefix: grown[prefix] for prefix in best}

    def finish(self, end_token: int | None) -> list[CTCHypothesis]:
        """The texts of the beam, best first."""
        found = []
        for prefix, parts in self.beam.items():
            score = self._score(prefix, parts)
            if end_token is not None and self.score_tokens is not None:
                score += self.lm_weight * float(self._scores_after(prefix)[end_token])
            found.append(CTCHypothesis(prefix, _log_add(*parts), score))
        return sorted(found, key=lambda hypothesis: -hypothesis.score)

    def _score(self, prefix: Prefix, parts: tuple[float, float]) -> float:
        return _log_add(*parts) + (self.length_bonus * len(prefix) if self.score_tokens is None else self._lm(prefix))

    def _lm(self, prefix: Prefix) -> float:
        """The score of a prefix by the language model, its weight and the bonus included."""
        if prefix not in self.lm_scores:
            before, token = prefix[:-1], prefix[-1]
            added = self.lm_weight * float(self._scores_after(before)[token]) + self.length_bonus
            self.lm_scores[prefix] = self._lm(before) + added
        return self.lm_scores[prefix]

    def _scores_after(self, prefix: Prefix) -> Sequence[float] | np.ndarray:
        if prefix not in self._next_scores:
            assert self.score_tokens is not None
            self._next_scores[prefix] = self.score_tokens(prefix)
        return self._next_scores[prefix]


def ctc_align(log_probs: np.ndarray, tokens: Sequence[int], blank: int) -> list[tuple[int, int]]:
    """The frames of each token, (first, after the last), on the most probable path of the tokens (forced alignment).

    Raises ValueError if there are fewer frames than the tokens need.
    """
    states = [blank, *(state for token in tokens for state in (token, blank))]
    count = len(states)
    # a token may follow the previous one directly unless both are equal
    skips = np.array([i % 2 == 1 and i > 1 and states[i] != states[i - 2] for i in range(count)])
    scores = np.full(count, -np.inf)
    scores[:2] = log_probs[0, states[:2]]
    origins = np.zeros((len(log_probs), count), np.int64)
    for frame in range(1, len(log_probs)):
        options = np.full((3, count), -np.inf)
        options[0] = scores
        options[1, 1:] = scores[:-1]
        options[2, 2:] = np.where(skips[2:], scores[:-2], -np.inf)
        steps = options.argmax(0)
        origins[frame] = np.arange(count) - steps
        scores = options[steps, np.arange(count)] + log_probs[frame, states]
    state = count - 1 if count == 1 or scores[-1] >= scores[-2] else count - 2
    if not np.isfinite(scores[state]):
        raise UsageError(f"{len(tokens)} tokens do not fit into {len(log_probs)} frames.")
    spans = [(0, 0)] * len(tokens)
    for frame in range(len(log_probs) - 1, -1, -1):
        if state % 2:
            last = spans[state // 2][1]
            spans[state // 2] = (frame, last or frame + 1)
        state = int(origins[frame, state])
    return spans


def _log_add(a: float, b: float) -> float:
    if a < b:
        a, b = b, a
    return a if b == -math.inf else a + math.log1p(math.exp(b - a))
