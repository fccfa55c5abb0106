"""The decoding loop of all autoregressive models: prefill the prompt, then choose and decode tokens until all rows have stopped.

    rows = generate(model, batch, stop_ids=2, max_new_tokens=64)     # greedy
    criteria = StoppingCriteria(2, 64, [NoRepeatNgram(3)])
    for step in decoding_steps(model, batch, criteria): ...     # step by step, with logits

The loop only needs `start` and `step` of a model, so it works with transformers, recurrent networks, image captioners and
text-to-image models. Call `model.eval()` first, since dropout and hard attention are random in training mode.
`generate_texts` and `stream_texts` in `stop_strings` return texts and log-probabilities.
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

SamplerFunction = Callable[[Tensor], Tensor]  # scores (B, V) -> tokens (B,)


@runtime_checkable
class PreallocatingState(Protocol):
    """A state that allocates memory ahead, and is told how many tokens will follow."""

    def expect_tokens(self, count: int) -> None: ...


@dataclass(frozen=True)
class DecodingStep:
    """The outcome of one decoding step: a token for each row, with its logits."""

    tokens: Tensor  # (B,)
    active: Tensor  # (B,) whether the token belongs to the row: False once the row has stopped
    logits: Tensor  # (B, V) of the model
    processed_logits: Tensor  # (B, V) after the logits processors; the same tensor without any

    def logprobs(self) -> tuple[list[float], list[float]]:
        """The log-probability of each token, by the model and after the logits processors."""
        logprobs = _row_logprobs(self.logits, self.tokens).tolist()
        if self.processed_logits is self.logits:
            return logprobs, logprobs
        return logprobs, _row_logprobs(self.processed_logits, self.tokens).tolist()


@dataclass(frozen=True)
class GreedyStep:
    """The outcome of a greedy step of a model with fused top-k, which does not compute the logits of the whole vocabulary."""

    tokens: Tensor  # (B,)
    active: Tensor  # (B,) as in `DecodingStep`
    token_logprobs: Tensor  # (B,) the log-probability of each token

    def logprobs(self) -> tuple[list[float], list[float]]:
        """As in `DecodingStep`; without logits processors both are the same."""
        logprobs = self.token_logprobs.tolist()
        return logprobs, logprobs


def generate(
    model: AutoregressiveModel,
    batch: Batch,
    sampler: SamplerFunction = greedy,
    *,
    stop_ids: int | Collection[int] | None,
    max_new_tokens: int,
    processors: Sequence[LogitsProcessor] = (),
) -> list[list[int]]:
    """Generate at most `max_new_tokens` new tokens for each row of the batch; the stop token is not included."""
    rows: list[list[int]] = []
    for step in token_steps(model, batch, StoppingCriteria(stop_ids, max_new_tokens, processors), sampler):
        rows = rows or [[] for _ in step.tokens]
        for row, token, is_active in zip(rows, step.tokens.tolist(), step.active.tolist(), strict=True):
            if is_active:
                row.append(token)
    return rows


@torch.no_grad()
def decoding_steps(
    model: AutoregressiveModel, batch: Batch, criteria: StoppingCriteria, sampler: SamplerFunction = greedy
) -> Iterator[DecodingStep]:
    """Yield the tokens of all rows step by step, with logits before and after the processors."""
    loop = DecodingLoop(model, batch, criteria)
    while loop.has_unfinished_rows():
        processed = loop.next_logits()
        yield loop.append_step(sampler(processed), processed)


@torch.no_grad()
def token_steps(
    model: AutoregressiveModel, batch: Batch, criteria: StoppingCriteria, sampler: SamplerFunction = greedy
) -> Iterator[DecodingStep | GreedyStep]:
    """Like `decoding_steps`, for callers that do not need logits: greedy decoding without processors uses fused top-k."""
    if sampler is not greedy or criteria.processors or not (isinstance(model, TopKModel) and model.has_fused_topk):
        yield from decoding_steps(model, batch, criteria, sampler)
        return
    loop = DecodingLoop(model, batch, criteria)
    while loop.has_unfinished_rows():
        if loop.last_tokens is None:
            tokens = greedy(scores := loop.next_logits())
            logprobs = _row_logprobs(scores, tokens)
            del loop.logits, scores
        else:
            values, best, logprobs = model.step_topk(loop.next_input(), loop.state, 1)
            check_finite(values[:, 0], loop.history, loop.active)
            tokens = best[:, 0]
        loop.append_tokens(tokens)
        yield GreedyStep(tokens, loop.active, logprobs)


class DecodingLoop:
    """The state of decoding: the tokens of each row, which rows are active, and the logits of the next token.

    A decoding strategy calls `has_unfinished_rows`, takes `next_logits`, and passes the chosen tokens to `append_step`.
    """

    model: AutoregressiveModel
    criteria: StoppingCriteria
    state: State
    remaining_tokens: int

    def __init__(self, model: AutoregressiveModel, batch: Batch, criteria: StoppingCriteria):
        self.model, self.criteria = model, criteria
        self.state, self.logits, self.history = prefill(model, batch, criteria.max_new_tokens)
        self.stop_ids = criteria.resolve_stop_ids(self.logits.size(-1)) if len(self.history) else frozenset()
        self.active = torch.ones(len(self.history), dtype=torch.bool, device=self.logits.device)
        self.remaining_tokens = criteria.max_new_tokens
        self.last_tokens: Tensor | None = None  # tokens of the previous step, which the model has not read yet

    def has_unfinished_rows(self) -> bool:
        """Whether any row continues."""
        if self.last_tokens is None:
            return len(self.history) > 0
        if self.criteria.stop_condition is not None:
            self.active = self.active & ~torch.tensor(
                self.criteria.finished_rows(self.history), device=self.active.device
            )
        return self.remaining_tokens > 0 and bool(self.active.any())

    def next_input(self) -> Text:
        """The last tokens as input of the next decoding step."""
        assert self.last_tokens is not None, "prefill has read the prompt"
        return Text(self.last_tokens[:, None], self.row_keep())

    def next_logits(self) -> Tensor:
        """Run the model on the last tokens, and return the logits of the next ones after the processors."""
        if self.last_tokens is not None:
            self.logits: Tensor = self.model.step(self.next_input(), self.state)[:, -1]
        return apply_processors(self.criteria.processors, self.logits, self.history, self.active)

    def append_step(self, tokens: Tensor, processed_logits: Tensor) -> DecodingStep:
        """Append a token to each active row, and return the step with the logits that the tokens were chosen from."""
        self.append_tokens(tokens)
        return DecodingStep(tokens, self.active, self.logits, processed_logits)

    def append_tokens(self, tokens: Tensor) -> None:
        """Append a token to each active row; rows that got a stop token end."""
        self.active: Tensor = self.active & ~is_in(tokens, self.stop_ids)
        self.history: TokenHistory = self.history.append(tokens.tolist(), self.active.tolist())
        self.last_tokens, self.remaining_tokens = tokens, self.remaining_tokens - 1

    def row_keep(self) -> Tensor | None:
        """The padding mask of the next input, (B, 1); finished rows are padding, which takes no position in the cache."""
        return None if bool(self.active.all()) else self.active[:, None]


def prefill(model: AutoregressiveModel, batch: Batch, max_new_tokens: int) -> tuple[State, Tensor, TokenHistory]:
    """Prefill: run the model on the prompt; returns the state, the scores (B, V) of the first new token, and the history."""
    state, text = model.start(batch)
    prompt = _real_tokens(text)
    empty = [number for number, row in enumerate(prompt) if not row]
    if empty:
        raise UsageError(
            f"Row {empty[0]} of the prompt is empty; give it at least one token, such as the begin-of-sequence token."
        )
    if not prompt:
        return state, torch.zeros(0, 0), TokenHistory([], [], max_new_tokens)
    if isinstance(state, PreallocatingState):
        state.expect_tokens(text.tokens.size(1) + max_new_tokens - 1)  # the last new token is never read
    scores = model.last_logits(text, state) if isinstance(model, Model) else text.gather_last(model.step(text, state))
    return state, scores, TokenHistory(prompt, [[] for _ in prompt], max_new_tokens)


def teacher_forced_logits(model: AutoregressiveModel, batch: Batch) -> Tensor:
    """Teacher forcing: the scores of each target token given those before it, (B, T, V), in one forward pass as in training."""
    target = batch.target
    if target is None:
        raise UsageError("Teacher forcing needs a target, and the batch has none.")
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
    """The tokens of each row, without padding."""
    rows, keep = text.tokens.tolist(), text.keep_mask.tolist()
    return [
        [token for token, real in zip(row, kept, strict=True) if real] for row, kept in zip(rows, keep, strict=True)
    ]
