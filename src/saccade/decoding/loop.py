"""The loop that every writer shares: start, then step, choose, and step again until all rows have stopped.

    rows = generate(model, batch, stop_ids=2, max_new_tokens=64)     # greedy
    criteria = StoppingCriteria(2, 64, [NoRepeatNgram(3)])
    for step in decoding_steps(model, batch, criteria): ...     # as it happens, with the scores

The loop knows nothing of the model but `start` and `step`, so it serves transformers, recurrent networks, captioners and
painters alike. Put the model into evaluation first: dropout and hard attention draw in training. `generate_texts` and
`stream_texts`, for texts and log-probabilities, are in `stop_strings`.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from saccade.data import Batch, Text
from saccade.decoding.candidates import TopKModel
from saccade.decoding.logits_processors import LogitsProcessor, TokenHistory, apply_processors, check_finite
from saccade.decoding.sampling import greedy
from saccade.decoding.stopping import StoppingCriteria, is_in
from saccade.decoding.topk import token_logprobs
from saccade.errors import UsageError
from saccade.models.family import AutoregressiveModel
from saccade.models.model import Model
from saccade.parts.state import State

SamplerFunction = Callable[[Tensor], Tensor]  # scores (B, V) to tokens (B,)


@runtime_checkable
class PreallocatingState(Protocol):
    """A state that lays out space for what will come, and is told how much that is."""

    def expect_tokens(self, count: int) -> None: ...


@dataclass(frozen=True)
class DecodingStep:
    """One token for each row."""

    tokens: Tensor  # (B,)
    active: Tensor  # (B,) whether the row goes on with it: False once it has stopped
    logits: Tensor  # (B, V) the model's own
    processed_logits: Tensor  # (B, V) after the rules; the same where there are none

    def logprobs(self) -> tuple[list[float], list[float]]:
        """The log-probability of each token by the model, and by what the rules left of it."""
        own = _row_logprobs(self.logits, self.tokens).tolist()
        return own, own if self.processed_logits is self.logits else _row_logprobs(
            self.processed_logits, self.tokens
        ).tolist()


@dataclass(frozen=True)
class GreedyStep:
    """One token for each row from a writer that ranks its words itself, after the first without the scores of all others."""

    tokens: Tensor  # (B,)
    active: Tensor  # (B,) as in a step
    token_logprobs: Tensor  # (B,) the log-probability of each token

    def logprobs(self) -> tuple[list[float], list[float]]:
        """As those of a step: there are no rules."""
        logs = self.token_logprobs.tolist()
        return logs, logs


def generate(
    model: AutoregressiveModel,
    batch: Batch,
    sampler: SamplerFunction = greedy,
    *,
    stop_ids: int | Collection[int] | None,
    max_new_tokens: int,
    processors: Sequence[LogitsProcessor] = (),
) -> list[list[int]]:
    """What the model writes after each row of the batch: at most `max_new_tokens` new tokens, without the one that stopped it."""
    rows: list[list[int]] = []
    for step in token_steps(model, batch, StoppingCriteria(stop_ids, max_new_tokens, processors), sampler):
        rows = rows or [[] for _ in step.tokens]
        for row, token, goes in zip(rows, step.tokens.tolist(), step.active.tolist(), strict=True):
            if goes:
                row.append(token)
    return rows


@torch.no_grad()
def decoding_steps(
    model: AutoregressiveModel, batch: Batch, criteria: StoppingCriteria, sampler: SamplerFunction = greedy
) -> Iterator[DecodingStep]:
    """Yield the tokens of all rows as they are chosen, with the scores before and after the rules."""
    course = DecodingLoop(model, batch, criteria)
    while course.has_unfinished_rows():
        ruled = course.next_logits()
        yield course.append_step(sampler(ruled), ruled)


@torch.no_grad()
def token_steps(
    model: AutoregressiveModel, batch: Batch, criteria: StoppingCriteria, sampler: SamplerFunction = greedy
) -> Iterator[DecodingStep | GreedyStep]:
    """As `decoding_steps`, for who does not ask for all scores: where nobody else does, and the writer can, it says the
    best by itself.
    """
    if sampler is not greedy or criteria.processors or not (isinstance(model, TopKModel) and model.has_fused_topk):
        yield from decoding_steps(model, batch, criteria, sampler)
        return
    course = DecodingLoop(model, batch, criteria)
    while course.has_unfinished_rows():
        if course.last_tokens is None:
            tokens = greedy(scores := course.next_logits())
            logs = _row_logprobs(scores, tokens)
            del course.logits, scores
        else:
            values, best, logs = model.step_topk(course.next_input(), course.state, 1)
            check_finite(values[:, 0], course.history, course.active)
            tokens = best[:, 0]
        course.append_tokens(tokens)
        yield GreedyStep(tokens, course.active, logs)


class DecodingLoop:
    """Rows on their way: what stands in each, which of them go on, and the scores of what comes next.

    Whoever chooses asks `goes_on`, takes the `ruled` scores, and says with `take` what it chose.
    """

    def __init__(self, model: AutoregressiveModel, batch: Batch, criteria: StoppingCriteria):
        self.model, self.criteria = model, criteria
        self.state, self.logits, self.history = prefill(model, batch, criteria.max_new_tokens)
        self.stop_ids = criteria.resolve_stop_ids(self.logits.size(-1)) if len(self.history) else frozenset()
        self.active = torch.ones(len(self.history), dtype=torch.bool, device=self.logits.device)
        self.remaining_tokens = criteria.max_new_tokens  # tokens that a row may still write
        self.last_tokens: Tensor | None = None  # those of the step before, which the model has not read yet

    def has_unfinished_rows(self) -> bool:
        """Whether there is more to write."""
        if self.last_tokens is None:
            return len(self.history) > 0
        if self.criteria.stop_condition is not None:
            self.active = self.active & ~torch.tensor(
                self.criteria.finished_rows(self.history), device=self.active.device
            )
        return self.remaining_tokens > 0 and bool(self.active.any())

    def next_input(self) -> Text:
        """What was written last, which the model has not read yet."""
        assert self.last_tokens is not None, "the first step was read to begin with"
        return Text(self.last_tokens[:, None], self.row_keep())

    def next_logits(self) -> Tensor:
        """The scores of what comes next, after the rules; the model first reads what was written last."""
        if self.last_tokens is not None:
            self.logits = self.model.step(self.next_input(), self.state)[:, -1]
        return apply_processors(self.criteria.processors, self.logits, self.history, self.active)

    def append_step(self, tokens: Tensor, processed_logits: Tensor) -> DecodingStep:
        """Write one token in each row that goes on with it, which was chosen by these scores."""
        self.append_tokens(tokens)
        return DecodingStep(tokens, self.active, self.logits, processed_logits)

    def append_tokens(self, tokens: Tensor) -> None:
        """One token in each row that goes on with it."""
        self.active = self.active & ~is_in(tokens, self.stop_ids)
        self.history = self.history.append(tokens.tolist(), self.active.tolist())
        self.last_tokens, self.remaining_tokens = tokens, self.remaining_tokens - 1

    def row_keep(self) -> Tensor | None:
        """Which rows are read, (B, 1): a finished one goes on as padding, takes no positions and is not remembered."""
        return None if bool(self.active.all()) else self.active[:, None]


def prefill(model: AutoregressiveModel, batch: Batch, max_new_tokens: int) -> tuple[State, Tensor, TokenHistory]:
    """The state after the first step, the scores (B, V) of what follows it, and what stands there so far."""
    state, text = model.start(batch)
    prompt = _real_tokens(text)
    empty = [number for number, row in enumerate(prompt) if not row]
    if empty:
        raise UsageError(
            f"Row {empty[0]} of the prompt is empty, and there is nothing to go on from; give it at least one token, such "
            "as the one that begins a text."
        )
    if not prompt:
        return state, torch.zeros(0, 0), TokenHistory([], [], max_new_tokens)
    if isinstance(state, PreallocatingState):
        state.expect_tokens(text.tokens.size(1) + max_new_tokens - 1)  # the last token is written and not read
    scores = model.last_logits(text, state) if isinstance(model, Model) else text.gather_last(model.step(text, state))
    return state, scores, TokenHistory(prompt, [[] for _ in prompt], max_new_tokens)


def teacher_forced_logits(model: AutoregressiveModel, batch: Batch) -> Tensor:
    """The scores of each token of the target, given those before it, (B, T, V): all at once, as training asks for them."""
    target = batch.target
    if target is None:
        raise UsageError("There is nothing to follow: the batch has no target.")
    state, first = model.start(batch)
    keep = None
    if first.keep is not None or target.keep is not None:
        keep = torch.cat([first.keep_mask, target.keep_mask[:, :-1]], dim=1)
    tokens = torch.cat([first.tokens, target.tokens[:, :-1]], dim=1)
    scores = model.step(Text(tokens, keep), state)
    length = first.tokens.size(1)
    return torch.cat([first.gather_last(scores[:, :length])[:, None], scores[:, length:]], dim=1)


def _row_logprobs(scores: Tensor, tokens: Tensor) -> Tensor:
    """The log-probability of one token of each row, (B,)."""
    return token_logprobs(scores.float(), tokens[:, None])[:, 0]


def _real_tokens(text: Text) -> list[list[int]]:
    """The real tokens of each row."""
    rows, keep = text.tokens.tolist(), text.keep_mask.tolist()
    return [
        [token for token, real in zip(row, kept, strict=True) if real] for row, kept in zip(rows, keep, strict=True)
    ]
