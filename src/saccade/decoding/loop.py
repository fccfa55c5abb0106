"""The loop that every writer shares: start, then step, choose, and step again until all rows have stopped.

    rows = generate(model, batch, stop=2, limit=64)     # greedy
    for step in steps(model, batch, Bounds(stop=2, limit=64, rules=[NoRepeat(3)])): ...     # as it happens, with the scores

The loop knows nothing of the model but `start` and `step`, so it serves transformers, recurrent networks, captioners and
painters alike. Put the model into evaluation first: dropout and hard attention draw in training. `written` and `stream`,
for texts and log-probabilities, are in `stop`.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from saccade.data import Batch, Text
from saccade.decoding.bounds import Bounds, among
from saccade.decoding.choose import greedy
from saccade.decoding.highest import log_probability
from saccade.decoding.offers import Ranking
from saccade.decoding.rules import Ruling, Sofar, need_numbers, obey
from saccade.errors import UsageError
from saccade.models.family import AutoregressiveModel
from saccade.models.model import Model
from saccade.parts.state import State

Choose = Callable[[Tensor], Tensor]  # scores (B, V) to tokens (B,)


@runtime_checkable
class Expecting(Protocol):
    """A state that lays out space for what will come, and is told how much that is."""

    def expect(self, tokens: int) -> None: ...


@dataclass(frozen=True)
class Step:
    """One token for each row."""

    tokens: Tensor  # (B,)
    going: Tensor  # (B,) whether the row goes on with it: False once it has stopped
    scores: Tensor  # (B, V) the model's own
    ruled: Tensor  # (B, V) after the rules; the same where there are none

    def chances(self) -> tuple[list[float], list[float]]:
        """The log-probability of each token by the model, and by what the rules left of it."""
        own = _chances(self.scores, self.tokens).tolist()
        return own, own if self.ruled is self.scores else _chances(self.ruled, self.tokens).tolist()


@dataclass(frozen=True)
class Pick:
    """One token for each row from a writer that ranks its words itself, after the first without the scores of all others."""

    tokens: Tensor  # (B,)
    going: Tensor  # (B,) as in a step
    logs: Tensor  # (B,) the log-probability of each token

    def chances(self) -> tuple[list[float], list[float]]:
        """As those of a step: there are no rules."""
        logs = self.logs.tolist()
        return logs, logs


def generate(
    model: AutoregressiveModel,
    batch: Batch,
    choose: Choose = greedy,
    *,
    stop: int | Collection[int] | None,
    limit: int,
    rules: Sequence[Ruling] = (),
) -> list[list[int]]:
    """What the model writes after each row of the batch: at most `limit` new tokens, without the one that stopped it."""
    rows: list[list[int]] = []
    for step in picks(model, batch, Bounds(stop, limit, rules), choose):
        rows = rows or [[] for _ in step.tokens]
        for row, token, goes in zip(rows, step.tokens.tolist(), step.going.tolist(), strict=True):
            if goes:
                row.append(token)
    return rows


@torch.no_grad()
def steps(model: AutoregressiveModel, batch: Batch, bounds: Bounds, choose: Choose = greedy) -> Iterator[Step]:
    """Yield the tokens of all rows as they are chosen, with the scores before and after the rules."""
    course = Course(model, batch, bounds)
    while course.goes_on():
        ruled = course.ruled()
        yield course.take(choose(ruled), ruled)


@torch.no_grad()
def picks(model: AutoregressiveModel, batch: Batch, bounds: Bounds, choose: Choose = greedy) -> Iterator[Step | Pick]:
    """As `steps`, for who does not ask for all scores: where nobody else does, and the writer can, it says the best by itself."""
    if choose is not greedy or bounds.rules or not (isinstance(model, Ranking) and model.ranks):
        yield from steps(model, batch, bounds, choose)
        return
    course = Course(model, batch, bounds)
    while course.goes_on():
        if course.last is None:
            tokens = greedy(scores := course.ruled())
            logs = _chances(scores, tokens)
            del course.scores, scores
        else:
            values, best, logs = model.best(course.next(), course.state, 1)
            need_numbers(values[:, 0], course.sofar, course.going)
            tokens = best[:, 0]
        course.write(tokens)
        yield Pick(tokens, course.going, logs)


class Course:
    """Rows on their way: what stands in each, which of them go on, and the scores of what comes next.

    Whoever chooses asks `goes_on`, takes the `ruled` scores, and says with `take` what it chose.
    """

    def __init__(self, model: AutoregressiveModel, batch: Batch, bounds: Bounds):
        self.model, self.bounds = model, bounds
        self.state, self.scores, self.sofar = begin(model, batch, bounds.limit)
        self.stops = bounds.stops(self.scores.size(-1)) if len(self.sofar) else frozenset()
        self.going = torch.ones(len(self.sofar), dtype=torch.bool, device=self.scores.device)
        self.left = bounds.limit  # tokens that a row may still write
        self.last: Tensor | None = None  # those of the step before, which the model has not read yet

    def goes_on(self) -> bool:
        """Whether there is more to write."""
        if self.last is None:
            return len(self.sofar) > 0
        if self.bounds.until is not None:
            self.going = self.going & ~torch.tensor(self.bounds.over(self.sofar), device=self.going.device)
        return self.left > 0 and bool(self.going.any())

    def next(self) -> Text:
        """What was written last, which the model has not read yet."""
        assert self.last is not None, "the first step was read to begin with"
        return Text(self.last[:, None], self.keep())

    def ruled(self) -> Tensor:
        """The scores of what comes next, after the rules; the model first reads what was written last."""
        if self.last is not None:
            self.scores = self.model.step(self.next(), self.state)[:, -1]
        return obey(self.bounds.rules, self.scores, self.sofar, self.going)

    def take(self, tokens: Tensor, ruled: Tensor) -> Step:
        """Write one token in each row that goes on with it, which was chosen by these scores."""
        self.write(tokens)
        return Step(tokens, self.going, self.scores, ruled)

    def write(self, tokens: Tensor) -> None:
        """One token in each row that goes on with it."""
        self.going = self.going & ~among(tokens, self.stops)
        self.sofar = self.sofar.then(tokens.tolist(), self.going.tolist())
        self.last, self.left = tokens, self.left - 1

    def keep(self) -> Tensor | None:
        """Which rows are read, (B, 1): a finished one goes on as padding, takes no positions and is not remembered."""
        return None if bool(self.going.all()) else self.going[:, None]


def begin(model: AutoregressiveModel, batch: Batch, limit: int) -> tuple[State, Tensor, Sofar]:
    """The state after the first step, the scores (B, V) of what follows it, and what stands there so far."""
    state, text = model.start(batch)
    prompt = _rows(text)
    empty = [number for number, row in enumerate(prompt) if not row]
    if empty:
        raise UsageError(
            f"Row {empty[0]} of the prompt is empty, and there is nothing to go on from; give it at least one token, such "
            "as the one that begins a text."
        )
    if not prompt:
        return state, torch.zeros(0, 0), Sofar([], [], limit)
    if isinstance(state, Expecting):
        state.expect(text.tokens.size(1) + limit - 1)  # the last token is written and not read
    scores = model.last(text, state) if isinstance(model, Model) else text.last(model.step(text, state))
    return state, scores, Sofar(prompt, [[] for _ in prompt], limit)


def follow(model: AutoregressiveModel, batch: Batch) -> Tensor:
    """The scores of each token of the target, given those before it, (B, T, V): all at once, as training asks for them."""
    target = batch.target
    if target is None:
        raise UsageError("There is nothing to follow: the batch has no target.")
    state, first = model.start(batch)
    keep = None
    if first.keep is not None or target.keep is not None:
        keep = torch.cat([first.real, target.real[:, :-1]], dim=1)
    tokens = torch.cat([first.tokens, target.tokens[:, :-1]], dim=1)
    scores = model.step(Text(tokens, keep), state)
    length = first.tokens.size(1)
    return torch.cat([first.last(scores[:, :length])[:, None], scores[:, length:]], dim=1)


def _chances(scores: Tensor, tokens: Tensor) -> Tensor:
    """The log-probability of one token of each row, (B,)."""
    return log_probability(scores.float(), tokens[:, None])[:, 0]


def _rows(text: Text) -> list[list[int]]:
    """The real tokens of each row."""
    rows, keep = text.tokens.tolist(), text.real.tolist()
    return [
        [token for token, real in zip(row, kept, strict=True) if real] for row, kept in zip(rows, keep, strict=True)
    ]
