"""Speculative decoding: someone quick proposes a few tokens, the model checks them all in one step, and keeps those it would
have written itself (Leviathan et al. 2023, arXiv 2211.17192).

    tally = Tally()
    bounds = Bounds(stop=2, limit=64)
    rows = speculate(model, batch, bounds, LookUp(), tally)         # the very rows of `generate`
    rows = speculate(model, batch, bounds, Drafted(small), tally)   # proposed by a smaller model
    tally.share                                                     # of the proposed tokens, those kept

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
from saccade.decoding.bounds import Bounds, among
from saccade.decoding.choose import greedy
from saccade.decoding.loop import Step, begin
from saccade.decoding.rules import Ruling, Sofar, obey
from saccade.errors import UsageError
from saccade.models.encoder_decoder import EncoderDecoder
from saccade.models.family import AutoregressiveModel
from saccade.models.model import Model
from saccade.parts.embed import Words

MOST = 8  # tokens that are proposed at a time, and that are read again after a proposal was wrong

Propose = Callable[[list[int], int], list[int]]  # what is written so far and how many more to what may follow
Drafter = Callable[
    [AutoregressiveModel, Batch], Propose
]  # the model that will check, and a row, to what proposes for it


@dataclass
class Tally:
    """What speculation was worth."""

    proposed: int = 0
    accepted: int = 0
    steps: int = 0  # of the model

    @property
    def share(self) -> float:
        """Of the proposed tokens, those that were written."""
        return self.accepted / max(1, self.proposed)


@dataclass(frozen=True)
class LookUp:
    """Proposes what followed the last few tokens where they stood before, in the source or in what is written (Saxena 2023).

    The longest run of tokens that stood there before counts, of several places the latest. A source in other tokens than
    the target's says nothing about what follows.

    >>> from saccade.models import gpt2
    >>> model = gpt2.GPT2(gpt2.Config(vocab=13, width=4, layers=1, heads=1))
    >>> LookUp()(model, Batch(Text.of([[5, 6, 7, 8, 5, 9]])))([5, 6], 2)
    [7, 8]
    """

    longest: int = 3
    shortest: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest:
            raise UsageError(
                f"What is looked up is 1 token long or longer; got {self.shortest} to {self.longest} tokens."
            )

    def __call__(self, model: AutoregressiveModel, batch: Batch) -> Propose:
        given = batch.source
        source: list[int] = given.tokens[0].tolist() if isinstance(given, Text) and not _apart(model) else []

        def propose(written: list[int], count: int) -> list[int]:
            text = source + written
            for size in range(min(self.longest, len(text) - 1), self.shortest - 1, -1):
                last = text[-size:]
                for at in range(len(text) - size - 1, -1, -1):
                    if text[at : at + size] == last:
                        return text[at + size : at + size + count]
            return []

        return propose


def _apart(model: AutoregressiveModel) -> bool:
    """Whether the target has a vocabulary of its own; two tables of words under one tokenizer have the same."""
    body = model.body if isinstance(model, Model) else model
    if not isinstance(body, EncoderDecoder) or body.target_words is None:
        return False
    tokenizer = model.tokenizer if isinstance(model, Model) else None
    return tokenizer is None or tokenizer.target is not tokenizer


@dataclass(frozen=True)
class Drafted:
    """Proposes what a smaller model with the same tokens would write, as far as it has positions, and vectors for the text."""

    model: AutoregressiveModel

    def __call__(self, model: AutoregressiveModel, batch: Batch) -> Propose:
        limit = self.model.limit if isinstance(self.model, Model) else None
        most = math.inf if limit is None else limit  # tokens that it can read
        vocab, source = _vocab(self.model), batch.source
        if isinstance(source, Text) and (source.tokens.size(1) > most or bool((source.tokens >= vocab).any())):
            return lambda written, count: []
        state, first = self.model.start(batch)
        mark, known = state.mark(), 0  # how much of the text the mark remembers

        def propose(written: list[int], count: int) -> list[int]:
            nonlocal mark, known
            room = most - first.tokens.size(1) - len(written)
            if room < 0 or any(token >= vocab for token in written[known:]):
                return []
            state.rewind(mark)
            new = torch.tensor([written[known:]], dtype=torch.long, device=first.tokens.device)
            read = Text(new) if known else Text(torch.cat([first.tokens, new], dim=1))
            scores = self.model.step(read, state)[:, -1]
            mark, known = state.mark(), len(written)
            found = [int(greedy(scores))]
            while len(found) < min(count, room + 1):  # the last is not read
                scores = self.model.step(Text(new.new_tensor([[found[-1]]])), state)[:, -1]
                found.append(int(greedy(scores)))
            return found

        return propose


def _vocab(model: AutoregressiveModel) -> float:
    """How many tokens a model can read, on the side that has fewer; no end where it has no table of words."""
    parts = model.modules() if isinstance(model, nn.Module) else ()
    return min((part.vectors.num_embeddings for part in parts if isinstance(part, Words)), default=math.inf)


def speculate(
    model: AutoregressiveModel, batch: Batch, bounds: Bounds, drafter: Drafter, tally: Tally | None = None
) -> list[list[int]]:
    """What `generate` would write after each row, greedily, in fewer steps where the proposals are good."""
    rows = []
    for one in rows_of(batch):
        steps = steps_ahead(model, one, bounds, drafter, tally)
        rows.append([int(step.tokens) for step in steps if bool(step.going)])
    return rows


@torch.no_grad()
def steps_ahead(
    model: AutoregressiveModel, batch: Batch, bounds: Bounds, drafter: Drafter, tally: Tally | None = None
) -> Iterator[Step]:
    """Yield the tokens of one row as `loop.steps` does, several after each step of the model."""
    tally = Tally() if tally is None else tally
    state, scores, sofar = begin(model, batch, bounds.limit)
    if len(scores) != 1:
        raise UsageError(f"Speculation writes one row at a time; got {len(scores)}. Use `speculate`, or `rows_of`.")
    stops, propose = bounds.stops(scores.size(-1)), drafter(model, batch)
    proposed: list[int] = []
    pending: list[int] = []  # written, and not yet read by the model
    mark, ahead = state.mark(), MOST // 2
    tally.steps += 1
    while True:
        right = 0  # proposals that the model would have written
        for number, row in enumerate(scores[-len(proposed) - 1 :]):
            step = _chosen(row[None], bounds.rules, sofar, stops)
            token = int(step.tokens)
            agrees = number < len(proposed) and proposed[number] == token
            right += agrees
            tally.accepted += agrees
            yield step
            sofar = sofar.then([token])
            pending.append(token)
            if not bool(step.going) or not sofar.left(0) or bounds.over(sofar)[0]:
                return
            if not agrees:
                break
        if right < len(proposed):
            state.rewind(mark)  # what was wrong is forgotten; what was right is read again with the next proposal
        else:
            pending = pending[-1:]
        if len(pending) > MOST:
            model.step(Text(_row(pending[:-1], scores)), state)
            tally.steps += 1
            pending = pending[-1:]
        ahead = min(MOST, 2 * ahead) if right == len(proposed) else right + 1
        room = sofar.left(0) - 1
        proposed = _useful(propose(sofar.written[0], min(ahead, room))[:room], stops, scores) if room else []
        tally.proposed += len(proposed)
        mark = state.mark()
        scores = model.step(Text(_row(pending + proposed, scores)), state)[0]
        tally.steps += 1


def _chosen(scores: Tensor, rules: Sequence[Ruling], sofar: Sofar, stops: frozenset[int]) -> Step:
    """The model's own choice, and whether the row goes on with it."""
    ruled = obey(rules, scores, sofar)
    tokens = greedy(ruled)
    return Step(tokens, ~among(tokens, stops), scores, ruled)


def _useful(tokens: list[int], stops: frozenset[int], scores: Tensor) -> list[int]:
    """The tokens up to the first that stops, and before the first that the model does not write: vocabularies may be padded."""
    useful: list[int] = []
    for token in tokens:
        if not 0 <= token < scores.size(-1):
            break
        useful.append(token)
        if token in stops:
            break
    return useful


def _row(tokens: list[int], like: Tensor) -> Tensor:
    return torch.tensor([tokens], dtype=torch.long, device=like.device)


def rows_of(batch: Batch) -> Iterator[Batch]:
    """Each row of a batch alone, without its padding."""
    source = batch.source
    if isinstance(source, Image):
        yield from (Batch(Image(pixels[None])) for pixels in source.pixels)
        return
    if not isinstance(source, Text):
        raise UsageError(f"A writer goes on from a text or a picture; got {type(source).__name__}.")
    for number, tokens in enumerate(source.tokens):
        yield Batch(Text(tokens[source.real[number]][None]))
