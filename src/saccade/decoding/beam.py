"""Beam search: the best few beginnings are kept at every step, and the best few texts at the end, each with its score.

    for found in search(model, batch, Bounds(stop=2, limit=64), Beams(4, length_penalty=0.6), best=3):
        found[0].tokens, found[0].score             # the best of one row; found[1] is the next best

The score of a text is the sum of its log-probabilities divided by length ** length_penalty, where the length counts the token
that stopped it, and plus the coverage penalty where one is asked for. Whole texts are compared by it; running ones by their
sums, since they are equally long. It serves every writer: what it needs is `start`, `step` and a `State` that can be
reordered. Scores are those of the `transformers` package. Put the model into evaluation first.
"""

import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from saccade.data import Batch, Text
from saccade.decoding.bounds import Bounds
from saccade.decoding.cover import watching
from saccade.decoding.loop import begin
from saccade.decoding.offers import Offer, Scores, Shape, following, ranked
from saccade.decoding.rules import Sofar
from saccade.decoding.settings import STEEPEST
from saccade.decoding.stop import Written
from saccade.errors import UsageError
from saccade.models.family import AutoregressiveModel
from saccade.parts.state import State

Enough = Literal["first", "likely", "sure"]


@dataclass(frozen=True)
class Beams:
    """How widely is searched, and how whole texts are compared.

    `enough` says when a row is done, once as many texts have ended as there are beams: at once ("first"), when the best
    running one has a worse score now than all of them ("likely"), or when it could not get a better one at any length
    ("sure"). `groups` share the beams; each is told off by `diversity` for a token that an earlier group has just chosen
    (Vijayakumar et al. 2016, arXiv 1610.02424): that decides who goes on and is no part of a score. `coverage` weighs the
    penalty for what was not looked at (Wu et al. 2016, arXiv 1609.08144).
    """

    width: int = 4
    length_penalty: float = 1.0  # 0: the sum alone, which favours short texts; 1: the mean
    coverage: float = 0.0
    groups: int = 1
    diversity: float = 0.0
    enough: Enough = "likely"

    def __post_init__(self) -> None:
        if self.width < 1 or self.groups < 1 or self.width % self.groups:
            raise UsageError(
                f"There is at least one beam, and groups share them evenly; got {self.width} beams in {self.groups} groups."
            )
        if not all(math.isfinite(x) for x in (self.length_penalty, self.coverage, self.diversity)):
            raise UsageError(
                f"Penalties are finite numbers; got length {self.length_penalty}, coverage {self.coverage}, "
                f"diversity {self.diversity}."
            )
        if abs(self.length_penalty) > STEEPEST:
            raise UsageError(
                f"A length penalty is a number from {-STEEPEST:g} to {STEEPEST:g}; got {self.length_penalty}. 1 is the mean."
            )
        if self.coverage < 0 or self.diversity < 0:
            raise UsageError(
                f"Coverage and diversity are 0 or more; got {self.coverage} and {self.diversity}. Leave them out for none."
            )
        if self.diversity and self.groups == 1:
            raise UsageError("Diversity is between groups of beams, and there is one; give two or more groups.")


@dataclass
class Hypothesis(Written):
    """One of the best texts of a row; what `ruled` and `closing` sum up to is what its score is made of."""

    score: float = 0.0


class _Beam(NamedTuple):
    """A beginning: the row of the batch it continues, with which token, and what all its tokens sum up to."""

    row: int
    token: int
    total: float
    own: float = 0.0  # log-probability of the token in the model's own distribution
    ruled: float = 0.0
    before: "_Beam | None" = None

    def logs(self) -> tuple[list[float], list[float]]:
        """The log-probabilities of all its tokens, the model's own and after the rules."""
        found: list[tuple[float, float]] = []
        beam = self
        while beam.before is not None:
            found.append((beam.own, beam.ruled))
            beam = beam.before
        return [own for own, _ in reversed(found)], [ruled for _, ruled in reversed(found)]


@dataclass
class _Pool:
    """The beams of one group of one row: the best of those that have ended."""

    beams: Beams
    width: int
    limit: int
    done: list[Hypothesis] = field(default_factory=list)
    over: bool = False

    def end(self, written: list[int], beam: _Beam, penalty: float, *, stopped: bool, halted: bool) -> None:
        """Take note of a text that is whole, if it is among the best; the token that stopped it is no part of it."""
        score = beam.total / len(written) ** self.beams.length_penalty + penalty
        last = len(written) - stopped
        closing = beam.own if stopped else None
        own, ruled = beam.logs()
        self.done.append(Hypothesis(written[:last], own[:last], ruled[:last], stopped or halted, closing, score=score))
        self.done.sort(key=lambda one: -one.score)
        del self.done[self.width :]

    def settle(self, best: float, length: int) -> None:
        """Take note whether going on is worth it, with `best` as the sum of the best that runs, `length` tokens long."""
        if best == -math.inf or length >= self.limit:
            self.over = True
        if self.over or len(self.done) < self.width:
            return
        alpha = self.beams.length_penalty
        hoped = self.limit if self.beams.enough == "sure" and alpha > 0 else length
        self.over = self.beams.enough == "first" or not best / hoped**alpha > self.done[-1].score


@torch.no_grad()
def search(
    model: AutoregressiveModel,
    batch: Batch,
    bounds: Bounds,
    beams: Beams = Beams(),
    *,
    best: int = 1,
) -> list[list[Hypothesis]]:
    """The `best` texts for each row of the batch, the best first; rules see log-probabilities, and tilt what is summed up."""
    if not 1 <= best <= beams.width:
        raise UsageError(f"{beams.width} beams find 1 to {beams.width} texts, not {best}; give more beams.")
    with watching(model, beams.coverage) as cover:
        state, scores, sofar = begin(model, batch, bounds.limit)
        if not len(scores):
            return []
        cover.begin(state, beams.width)
        run, device = _Run(beams, bounds, *scores.shape), scores.device
        sofar = sofar.pick(row for row in range(len(scores)) for _ in range(beams.width))
        after = run.first(scores, sofar)
        del scores  # of all words, before there are several of everything else
        state.spread(beams.width)
        while chosen := run.choose(after, sofar, cover.penalties()):
            rows, tokens = [beam.row for beam in chosen], [beam.token for beam in chosen]
            if rows != list(range(len(sofar))):
                index = torch.tensor(rows, device=device)
                state.reorder(index)
                cover.reorder(index)
                sofar = sofar.pick(rows)
            sofar = sofar.then(tokens)
            new = Text(torch.tensor(tokens, device=device)[:, None])
            del after  # of all words for all beams: two of them at a time would be the most that a search holds
            after = run.ask(model, new, state, sofar)
            cover.add()
    return run.found(best)


class _Run:
    """One search: the pools of all rows, and the beams that run, in the order of the rows of the state."""

    def __init__(self, beams: Beams, bounds: Bounds, rows: int, vocab: int):
        self.beams, self.bounds, self.stops = beams, bounds, bounds.stops(vocab)
        self.width, self.vocab = beams.width // beams.groups, vocab  # the width is that of a pool
        self.count = self.width * max(2, 1 + len(self.stops))  # enough that `width` go on whatever ends
        self.few = not bounds.rules and not beams.diversity  # whether the best few words are all that is needed
        self.pools = [[_Pool(beams, self.width, bounds.limit) for _ in range(beams.groups)] for _ in range(rows)]
        self.live = list(self.pools)
        first = [_Beam(0, 0, 0.0), *[_Beam(0, 0, -math.inf)] * (self.width - 1)]
        self.running = first * beams.groups * rows  # at first the beams of a pool are one

    def first(self, scores: Tensor, sofar: Sofar) -> Offer | Scores:
        """What follows the beams while those of a row are alike: its scores are (B, V)."""
        if self.few:
            return Offer.of(ranked(scores, self.count)).spread(self.beams.width)
        return Scores(scores.repeat_interleave(self.beams.width, dim=0), self.bounds.rules, sofar)

    def ask(self, model: AutoregressiveModel, new: Text, state: State, sofar: Sofar) -> Offer | Scores:
        """What follows the new token of each beam."""
        if self.few:
            return following(model, new, state, self.count)
        return Scores(model.step(new, state)[:, -1], self.bounds.rules, sofar)

    def choose(self, after: Offer | Scores, sofar: Sofar, penalties: list[float] | None) -> list[_Beam]:
        """The beams that go on, with the row and the token that each goes on with; none: all rows are done."""
        shape = Shape(len(self.live), self.beams.groups, self.width)
        sums = torch.tensor([beam.total for beam in self.running], dtype=torch.float64)
        taken = after.own.new_zeros(shape.live, self.vocab) if self.beams.diversity else None
        next_beams: list[list[_Beam]] = [[] for _ in self.live]
        for group in range(shape.groups):
            away = None if taken is None else taken * self.beams.diversity
            found = self._candidates(after.part(shape, group, away, self.count), shape.part(sums, group), group)
            for number, (pools, candidates) in enumerate(zip(self.live, found, strict=True)):
                next_beams[number] += self._advance(pools[group], candidates, sofar, penalties)
                if taken is not None:
                    for beam in candidates[: self.width]:
                        taken[number, beam.token] += beam.total > -math.inf
        kept = [number for number, pools in enumerate(self.live) if not all(pool.over for pool in pools)]
        self.live = [self.live[number] for number in kept]
        self.running = [beam for number in kept for beam in next_beams[number]]
        return self.running

    def _candidates(self, offer: Offer, sums: Tensor, group: int) -> list[list[_Beam]]:
        """The best continuations of each pool, the best first: enough that `width` go on whatever ends."""
        sums = sums.to(offer.judged)  # (live, width, 1)
        ranked = (offer.judged + sums).flatten(1)
        at = ranked.topk(min(self.count, ranked.size(1))).indices  # (live, count)
        place = at // offer.tokens.size(-1)
        rows = torch.arange(len(at), device=at.device)[:, None] * self.beams.width + group * self.width + place
        tokens, own, ruled = (x.flatten(1).gather(1, at) for x in (offer.tokens, offer.own, offer.ruled))
        totals = ruled + sums[..., 0].gather(1, place)
        parts = (x.tolist() for x in (rows, tokens, totals, own, ruled))
        return [list(map(self._then, *part)) for part in zip(*parts, strict=True)]

    def _then(self, row: int, token: int, total: float, own: float, ruled: float) -> _Beam:
        return _Beam(row, token, total, own, ruled, self.running[row])

    def _advance(
        self, pool: _Pool, candidates: list[_Beam], sofar: Sofar, penalties: list[float] | None
    ) -> list[_Beam]:
        """End those that end, among the best `width`, and return the best `width` of the others."""
        possible = [] if pool.over else [beam for beam in candidates if beam.total > -math.inf]
        halted = self._halted(possible, sofar)
        goes: list[_Beam] = []
        length = 1 + len(sofar.written[possible[0].row]) if possible else 0
        for rank, (beam, halt) in enumerate(zip(possible, halted, strict=True)):
            stopped = beam.token in self.stops
            if not (stopped or halt or length == self.bounds.limit):
                goes.append(beam)
            elif rank < self.width:
                penalty = 0.0 if penalties is None else penalties[beam.row]
                written = [*sofar.written[beam.row], beam.token]
                pool.end(written, beam, penalty, stopped=stopped, halted=halt)
        pool.settle(goes[0].total if goes else -math.inf, length)
        idle = _Beam(candidates[0].row, candidates[0].token, -math.inf)  # keeps the rows of a pool together
        return (goes + [idle] * self.width)[: self.width]

    def _halted(self, possible: list[_Beam], sofar: Sofar) -> list[bool]:
        """Which of them end for reasons of their own."""
        if self.bounds.until is None:
            return [False] * len(possible)
        rows = sofar.pick([beam.row for beam in possible])
        return self.bounds.over(rows.then([beam.token for beam in possible]))

    def found(self, best: int) -> list[list[Hypothesis]]:
        """The best texts of each row."""
        out = [sorted((one for pool in pools for one in pool.done), key=lambda one: -one.score) for pools in self.pools]
        for number, texts in enumerate(out):
            if not texts:
                raise UsageError(
                    f"Row {number}: nothing could be written. Every token is forbidden by the rules together, so take one of "
                    "them away; or the model's scores are no numbers, and its weights have diverged."
                )
        return [texts[:best] for texts in out]
