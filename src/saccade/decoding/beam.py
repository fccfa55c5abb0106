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
from saccade.decoding.candidates import BeamShape, Candidates, VocabLogprobs, next_candidates, topk_tokens
from saccade.decoding.config import MAX_LENGTH_PENALTY
from saccade.decoding.coverage import watch_coverage
from saccade.decoding.logits_processors import TokenHistory
from saccade.decoding.loop import prefill
from saccade.decoding.stop_strings import GeneratedText
from saccade.decoding.stopping import StoppingCriteria
from saccade.errors import UsageError
from saccade.models.family import AutoregressiveModel
from saccade.parts.state import State

BeamStopping = Literal["first", "heuristic", "exact"]


@dataclass(frozen=True)
class BeamConfig:
    """How widely is searched, and how whole texts are compared.

    `early_stopping` says when a row is done, once as many texts have ended as there are beams: at once ("first"), when the best
    running one has a worse score now than all of them ("heuristic"), or when it could not get a better one at any length
    ("exact"). `beam_groups` share the beams; each is told off by `diversity_penalty` for a token that an earlier group has
    just chosen (Vijayakumar et al. 2016, arXiv 1610.02424): that decides who goes on and is no part of a score.
    `coverage_penalty` weighs the penalty for what was not looked at (Wu et al. 2016, arXiv 1609.08144).
    """

    beams: int = 4
    length_penalty: float = 1.0  # 0: the sum alone, which favours short texts; 1: the mean
    coverage_penalty: float = 0.0
    beam_groups: int = 1
    diversity_penalty: float = 0.0
    early_stopping: BeamStopping = "heuristic"

    def __post_init__(self) -> None:
        if self.beams < 1 or self.beam_groups < 1 or self.beams % self.beam_groups:
            raise UsageError(
                f"There is at least one beam, and groups share them evenly; got {self.beams} beams in {self.beam_groups} groups."
            )
        if not all(math.isfinite(x) for x in (self.length_penalty, self.coverage_penalty, self.diversity_penalty)):
            raise UsageError(
                f"Penalties are finite numbers; got length {self.length_penalty}, coverage {self.coverage_penalty}, "
                f"diversity {self.diversity_penalty}."
            )
        if abs(self.length_penalty) > MAX_LENGTH_PENALTY:
            raise UsageError(
                f"A length penalty is a number from {-MAX_LENGTH_PENALTY:g} to {MAX_LENGTH_PENALTY:g}; got "
                f"{self.length_penalty}. 1 is the mean."
            )
        if self.coverage_penalty < 0 or self.diversity_penalty < 0:
            raise UsageError(
                f"Coverage and diversity are 0 or more; got {self.coverage_penalty} and {self.diversity_penalty}. "
                "Leave them out for none."
            )
        if self.diversity_penalty and self.beam_groups == 1:
            raise UsageError("Diversity is between groups of beams, and there is one; give two or more groups.")


@dataclass
class Hypothesis(GeneratedText):
    """One of the best texts of a row; what `processed_logprobs` and `stop_logprob` sum up to is what its score is made of."""

    score: float = 0.0


class _Beam(NamedTuple):
    """A beginning: the row of the batch it continues, with which token, and what all its tokens sum up to."""

    row: int
    token: int
    logprob_sum: float
    logprob: float = 0.0  # log-probability of the token in the model's own distribution
    processed_logprob: float = 0.0
    previous: "_Beam | None" = None

    def logprobs(self) -> tuple[list[float], list[float]]:
        """The log-probabilities of all its tokens, the model's own and after the rules."""
        found: list[tuple[float, float]] = []
        beam = self
        while beam.previous is not None:
            found.append((beam.logprob, beam.processed_logprob))
            beam = beam.previous
        return [own for own, _ in reversed(found)], [ruled for _, ruled in reversed(found)]


@dataclass
class _BeamHypotheses:
    """The beams of one group of one row: the best of those that have ended."""

    config: BeamConfig
    size: int
    max_new_tokens: int
    hypotheses: list[Hypothesis] = field(default_factory=list)
    is_done: bool = False

    def add(self, tokens: list[int], beam: _Beam, penalty: float, *, hit_stop_id: bool, meets_condition: bool) -> None:
        """Take note of a text that is whole, if it is among the best; the token that stopped it is no part of it."""
        score = beam.logprob_sum / len(tokens) ** self.config.length_penalty + penalty
        last = len(tokens) - hit_stop_id
        closing = beam.logprob if hit_stop_id else None
        own, ruled = beam.logprobs()
        self.hypotheses.append(
            Hypothesis(tokens[:last], own[:last], ruled[:last], hit_stop_id or meets_condition, closing, score=score)
        )
        self.hypotheses.sort(key=lambda one: -one.score)
        del self.hypotheses[self.size :]

    def update_is_done(self, best_sum: float, length: int) -> None:
        """Take note whether going on is worth it, with `best_sum` as the sum of the best that runs, `length` tokens long."""
        if best_sum == -math.inf or length >= self.max_new_tokens:
            self.is_done = True
        if self.is_done or len(self.hypotheses) < self.size:
            return
        alpha = self.config.length_penalty
        hoped = self.max_new_tokens if self.config.early_stopping == "exact" and alpha > 0 else length
        self.is_done = self.config.early_stopping == "first" or not best_sum / hoped**alpha > self.hypotheses[-1].score


@torch.no_grad()
def beam_search(
    model: AutoregressiveModel,
    batch: Batch,
    criteria: StoppingCriteria,
    config: BeamConfig = BeamConfig(),
    *,
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    """The `n_best` texts for each row of the batch, the best first; rules see log-probabilities, and tilt what is summed up."""
    if not 1 <= n_best <= config.beams:
        raise UsageError(f"{config.beams} beams find 1 to {config.beams} texts, not {n_best}; give more beams.")
    with watch_coverage(model, config.coverage_penalty) as cover:
        state, scores, sofar = prefill(model, batch, criteria.max_new_tokens)
        if not len(scores):
            return []
        cover.start(state, config.beams)
        run, device = _BeamSearch(config, criteria, *scores.shape), scores.device
        sofar = sofar.select_rows(row for row in range(len(scores)) for _ in range(config.beams))
        after = run.first_candidates(scores, sofar)
        del scores  # of all words, before there are several of everything else
        state.expand_rows(config.beams)
        while chosen := run.select_beams(after, sofar, cover.penalties()):
            rows, tokens = [beam.row for beam in chosen], [beam.token for beam in chosen]
            if rows != list(range(len(sofar))):
                index = torch.tensor(rows, device=device)
                state.reorder(index)
                cover.reorder(index)
                sofar = sofar.select_rows(rows)
            sofar = sofar.append(tokens)
            new = Text(torch.tensor(tokens, device=device)[:, None])
            del after  # of all words for all beams: two of them at a time would be the most that a search holds
            after = run.step_candidates(model, new, state, sofar)
            cover.add_step()
    return run.best_hypotheses(n_best)


class _BeamSearch:
    """One search: the pools of all rows, and the beams that run, in the order of the rows of the state."""

    def __init__(self, config: BeamConfig, criteria: StoppingCriteria, batch_size: int, vocab: int):
        self.config, self.criteria, self.stop_ids = config, criteria, criteria.resolve_stop_ids(vocab)
        self.beams_per_group, self.vocab = config.beams // config.beam_groups, vocab  # the width is that of a pool
        self.candidate_count = self.beams_per_group * max(
            2, 1 + len(self.stop_ids)
        )  # enough that `width` go on whatever ends
        self.needs_topk_only = (
            not criteria.processors and not config.diversity_penalty
        )  # whether the best few words are all that is needed
        self.hypotheses = [
            [_BeamHypotheses(config, self.beams_per_group, criteria.max_new_tokens) for _ in range(config.beam_groups)]
            for _ in range(batch_size)
        ]
        self.unfinished_rows = list(self.hypotheses)
        first = [_Beam(0, 0, 0.0), *[_Beam(0, 0, -math.inf)] * (self.beams_per_group - 1)]
        self.active_beams = first * config.beam_groups * batch_size  # at first the beams of a pool are one

    def first_candidates(self, scores: Tensor, history: TokenHistory) -> Candidates | VocabLogprobs:
        """What follows the beams while those of a row are alike: its scores are (B, V)."""
        if self.needs_topk_only:
            return Candidates.from_topk(topk_tokens(scores, self.candidate_count)).expand_rows(self.config.beams)
        return VocabLogprobs(scores.repeat_interleave(self.config.beams, dim=0), self.criteria.processors, history)

    def step_candidates(
        self, model: AutoregressiveModel, new: Text, state: State, history: TokenHistory
    ) -> Candidates | VocabLogprobs:
        """What follows the new token of each beam."""
        if self.needs_topk_only:
            return next_candidates(model, new, state, self.candidate_count)
        return VocabLogprobs(model.step(new, state)[:, -1], self.criteria.processors, history)

    def select_beams(
        self, continuations: Candidates | VocabLogprobs, history: TokenHistory, penalties: list[float] | None
    ) -> list[_Beam]:
        """The beams that go on, with the row and the token that each goes on with; none: all rows are done."""
        shape = BeamShape(len(self.unfinished_rows), self.config.beam_groups, self.beams_per_group)
        sums = torch.tensor([beam.logprob_sum for beam in self.active_beams], dtype=torch.float64)
        taken = continuations.logprobs.new_zeros(shape.rows, self.vocab) if self.config.diversity_penalty else None
        next_beams: list[list[_Beam]] = [[] for _ in self.unfinished_rows]
        for group in range(shape.groups):
            away = None if taken is None else taken * self.config.diversity_penalty
            found = self._rank_candidates(
                continuations.select_group(shape, group, away, self.candidate_count),
                shape.select_group(sums, group),
                group,
            )
            for number, (pools, candidates) in enumerate(zip(self.unfinished_rows, found, strict=True)):
                next_beams[number] += self._split_finished(pools[group], candidates, history, penalties)
                if taken is not None:
                    for beam in candidates[: self.beams_per_group]:
                        taken[number, beam.token] += beam.logprob_sum > -math.inf
        kept = [number for number, pools in enumerate(self.unfinished_rows) if not all(pool.is_done for pool in pools)]
        self.unfinished_rows = [self.unfinished_rows[number] for number in kept]
        self.active_beams = [beam for number in kept for beam in next_beams[number]]
        return self.active_beams

    def _rank_candidates(self, candidates: Candidates, sums: Tensor, group: int) -> list[list[_Beam]]:
        """The best continuations of each pool, the best first: enough that `width` go on whatever ends."""
        sums = sums.to(candidates.ranking_scores)  # (live, width, 1)
        ranked = (candidates.ranking_scores + sums).flatten(1)
        at = ranked.topk(min(self.candidate_count, ranked.size(1))).indices  # (live, count)
        place = at // candidates.tokens.size(-1)
        rows = (
            torch.arange(len(at), device=at.device)[:, None] * self.config.beams + group * self.beams_per_group + place
        )
        tokens, own, ruled = (
            x.flatten(1).gather(1, at) for x in (candidates.tokens, candidates.logprobs, candidates.processed_logprobs)
        )
        totals = ruled + sums[..., 0].gather(1, place)
        parts = (x.tolist() for x in (rows, tokens, totals, own, ruled))
        return [list(map(self._extend_beam, *part)) for part in zip(*parts, strict=True)]

    def _extend_beam(self, row: int, token: int, logprob_sum: float, logprob: float, processed_logprob: float) -> _Beam:
        return _Beam(row, token, logprob_sum, logprob, processed_logprob, self.active_beams[row])

    def _split_finished(
        self, pool: _BeamHypotheses, candidates: list[_Beam], history: TokenHistory, penalties: list[float] | None
    ) -> list[_Beam]:
        """End those that end, among the best `width`, and return the best `width` of the others."""
        possible = [] if pool.is_done else [beam for beam in candidates if beam.logprob_sum > -math.inf]
        halted = self._meet_stop_condition(possible, history)
        goes: list[_Beam] = []
        length = 1 + len(history.new_tokens[possible[0].row]) if possible else 0
        for rank, (beam, halt) in enumerate(zip(possible, halted, strict=True)):
            stopped = beam.token in self.stop_ids
            if not (stopped or halt or length == self.criteria.max_new_tokens):
                goes.append(beam)
            elif rank < self.beams_per_group:
                penalty = 0.0 if penalties is None else penalties[beam.row]
                written = [*history.new_tokens[beam.row], beam.token]
                pool.add(written, beam, penalty, hit_stop_id=stopped, meets_condition=halt)
        pool.update_is_done(goes[0].logprob_sum if goes else -math.inf, length)
        idle = _Beam(candidates[0].row, candidates[0].token, -math.inf)  # keeps the rows of a pool together
        return (goes + [idle] * self.beams_per_group)[: self.beams_per_group]

    def _meet_stop_condition(self, possible: list[_Beam], history: TokenHistory) -> list[bool]:
        """Which of them end for reasons of their own."""
        if self.criteria.stop_condition is None:
            return [False] * len(possible)
        rows = history.select_rows([beam.row for beam in possible])
        return self.criteria.finished_rows(rows.append([beam.token for beam in possible]))

    def best_hypotheses(self, n_best: int) -> list[list[Hypothesis]]:
        """The best texts of each row."""
        out = [
            sorted((one for pool in pools for one in pool.hypotheses), key=lambda one: -one.score)
            for pools in self.hypotheses
        ]
        for number, texts in enumerate(out):
            if not texts:
                raise UsageError(
                    f"Row {number}: nothing could be written. Every token is forbidden by the rules together, so take one of "
                    "them away; or the model's scores are no numbers, and its weights have diverged."
                )
        return [texts[:n_best] for texts in out]
