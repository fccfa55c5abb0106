"""What a search is offered to go on with after each of its beams: the best few words, with their log-probabilities.

Where all scores are needed, for rules or for groups that avoid each other, `Scores` picks them; otherwise the writer may rank
its words itself, so that the scores of all of them are never there together.
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
]  # scores (B, N), the highest first, their tokens, and the highest's log-probability (B,)


@runtime_checkable
class TopKModel(Protocol):
    """A writer that ranks its words itself."""

    @property
    def has_fused_topk(self) -> bool:
        """Whether that spares it the scores of all words."""
        ...

    def step_topk(self, text: Text, state: State, count: int) -> TopKTokens:
        """One new token a row, (B, 1): the best few of what follows it."""
        ...


def topk_tokens(scores: Tensor, count: int) -> TopKTokens:
    """The best few of scores (B, V).

    >>> values, tokens, chances = topk_tokens(torch.tensor([[1.0, 2.0, 4.0]]).log(), 1)
    >>> tokens, chances.exp()
    (tensor([[2]]), tensor([0.5714]))
    """
    scores = _upcast(scores)
    values, tokens = topk(scores, count)
    return values, tokens, token_logprobs(scores, tokens[:, :1])[:, 0]


@dataclass(frozen=True)
class BeamShape:
    """How rows are beams: so many rows of a batch, each with groups of so many beams."""

    rows: int
    groups: int
    beams_per_group: int

    def select_group(self, x: Tensor, group: int) -> Tensor:
        """One group of all rows, (live, width, ...)."""
        return x.view(self.rows, self.groups, self.beams_per_group, -1)[:, group]


@dataclass(frozen=True)
class Candidates:
    """A few words after each row: what they are judged by, and their log-probabilities after the rules and before."""

    tokens: Tensor
    ranking_scores: Tensor
    processed_logprobs: Tensor
    logprobs: Tensor

    @staticmethod
    def from_topk(topk: TopKTokens) -> "Candidates":
        """What was ranked, and no rule has changed."""
        values, tokens, chances = topk
        logs = values - values[:, :1] + chances[:, None]
        return Candidates(tokens, logs, logs, logs)

    def expand_rows(self, times: int) -> "Candidates":
        """The same for so many rows instead of each."""
        return Candidates(
            *(
                x.repeat_interleave(times, dim=0)
                for x in (self.tokens, self.ranking_scores, self.processed_logprobs, self.logprobs)
            )
        )

    def select_group(
        self, shape: BeamShape, group: int, diversity_penalties: Tensor | None, count: int
    ) -> "Candidates":
        """What is offered to one group; what others have taken (`away`) was not asked for."""
        return Candidates(
            *(
                shape.select_group(x, group)
                for x in (self.tokens, self.ranking_scores, self.processed_logprobs, self.logprobs)
            )
        )


class VocabLogprobs:
    """The log-probabilities of all words, before the rules and after them."""

    def __init__(self, scores: Tensor, processors: Sequence[LogitsProcessor], history: TokenHistory):
        self.logprobs = self.processed_logprobs = _upcast(scores).log_softmax(-1)
        for rule in processors:
            self.processed_logprobs = rule(self.processed_logprobs, history)

    def select_group(self, shape: BeamShape, group: int, diversity_penalties: Tensor | None, count: int) -> Candidates:
        """What is offered to one group of beams, if they avoid what is in the way of (live, V) words by so much."""
        own, ruled = shape.select_group(self.logprobs, group), shape.select_group(self.processed_logprobs, group)
        judged, tokens = topk(
            ruled if diversity_penalties is None else ruled - diversity_penalties[:, None], count
        )  # (live, width, count)
        return Candidates(tokens, judged, ruled.gather(-1, tokens), own.gather(-1, tokens))


def next_candidates(model: AutoregressiveModel, text: Text, state: State, count: int) -> Candidates:
    """The best few words after one new token a row."""
    if isinstance(model, TopKModel):
        return Candidates.from_topk(model.step_topk(text, state, count))
    return Candidates.from_topk(topk_tokens(model.step(text, state)[:, -1], count))


def _upcast(scores: Tensor) -> Tensor:
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
