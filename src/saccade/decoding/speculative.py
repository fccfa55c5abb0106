"""Speculative decoding: a fast drafter proposes several tokens, and the model verifies them in one forward pass
(Leviathan et al. 2023, arXiv 2211.17192).

    stats = SpeculationStats()
    criteria = StoppingCriteria(stop_ids=2, max_new_tokens=64)
    rows = speculate(model, batch, criteria, PromptLookup(), stats)         # the same output as `generate`
    rows = speculate(model, batch, criteria, DraftModel(small), stats)   # drafted by a smaller model
    stats.acceptance_rate                                               # fraction of draft tokens that were accepted

The output is always the model's own greedy choice, logits processors and stop tokens included; a bad draft only costs
time. Rows are decoded one after the other, since each accepts another number of tokens.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saccade.data import Batch, Text
from saccade.decoding.logits_processors import LogitsProcessor, TokenHistory, apply_processors
from saccade.decoding.loop import DecodingStep, prefill
from saccade.decoding.sampling import greedy
from saccade.decoding.stopping import StoppingCriteria, is_in
from saccade.errors import UsageError
from saccade.models.encoder_decoder import EncoderDecoder
from saccade.models.family import AutoregressiveModel
from saccade.models.model import Model
from saccade.parts.embeddings import TokenEmbedding

MAX_DRAFT_TOKENS = 8  # tokens drafted per step, and read again after a draft was rejected

Proposer = Callable[[list[int], int], list[int]]  # (new tokens so far, number of tokens) -> draft tokens
Drafter = Callable[[AutoregressiveModel, Batch], Proposer]  # (model that verifies, batch of one row) -> proposer


@dataclass
class SpeculationStats:
    """Statistics of speculative decoding."""

    draft_tokens: int = 0
    accepted_tokens: int = 0
    model_steps: int = 0  # forward passes of the model that verifies

    @property
    def acceptance_rate(self) -> float:
        """The fraction of draft tokens that were accepted."""
        return self.accepted_tokens / max(1, self.draft_tokens)


@dataclass(frozen=True)
class PromptLookup:
    """Prompt lookup: drafts what followed the last n-gram when it occurred before, in source or output (Saxena 2023).

    The longest n-gram that occurred before is used, at its latest position. A source with another vocabulary than the target is
    ignored.

    >>> from saccade.models.families import gpt2
    >>> model = gpt2.GPT2(gpt2.Config(vocab=13, width=4, layers=1, heads=1))
    >>> PromptLookup()(model, Batch(Text.pad([[5, 6, 7, 8, 5, 9]])))([5, 6], 2)
    [7, 8]
    """

    max_ngram_size: int = 3
    min_ngram_size: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.min_ngram_size <= self.max_ngram_size:
            raise UsageError(
                f"N-gram sizes must be 1 or more and in order; got {self.min_ngram_size} to {self.max_ngram_size}."
            )

    def __call__(self, model: AutoregressiveModel, batch: Batch) -> Proposer:
        source = batch.source
        use_source = isinstance(source, Text) and not _has_separate_target_vocab(model)
        prompt: list[int] = source.tokens[0].tolist() if use_source and isinstance(source, Text) else []

        def propose(new_tokens: list[int], count: int) -> list[int]:
            tokens = prompt + new_tokens
            for size in range(min(self.max_ngram_size, len(tokens) - 1), self.min_ngram_size - 1, -1):
                last = tokens[-size:]
                for at in range(len(tokens) - size - 1, -1, -1):
                    if tokens[at : at + size] == last:
                        return tokens[at + size : at + size + count]
            return []

        return propose


def _has_separate_target_vocab(model: AutoregressiveModel) -> bool:
    """Whether source and target have different vocabularies; two embeddings with one tokenizer have the same."""
    body = model.body if isinstance(model, Model) else model
    if not isinstance(body, EncoderDecoder) or body.target_words is None:
        return False
    tokenizer = model.tokenizer if isinstance(model, Model) else None
    return tokenizer is None or tokenizer.target is not tokenizer


@dataclass(frozen=True)
class DraftModel:
    """Drafts the greedy continuation of a smaller model with the same tokens, within its context length and vocabulary."""

    model: AutoregressiveModel

    def __call__(self, model: AutoregressiveModel, batch: Batch) -> Proposer:
        limit = self.model.max_positions if isinstance(self.model, Model) else None
        context = math.inf if limit is None else limit
        vocab, source = _smallest_vocab(self.model), batch.source
        if isinstance(source, Text) and (source.tokens.size(1) > context or bool((source.tokens >= vocab).any())):
            return lambda new_tokens, count: []
        state, start = self.model.start(batch)
        snapshot, read_count = state.snapshot(), 0  # the new tokens that the draft model has read

        def propose(new_tokens: list[int], count: int) -> list[int]:
            nonlocal snapshot, read_count
            remaining = context - start.tokens.size(1) - len(new_tokens)
            if remaining < 0 or any(token >= vocab for token in new_tokens[read_count:]):
                return []
            state.restore(snapshot)
            unread = torch.tensor([new_tokens[read_count:]], dtype=torch.long, device=start.tokens.device)
            text = Text(unread) if read_count else Text(torch.cat([start.tokens, unread], dim=1))
            scores = self.model.step(text, state)[:, -1]
            snapshot, read_count = state.snapshot(), len(new_tokens)
            draft = [int(greedy(scores))]
            while len(draft) < min(count, remaining + 1):  # the last draft token is not read
                scores = self.model.step(Text(unread.new_tensor([[draft[-1]]])), state)[:, -1]
                draft.append(int(greedy(scores)))
            return draft

        return propose


def _smallest_vocab(model: AutoregressiveModel) -> float:
    """The vocabulary size of a model, the smaller one of source and target; infinite without a token embedding."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    return min((m.vectors.num_embeddings for m in modules if isinstance(m, TokenEmbedding)), default=math.inf)


def speculate(
    model: AutoregressiveModel,
    batch: Batch,
    criteria: StoppingCriteria,
    drafter: Drafter,
    stats: SpeculationStats | None = None,
) -> list[list[int]]:
    """Greedy decoding of each row, as by `generate`, in fewer forward passes where the drafts are good."""
    rows = []
    for row in split_rows(batch):
        steps = speculative_steps(model, row, criteria, drafter, stats)
        rows.append([int(step.tokens) for step in steps if bool(step.active)])
    return rows


@torch.no_grad()
def speculative_steps(
    model: AutoregressiveModel,
    batch: Batch,
    criteria: StoppingCriteria,
    drafter: Drafter,
    stats: SpeculationStats | None = None,
) -> Iterator[DecodingStep]:
    """Yield the tokens of one row as `loop.decoding_steps` does, several per forward pass of the model."""
    stats = SpeculationStats() if stats is None else stats
    state, scores, history = prefill(model, batch, criteria.max_new_tokens)
    if len(scores) != 1:
        raise UsageError(
            f"Speculative decoding takes one row at a time; got {len(scores)}. Use `speculate`, or `split_rows`."
        )
    stop_ids, propose = criteria.resolve_stop_ids(scores.size(-1)), drafter(model, batch)
    draft: list[int] = []
    pending: list[int] = []  # new tokens that the model has not read yet
    snapshot, draft_length = state.snapshot(), MAX_DRAFT_TOKENS // 2
    stats.model_steps += 1
    while True:
        accepted = 0
        for number, row in enumerate(scores[-len(draft) - 1 :]):
            step = _greedy_step(row[None], criteria.processors, history, stop_ids)
            token = int(step.tokens)
            is_accepted = number < len(draft) and draft[number] == token
            accepted += is_accepted
            stats.accepted_tokens += is_accepted
            yield step
            history = history.append([token])
            pending.append(token)
            if not bool(step.active) or not history.remaining_tokens(0) or criteria.finished_rows(history)[0]:
                return
            if not is_accepted:
                break
        if accepted < len(draft):
            state.restore(snapshot)  # drops the rejected tokens; accepted ones are read again with the next draft
        else:
            pending = pending[-1:]
        if len(pending) > MAX_DRAFT_TOKENS:
            model.step(Text(_to_row(pending[:-1], scores)), state)
            stats.model_steps += 1
            pending = pending[-1:]
        draft_length = min(MAX_DRAFT_TOKENS, 2 * draft_length) if accepted == len(draft) else accepted + 1
        limit = history.remaining_tokens(0) - 1
        draft = propose(history.new_tokens[0], min(draft_length, limit))[:limit] if limit else []
        draft = _trim_draft(draft, stop_ids, scores)
        stats.draft_tokens += len(draft)
        snapshot = state.snapshot()
        scores = model.step(Text(_to_row(pending + draft, scores)), state)[0]
        stats.model_steps += 1


def _greedy_step(
    scores: Tensor, processors: Sequence[LogitsProcessor], history: TokenHistory, stop_ids: frozenset[int]
) -> DecodingStep:
    """The greedy choice of the model after the logits processors."""
    processed = apply_processors(processors, scores, history)
    tokens = greedy(processed)
    return DecodingStep(tokens, ~is_in(tokens, stop_ids), scores, processed)


def _trim_draft(tokens: list[int], stop_ids: frozenset[int], scores: Tensor) -> list[int]:
    """Cut a draft after its first stop token, and before its first token outside the model's vocabulary, which may be padded."""
    trimmed: list[int] = []
    for token in tokens:
        if not 0 <= token < scores.size(-1):
            break
        trimmed.append(token)
        if token in stop_ids:
            break
    return trimmed


def _to_row(tokens: list[int], like: Tensor) -> Tensor:
    return torch.tensor([tokens], dtype=torch.long, device=like.device)


def split_rows(batch: Batch) -> Iterator[Batch]:
    """Yield each row of a batch as a batch of its own, without padding."""
    for index in range(len(batch.source)):
        yield Batch(batch.source.row(index))
