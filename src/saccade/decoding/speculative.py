"""Speculative decoding: someone quick proposes a few tokens, the model checks them all in one step, and keeps those it would
have written itself (Leviathan et al. 2023, arXiv 2211.17192).

    stats = SpeculationStats()
    criteria = StoppingCriteria(stop_ids=2, max_new_tokens=64)
    rows = speculate(model, batch, criteria, PromptLookup(), stats)         # the very rows of `generate`
    rows = speculate(model, batch, criteria, DraftModel(small), stats)   # proposed by a smaller model
    stats.acceptance_rate                                               # of the proposed tokens, those kept

Whatever is proposed, what is written is the model's own greedy choice at every place, rules and stop tokens included; a bad
proposal costs time and nothing else. Rows are written one after the other, since each is right about another number of
tokens.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saccade.data import Batch, Image, Text
from saccade.decoding.logits_processors import LogitsProcessor, TokenHistory, apply_processors
from saccade.decoding.loop import DecodingStep, prefill
from saccade.decoding.sampling import greedy
from saccade.decoding.stopping import StoppingCriteria, is_in
from saccade.errors import UsageError
from saccade.models.encoder_decoder import EncoderDecoder
from saccade.models.family import AutoregressiveModel
from saccade.models.model import Model
from saccade.parts.embeddings import TokenEmbedding

MAX_DRAFT_TOKENS = 8  # tokens that are proposed at a time, and that are read again after a proposal was wrong

Proposer = Callable[[list[int], int], list[int]]  # what is written so far and how many more to what may follow
Drafter = Callable[
    [AutoregressiveModel, Batch], Proposer
]  # the model that will check, and a row, to what proposes for it


@dataclass
class SpeculationStats:
    """What speculation was worth."""

    draft_tokens: int = 0
    accepted_tokens: int = 0
    model_steps: int = 0  # of the model

    @property
    def acceptance_rate(self) -> float:
        """Of the proposed tokens, those that were written."""
        return self.accepted_tokens / max(1, self.draft_tokens)


@dataclass(frozen=True)
class PromptLookup:
    """Proposes what followed the last few tokens where they stood before, in the source or in what is written (Saxena 2023).

    The longest run of tokens that stood there before counts, of several places the latest. A source in other tokens than
    the target's says nothing about what follows.

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
                f"What is looked up is 1 token long or longer; got {self.min_ngram_size} to {self.max_ngram_size} tokens."
            )

    def __call__(self, model: AutoregressiveModel, batch: Batch) -> Proposer:
        given = batch.source
        source: list[int] = (
            given.tokens[0].tolist() if isinstance(given, Text) and not _has_separate_target_vocab(model) else []
        )

        def propose(written: list[int], count: int) -> list[int]:
            text = source + written
            for size in range(min(self.max_ngram_size, len(text) - 1), self.min_ngram_size - 1, -1):
                last = text[-size:]
                for at in range(len(text) - size - 1, -1, -1):
                    if text[at : at + size] == last:
                        return text[at + size : at + size + count]
            return []

        return propose


def _has_separate_target_vocab(model: AutoregressiveModel) -> bool:
    """Whether the target has a vocabulary of its own; two tables of words under one tokenizer have the same."""
    body = model.body if isinstance(model, Model) else model
    if not isinstance(body, EncoderDecoder) or body.target_words is None:
        return False
    tokenizer = model.tokenizer if isinstance(model, Model) else None
    return tokenizer is None or tokenizer.target is not tokenizer


@dataclass(frozen=True)
class DraftModel:
    """Proposes what a smaller model with the same tokens would write, as far as it has positions, and vectors for the text."""

    model: AutoregressiveModel

    def __call__(self, model: AutoregressiveModel, batch: Batch) -> Proposer:
        limit = self.model.max_positions if isinstance(self.model, Model) else None
        most = math.inf if limit is None else limit  # tokens that it can read
        vocab, source = _smallest_vocab(self.model), batch.source
        if isinstance(source, Text) and (source.tokens.size(1) > most or bool((source.tokens >= vocab).any())):
            return lambda written, count: []
        state, first = self.model.start(batch)
        mark, known = state.snapshot(), 0  # how much of the text the mark remembers

        def propose(written: list[int], count: int) -> list[int]:
            nonlocal mark, known
            room = most - first.tokens.size(1) - len(written)
            if room < 0 or any(token >= vocab for token in written[known:]):
                return []
            state.restore(mark)
            new = torch.tensor([written[known:]], dtype=torch.long, device=first.tokens.device)
            read = Text(new) if known else Text(torch.cat([first.tokens, new], dim=1))
            scores = self.model.step(read, state)[:, -1]
            mark, known = state.snapshot(), len(written)
            found = [int(greedy(scores))]
            while len(found) < min(count, room + 1):  # the last is not read
                scores = self.model.step(Text(new.new_tensor([[found[-1]]])), state)[:, -1]
                found.append(int(greedy(scores)))
            return found

        return propose


def _smallest_vocab(model: AutoregressiveModel) -> float:
    """How many tokens a model can read, on the side that has fewer; no end where it has no table of words."""
    parts = model.modules() if isinstance(model, nn.Module) else ()
    return min((part.vectors.num_embeddings for part in parts if isinstance(part, TokenEmbedding)), default=math.inf)


def speculate(
    model: AutoregressiveModel,
    batch: Batch,
    criteria: StoppingCriteria,
    drafter: Drafter,
    stats: SpeculationStats | None = None,
) -> list[list[int]]:
    """What `generate` would write after each row, greedily, in fewer steps where the proposals are good."""
    rows = []
    for one in split_rows(batch):
        steps = speculative_steps(model, one, criteria, drafter, stats)
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
    """Yield the tokens of one row as `loop.decoding_steps` does, several after each step of the model."""
    stats = SpeculationStats() if stats is None else stats
    state, scores, sofar = prefill(model, batch, criteria.max_new_tokens)
    if len(scores) != 1:
        raise UsageError(f"Speculation writes one row at a time; got {len(scores)}. Use `speculate`, or `split_rows`.")
    stops, propose = criteria.resolve_stop_ids(scores.size(-1)), drafter(model, batch)
    proposed: list[int] = []
    pending: list[int] = []  # written, and not yet read by the model
    mark, ahead = state.snapshot(), MAX_DRAFT_TOKENS // 2
    stats.model_steps += 1
    while True:
        right = 0  # proposals that the model would have written
        for number, row in enumerate(scores[-len(proposed) - 1 :]):
            step = _greedy_step(row[None], criteria.processors, sofar, stops)
            token = int(step.tokens)
            agrees = number < len(proposed) and proposed[number] == token
            right += agrees
            stats.accepted_tokens += agrees
            yield step
            sofar = sofar.append([token])
            pending.append(token)
            if not bool(step.active) or not sofar.remaining_tokens(0) or criteria.finished_rows(sofar)[0]:
                return
            if not agrees:
                break
        if right < len(proposed):
            state.restore(mark)  # what was wrong is forgotten; what was right is read again with the next proposal
        else:
            pending = pending[-1:]
        if len(pending) > MAX_DRAFT_TOKENS:
            model.step(Text(_to_row(pending[:-1], scores)), state)
            stats.model_steps += 1
            pending = pending[-1:]
        ahead = min(MAX_DRAFT_TOKENS, 2 * ahead) if right == len(proposed) else right + 1
        room = sofar.remaining_tokens(0) - 1
        proposed = _trim_draft(propose(sofar.new_tokens[0], min(ahead, room))[:room], stops, scores) if room else []
        stats.draft_tokens += len(proposed)
        mark = state.snapshot()
        scores = model.step(Text(_to_row(pending + proposed, scores)), state)[0]
        stats.model_steps += 1


def _greedy_step(
    scores: Tensor, processors: Sequence[LogitsProcessor], history: TokenHistory, stop_ids: frozenset[int]
) -> DecodingStep:
    """The model's own choice, and whether the row goes on with it."""
    ruled = apply_processors(processors, scores, history)
    tokens = greedy(ruled)
    return DecodingStep(tokens, ~is_in(tokens, stop_ids), scores, ruled)


def _trim_draft(tokens: list[int], stop_ids: frozenset[int], scores: Tensor) -> list[int]:
    """The tokens up to the first that stops, and before the first that the model does not write: vocabularies may be padded."""
    useful: list[int] = []
    for token in tokens:
        if not 0 <= token < scores.size(-1):
            break
        useful.append(token)
        if token in stop_ids:
            break
    return useful


def _to_row(tokens: list[int], like: Tensor) -> Tensor:
    return torch.tensor([tokens], dtype=torch.long, device=like.device)


def split_rows(batch: Batch) -> Iterator[Batch]:
    """Each row of a batch alone, without its padding."""
    source = batch.source
    if isinstance(source, Image):
        yield from (Batch(Image(pixels[None])) for pixels in source.pixels)
        return
    if not isinstance(source, Text):
        raise UsageError(f"A writer goes on from a text or a picture; got {type(source).__name__}.")
    for number, tokens in enumerate(source.tokens):
        yield Batch(Text(tokens[source.keep_mask[number]][None]))
