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
from saccade.decoding.highest import highest, log_probability
from saccade.decoding.rules import Ruling, Sofar
from saccade.models.family import AutoregressiveModel
from saccade.parts.state import State

Best = tuple[
    Tensor, Tensor, Tensor
]  # scores (B, N), the highest first, their tokens, and the highest's log-probability (B,)


@runtime_checkable
class Ranking(Protocol):
    """A writer that ranks its words itself."""

    @property
    def ranks(self) -> bool:
        """Whether that spares it the scores of all words."""
        ...

    def best(self, text: Text, state: State, count: int) -> Best:
        """One new token a row, (B, 1): the best few of what follows it."""
        ...


def ranked(scores: Tensor, count: int) -> Best:
    """The best few of scores (B, V).

    >>> values, tokens, chances = ranked(torch.tensor([[1.0, 2.0, 4.0]]).log(), 1)
    >>> tokens, chances.exp()
    (tensor([[2]]), tensor([0.5714]))
    """
    scores = _wide(scores)
    values, tokens = highest(scores, count)
    return values, tokens, log_probability(scores, tokens[:, :1])[:, 0]


@dataclass(frozen=True)
class Shape:
    """How rows are beams: so many rows of a batch, each with groups of so many beams."""

    live: int
    groups: int
    width: int

    def part(self, x: Tensor, group: int) -> Tensor:
        """One group of all rows, (live, width, ...)."""
        return x.view(self.live, self.groups, self.width, -1)[:, group]


@dataclass(frozen=True)
class Offer:
    """A few words after each row: what they are judged by, and their log-probabilities after the rules and before."""

    tokens: Tensor
    judged: Tensor
    ruled: Tensor
    own: Tensor

    @staticmethod
    def of(found: Best) -> "Offer":
        """What was ranked, and no rule has changed."""
        values, tokens, chances = found
        logs = values - values[:, :1] + chances[:, None]
        return Offer(tokens, logs, logs, logs)

    def spread(self, times: int) -> "Offer":
        """The same for so many rows instead of each."""
        return Offer(*(x.repeat_interleave(times, dim=0) for x in (self.tokens, self.judged, self.ruled, self.own)))

    def part(self, shape: Shape, group: int, away: Tensor | None, count: int) -> "Offer":
        """What is offered to one group; what others have taken (`away`) was not asked for."""
        return Offer(*(shape.part(x, group) for x in (self.tokens, self.judged, self.ruled, self.own)))


class Scores:
    """The log-probabilities of all words, before the rules and after them."""

    def __init__(self, scores: Tensor, rules: Sequence[Ruling], sofar: Sofar):
        self.own = self.ruled = _wide(scores).log_softmax(-1)
        for rule in rules:
            self.ruled = rule(self.ruled, sofar)

    def part(self, shape: Shape, group: int, away: Tensor | None, count: int) -> Offer:
        """What is offered to one group of beams, if they avoid what is in the way of (live, V) words by so much."""
        own, ruled = shape.part(self.own, group), shape.part(self.ruled, group)
        judged, tokens = highest(ruled if away is None else ruled - away[:, None], count)  # (live, width, count)
        return Offer(tokens, judged, ruled.gather(-1, tokens), own.gather(-1, tokens))


def following(model: AutoregressiveModel, text: Text, state: State, count: int) -> Offer:
    """The best few words after one new token a row."""
    if isinstance(model, Ranking):
        return Offer.of(model.best(text, state, count))
    return Offer.of(ranked(model.step(text, state)[:, -1], count))


def _wide(scores: Tensor) -> Tensor:
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
