"""Beam search: keeps the most likely partial texts at every step, and returns the best finished texts with their scores.

    criteria = StoppingCriteria(stop_ids=2, max_new_tokens=64)
    for hypotheses in beam_search(model, batch, criteria, BeamConfig(4, length_penalty=0.6), n_best=3):
        hypotheses[0].tokens, hypotheses[0].score   # the best of one row; hypotheses[1] is the second best

The score of a text is the sum of its log-probabilities divided by length ** length_penalty, plus the coverage penalty if
there is one; the length includes the stop token. Finished texts are compared by score, running ones by their sums, since
they are equally long. Beam search works with every autoregressive model: it needs `start`, `step` and a `State` that can
be reordered. Scores equal those of the `transformers` package. Call `model.eval()` first.
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
    """Settings of beam search.

    `early_stopping` decides when a row with as many finished texts as beams is done: at once ("first"), when the best
    running text scores worse than all finished ones ("heuristic"), or when it could not score better at any length
    ("exact"). In diverse beam search the beams are divided into `beam_groups`, and a token that an earlier group has just
    chosen costs `diversity_penalty` (Vijayakumar et al. 2016, arXiv 1610.02424); this affects which beams continue, not
    the scores. `coverage_penalty` is the weight of the penalty for source tokens that got little attention (Wu et al.
    2016, arXiv 1609.08144).
    """

    beams: int = 4
    length_penalty: float = 1.0  # 0: the sum of log-probabilities, which favors short texts; 1: their mean
    coverage_penalty: float = 0.0
    beam_groups: int = 1
    diversity_penalty: float = 0.0
    early_stopping: BeamStopping = "heuristic"

    def __post_init__(self) -> None:
        if self.beams < 1 or self.beam_groups < 1 or self.beams % self.beam_groups:
            raise UsageError(
                f"At least one beam and beam groups of equal size are needed; got {self.beams} beams in {self.beam_groups} "
                "groups."
            )
        if not all(math.isfinite(x) for x in (self.length_penalty, self.coverage_penalty, self.diversity_penalty)):
            raise UsageError(
                f"Penalties must be finite numbers; got length {self.length_penalty}, coverage {self.coverage_penalty}, "
                f"diversity {self.diversity_penalty}."
            )
        if abs(self.length_penalty) > MAX_LENGTH_PENALTY:
            raise UsageError(
                f"The length penalty must be from {-MAX_LENGTH_PENALTY:g} to {MAX_LENGTH_PENALTY:g}; got "
                f"{self.length_penalty}. 1 compares texts by their mean log-probability."
            )
        if self.coverage_penalty < 0 or self.diversity_penalty < 0:
            raise UsageError(
                f"Coverage and diversity penalty must be 0 or more; got {self.coverage_penalty} and {self.diversity_penalty}. "
                "0 disables them."
            )
        if self.diversity_penalty and self.beam_groups == 1:
            raise UsageError(
                "The diversity penalty applies between beam groups, and there is only one; set beam_groups to 2 or more."
            )


@dataclass
class Hypothesis(GeneratedText):
    """One of the best texts of a row; its score is computed from the sum of `processed_logprobs` and `stop_logprob`."""

    score: float = 0.0


class _Beam(NamedTuple):
    """A running beam: the row of the state that it extends, its newest token, and the sum of its log-probabilities."""

    row: int
    token: int
    logprob_sum: float
    logprob: float = 0.0  # log-probability of the token in the model's own distribution
    processed_logprob: float = 0.0
    previous: "_Beam | None" = None

    def logprobs(self) -> tuple[list[float], list[float]]:
        """The log-probabilities of all its tokens, by the model and after the logits processors."""
        pairs: list[tuple[float, float]] = []
        beam = self
        while beam.previous is not None:
            pairs.append((beam.logprob, beam.processed_logprob))
            beam = beam.previous
        return [logprob for logprob, _ in reversed(pairs)], [processed for _, processed in reversed(pairs)]


@dataclass
class _BeamHypotheses:
    """The best finished texts of one beam group of one row."""

    config: BeamConfig
    size: int
    max_new_tokens: int
    hypotheses: list[Hypothesis] = field(default_factory=list)
    is_done: bool = False

    def add(self, tokens: list[int], beam: _Beam, penalty: float, *, hit_stop_id: bool, meets_condition: bool) -> None:
        """Add a finished text if it is among the best; its stop token is dropped."""
        score = beam.logprob_sum / len(tokens) ** self.config.length_penalty + penalty
        end = len(tokens) - hit_stop_id
        stop_logprob = beam.logprob if hit_stop_id else None
        logprobs, processed = beam.logprobs()
        hit_stop = hit_stop_id or meets_condition
        self.hypotheses.append(
            Hypothesis(tokens[:end], logprobs[:end], processed[:end], hit_stop, stop_logprob, score=score)
        )
        self.hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
        del self.hypotheses[self.size :]

    def update_is_done(self, best_sum: float, length: int) -> None:
        """Decide whether the search may stop, given the best sum of the running beams, which are `length` tokens long."""
        if best_sum == -math.inf or length >= self.max_new_tokens:
            self.is_done = True
        if self.is_done or len(self.hypotheses) < self.size:
            return
        alpha = self.config.length_penalty
        best_length = self.max_new_tokens if self.config.early_stopping == "exact" and alpha > 0 else length
        can_improve = best_sum / best_length**alpha > self.hypotheses[-1].score
        self.is_done = self.config.early_stopping == "first" or not can_improve


@torch.no_grad()
def beam_search(
    model: AutoregressiveModel,
    batch: Batch,
    criteria: StoppingCriteria,
    config: BeamConfig = BeamConfig(),
    *,
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    """Find the `n_best` texts for each row of the batch, best first; logits processors are applied to log-probabilities."""
    if not 1 <= n_best <= config.beams:
        raise UsageError(f"{config.beams} beams give 1 to {config.beams} texts, not n_best={n_best}; use more beams.")
    with watch_coverage(model, config.coverage_penalty) as coverage:
        state, scores, history = prefill(model, batch, criteria.max_new_tokens)
        if not len(scores):
            return []
        coverage.start(state, config.beams)
        search, device = _BeamSearch(config, criteria, *scores.shape), scores.device
        history = history.select_rows(row for row in range(len(scores)) for _ in range(config.beams))
        candidates = search.first_candidates(scores, history)
        del scores  # frees (B, V) before the state grows by the number of beams
        state.expand_rows(config.beams)
        while beams := search.select_beams(candidates, history, coverage.penalties()):
            rows, tokens = [beam.row for beam in beams], [beam.token for beam in beams]
            if rows != list(range(len(history))):
                index = torch.tensor(rows, device=device)
                state.reorder(index)
                coverage.reorder(index)
                history = history.select_rows(rows)
            history = history.append(tokens)
            new = Text(torch.tensor(tokens, device=device)[:, None])
            del candidates  # (beams, V) scores of this step, before those of the next are computed
            candidates = search.step_candidates(model, new, state, history)
            coverage.add_step()
    return search.best_hypotheses(n_best)


class _BeamSearch:
    """The state of one beam search: finished texts of all rows, and running beams in the order of the rows of the state."""

    def __init__(self, config: BeamConfig, criteria: StoppingCriteria, batch_size: int, vocab: int):
        self.config, self.criteria, self.stop_ids = config, criteria, criteria.resolve_stop_ids(vocab)
        self.beams_per_group, self.vocab = config.beams // config.beam_groups, vocab
        # enough that `beams_per_group` continue even if all others end with a stop token
        self.candidate_count = self.beams_per_group * max(2, 1 + len(self.stop_ids))
        # without logits processors and diversity the scores of the whole vocabulary are not needed
        self.needs_topk_only = not criteria.processors and not config.diversity_penalty
        self.hypotheses = [
            [_BeamHypotheses(config, self.beams_per_group, criteria.max_new_tokens) for _ in range(config.beam_groups)]
            for _ in range(batch_size)
        ]
        self.unfinished_rows = list(self.hypotheses)
        first = [_Beam(0, 0, 0.0), *[_Beam(0, 0, -math.inf)] * (self.beams_per_group - 1)]
        self.active_beams = first * config.beam_groups * batch_size  # at first all beams of a group are equal

    def first_candidates(self, scores: Tensor, history: TokenHistory) -> Candidates | VocabLogprobs:
        """Candidates after prefill, where all beams of a row share its scores (B, V)."""
        if self.needs_topk_only:
            return Candidates.from_topk(topk_tokens(scores, self.candidate_count)).expand_rows(self.config.beams)
        return VocabLogprobs(scores.repeat_interleave(self.config.beams, dim=0), self.criteria.processors, history)

    def step_candidates(
        self, model: AutoregressiveModel, new: Text, state: State, history: TokenHistory
    ) -> Candidates | VocabLogprobs:
        """Candidates after one decoding step with the new token of each beam."""
        if self.needs_topk_only:
            return next_candidates(model, new, state, self.candidate_count)
        return VocabLogprobs(model.step(new, state)[:, -1], self.criteria.processors, history)

    def select_beams(
        self, continuations: Candidates | VocabLogprobs, history: TokenHistory, penalties: list[float] | None
    ) -> list[_Beam]:
        """Choose the beams that continue, each with its row and its next token; empty when all rows are done."""
        shape = BeamShape(len(self.unfinished_rows), self.config.beam_groups, self.beams_per_group)
        sums = torch.tensor([beam.logprob_sum for beam in self.active_beams], dtype=torch.float64)
        chosen_counts = (
            continuations.logprobs.new_zeros(shape.rows, self.vocab) if self.config.diversity_penalty else None
        )
        next_beams: list[list[_Beam]] = [[] for _ in self.unfinished_rows]
        for group in range(shape.groups):
            penalty = None if chosen_counts is None else chosen_counts * self.config.diversity_penalty
            ranked = self._rank_candidates(
                continuations.select_group(shape, group, penalty, self.candidate_count),
                shape.select_group(sums, group),
                group,
            )
            for row, (groups, candidates) in enumerate(zip(self.unfinished_rows, ranked, strict=True)):
                next_beams[row] += self._split_finished(groups[group], candidates, history, penalties)
                if chosen_counts is not None:
                    for beam in candidates[: self.beams_per_group]:
                        chosen_counts[row, beam.token] += beam.logprob_sum > -math.inf
        kept = [row for row, groups in enumerate(self.unfinished_rows) if not all(group.is_done for group in groups)]
        self.unfinished_rows = [self.unfinished_rows[row] for row in kept]
        self.active_beams = [beam for row in kept for beam in next_beams[row]]
        return self.active_beams

    def _rank_candidates(self, candidates: Candidates, sums: Tensor, group: int) -> list[list[_Beam]]:
        """The `candidate_count` best continuations of one group of each row, in descending order."""
        sums = sums.to(candidates.ranking_scores)  # (rows, beams_per_group, 1)
        totals = (candidates.ranking_scores + sums).flatten(1)
        at = totals.topk(min(self.candidate_count, totals.size(1))).indices  # (rows, count)
        beam = at // candidates.tokens.size(-1)
        first_row = torch.arange(len(at), device=at.device)[:, None] * self.config.beams + group * self.beams_per_group
        tokens, logprobs, processed = (
            x.flatten(1).gather(1, at) for x in (candidates.tokens, candidates.logprobs, candidates.processed_logprobs)
        )
        logprob_sums = processed + sums[..., 0].gather(1, beam)
        columns = (x.tolist() for x in (first_row + beam, tokens, logprob_sums, logprobs, processed))
        return [list(map(self._extend_beam, *column)) for column in zip(*columns, strict=True)]

    def _extend_beam(self, row: int, token: int, logprob_sum: float, logprob: float, processed_logprob: float) -> _Beam:
        return _Beam(row, token, logprob_sum, logprob, processed_logprob, self.active_beams[row])

    def _split_finished(
        self, finished: _BeamHypotheses, candidates: list[_Beam], history: TokenHistory, penalties: list[float] | None
    ) -> list[_Beam]:
        """Move finished texts among the best candidates to `finished`, and return the best candidates that continue."""
        possible = [] if finished.is_done else [beam for beam in candidates if beam.logprob_sum > -math.inf]
        meets_condition = self._meet_stop_condition(possible, history)
        running: list[_Beam] = []
        length = 1 + len(history.new_tokens[possible[0].row]) if possible else 0
        for rank, (beam, is_met) in enumerate(zip(possible, meets_condition, strict=True)):
            hit_stop_id = beam.token in self.stop_ids
            if not (hit_stop_id or is_met or length == self.criteria.max_new_tokens):
                running.append(beam)
            elif rank < self.beams_per_group:
                penalty = 0.0 if penalties is None else penalties[beam.row]
                tokens = [*history.new_tokens[beam.row], beam.token]
                finished.add(tokens, beam, penalty, hit_stop_id=hit_stop_id, meets_condition=is_met)
        finished.update_is_done(running[0].logprob_sum if running else -math.inf, length)
        idle = _Beam(candidates[0].row, candidates[0].token, -math.inf)  # fills the rows of the group
        return (running + [idle] * self.beams_per_group)[: self.beams_per_group]

    def _meet_stop_condition(self, possible: list[_Beam], history: TokenHistory) -> list[bool]:
        """Which beams end by the stop condition."""
        if self.criteria.stop_condition is None:
            return [False] * len(possible)
        rows = history.select_rows([beam.row for beam in possible])
        return self.criteria.finished_rows(rows.append([beam.token for beam in possible]))

    def best_hypotheses(self, n_best: int) -> list[list[Hypothesis]]:
        """The best texts of each row."""
        rows = [
            sorted((found for group in groups for found in group.hypotheses), key=lambda found: -found.score)
            for groups in self.hypotheses
        ]
        for number, hypotheses in enumerate(rows):
            if not hypotheses:
                raise UsageError(
                    f"Row {number}: no text could be generated. Either the logits processors together forbid every token, so "
                    "remove one of them; or the model's scores are NaN, because its weights have diverged."
                )
        return [hypotheses[:n_best] for hypotheses in rows]
