"""Candidate tokens of beam search: the best few continuations of each beam, with their log-probabilities.

Logits processors and diverse beam groups need the scores of the whole vocabulary (`VocabLogprobs`). Otherwise a model may
select its top tokens itself (`TopKModel`), without storing all scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from saccade.data import Text
from saccade.decoding.logits_processors import LogitsProcessor, TokenHistory
from saccade.decoding.topk import token_logprobs, topk
from saccade.models.family import AutoregressiveModel
from saccade.parts.state import State

TopKTokens = tuple[
    Tensor, Tensor, Tensor
]  # scores (B, N) in descending order, their tokens, and the log-probability of the first (B,)


@runtime_checkable
class TopKModel(Protocol):
    """An autoregressive model that can select its top tokens itself."""

    @property
    def has_fused_topk(self) -> bool:
        """Whether it does so without computing the scores of the whole vocabulary at once."""
        ...

    def step_topk(self, text: Text, state: State, count: int) -> TopKTokens:
        """Decode one new token per row, (B, 1), and return the top `count` next tokens."""
        ...


def topk_tokens(scores: Tensor, count: int) -> TopKTokens:
    """The `count` highest of scores (B, V).

    >>> values, tokens, logprobs = topk_tokens(torch.tensor([[1.0, 2.0, 4.0]]).log(), 1)
    >>> tokens, logprobs.exp()
    (tensor([[2]]), tensor([0.5714]))
    """
    scores = _upcast(scores)
    values, tokens = topk(scores, count)
    return values, tokens, token_logprobs(scores, tokens[:, :1])[:, 0]


@dataclass(frozen=True)
class BeamShape:
    """How beams are arranged in rows: batch rows, groups per row, and beams per group."""

    rows: int
    groups: int
    beams_per_group: int

    def select_group(self, x: Tensor, group: int) -> Tensor:
        """One group of all rows, (rows, beams_per_group, ...)."""
        return x.view(self.rows, self.groups, self.beams_per_group, -1)[:, group]


@dataclass(frozen=True)
class Candidates:
    """Candidate tokens of each row: ranking scores, and log-probabilities before and after the logits processors."""

    tokens: Tensor
    ranking_scores: Tensor
    processed_logprobs: Tensor
    logprobs: Tensor

    @staticmethod
    def from_topk(topk: TopKTokens) -> "Candidates":
        """Candidates from the model's top tokens, without logits processors."""
        values, tokens, best_logprobs = topk
        logprobs = values - values[:, :1] + best_logprobs[:, None]
        return Candidates(tokens, logprobs, logprobs, logprobs)

    def expand_rows(self, times: int) -> "Candidates":
        """Repeat each row `times` times."""
        return Candidates(
            *(
                x.repeat_interleave(times, dim=0)
                for x in (self.tokens, self.ranking_scores, self.processed_logprobs, self.logprobs)
            )
        )

    def select_group(
        self, shape: BeamShape, group: int, diversity_penalties: Tensor | None, count: int
    ) -> "Candidates":
        """The candidates of one group; without a diversity penalty, which needs the whole vocabulary."""
        return Candidates(
            *(
                shape.select_group(x, group)
                for x in (self.tokens, self.ranking_scores, self.processed_logprobs, self.logprobs)
            )
        )


class VocabLogprobs:
    """The log-probabilities of the whole vocabulary, before and after the logits processors."""

    def __init__(self, scores: Tensor, processors: Sequence[LogitsProcessor], history: TokenHistory):
        self.logprobs = self.processed_logprobs = _upcast(scores).log_softmax(-1)
        for processor in processors:
            self.processed_logprobs = processor(self.processed_logprobs, history)

    def select_group(self, shape: BeamShape, group: int, diversity_penalties: Tensor | None, count: int) -> Candidates:
        """The `count` best candidates of one group of beams, after subtracting the diversity penalties (rows, V)."""
        logprobs, processed = (
            shape.select_group(self.logprobs, group),
            shape.select_group(self.processed_logprobs, group),
        )
        scores = processed if diversity_penalties is None else processed - diversity_penalties[:, None]
        ranking_scores, tokens = topk(scores, count)  # (rows, beams_per_group, count)
        return Candidates(tokens, ranking_scores, processed.gather(-1, tokens), logprobs.gather(-1, tokens))


def next_candidates(model: AutoregressiveModel, text: Text, state: State, count: int) -> Candidates:
    """The best candidates after decoding one new token per row."""
    if isinstance(model, TopKModel):
        return Candidates.from_topk(model.step_topk(text, state, count))
    return Candidates.from_topk(topk_tokens(model.step(text, state)[:, -1], count))


def _upcast(scores: Tensor) -> Tensor:
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
