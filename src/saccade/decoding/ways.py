"""From settings to texts: every way to write behind one call.

    for found in write_texts(model, batch, tokenizer, Decoding(beams=4, n_best=2), limit=64):
        found[0].text, found[0].score, found[1].text

The score of a text is what beams compare by, whatever the way: its log-probability by length ** length_penalty; of samples
of which the safest is taken, its mean likeness to the others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from saccade.data import Batch
from saccade.decoding.beam import Beams, Hypothesis, search
from saccade.decoding.bounds import Bounds
from saccade.decoding.choose import Draw, greedy
from saccade.decoding.constrain import Among, JsonSchema, Matching
from saccade.decoding.contrast import contrast_steps
from saccade.decoding.loop import Choose
from saccade.decoding.risk import safest
from saccade.decoding.rules import Forbid, MinLength, NoRepeat, Repetition, Rule, Ruling, Sofar
from saccade.decoding.settings import Decoding
from saccade.decoding.speculate import Drafted, Drafter, LookUp, Tally, rows_of, steps_ahead
from saccade.decoding.stop import Cutters, Written, collect, cut, until_strings, written
from saccade.errors import UsageError
from saccade.models.load import load
from saccade.models.model import Model
from saccade.text.tokenizer import Tokenizer

Texts = list[list[Hypothesis]]  # of each row, the best first


class Ways:
    """Settings made ready for one model: its tokens looked up, its rules built, its draft loaded."""

    def __init__(self, decoding: Decoding, model: Model, tokenizer: Tokenizer):
        self.decoding, self.model, self.tokenizer = decoding.check(), model, tokenizer
        self.ends = [] if tokenizer.end is None else [tokenizer.end]
        self.rules = [*named_only(model, tokenizer), *rules_of(decoding, tokenizer, self.ends)]
        self.choose = choice_of(decoding)
        self.tally = Tally()  # of speculation
        self._drafter: Drafter | None = LookUp() if decoding.look_up else None
        if decoding.draft:
            self._drafter = Drafted(draft_of(decoding.draft, tokenizer).to(next(model.parameters()).device))

    def write(self, batch: Batch, *, limit: int) -> Texts:
        """What is written after each row, at most `limit` tokens, or fewer if the settings say so."""
        bounds = self.bounds(limit)
        if self.decoding.beams > 1:
            return self._search(batch, bounds)
        if self.decoding.contrast:
            return self._contrast(batch, bounds)
        if self._drafter is not None:
            return [[self._ahead(one, bounds, self._drafter)] for one in rows_of(batch)]
        count = self.decoding.samples or self.decoding.n_best
        draws = zip(*(self._written(batch, bounds) for _ in range(count)), strict=True)
        pick = self._safest if self.decoding.samples else _ranked
        return [pick(list(row)) for row in draws]

    def bounds(self, limit: int) -> Bounds:
        """Where a text of at most so many tokens ends, stop strings aside, and what may stand in it."""
        return Bounds(self.ends, min(limit, self.decoding.length or limit), self.rules)

    def cutters(self) -> Cutters:
        """What ends texts at their stop strings."""
        return Cutters(self.tokenizer, self.decoding.stop)

    def _written(self, batch: Batch, bounds: Bounds) -> list[Hypothesis]:
        given = {"tokenizer": self.tokenizer, "strings": self.decoding.stop}
        return [self._scored(row) for row in written(self.model, batch, bounds, self.choose, **given)]

    def _search(self, batch: Batch, bounds: Bounds) -> Texts:
        asked = self.decoding
        beams = Beams(
            asked.beams, asked.length_penalty, asked.coverage, asked.groups, asked.diversity, enough=asked.enough
        )
        bounds = replace(bounds, until=until_strings(self.tokenizer, asked.stop))
        found = search(self.model, batch, bounds, beams, best=asked.n_best)
        for row in found:
            for one in row:
                one.text = cut(self.tokenizer, one.tokens, asked.stop)
        return found

    def _contrast(self, batch: Batch, bounds: Bounds) -> Texts:
        cutters = self.cutters()
        found = contrast_steps(self.model, batch, cutters.within(bounds), alpha=self.decoding.contrast)
        return [[self._scored(row)] for row in collect(found, cutters)]

    def _ahead(self, one: Batch, bounds: Bounds, drafter: Drafter) -> Hypothesis:
        """One row by speculation."""
        cutters = self.cutters()
        (row,) = collect(steps_ahead(self.model, one, cutters.within(bounds), drafter, self.tally), cutters)
        return self._scored(row)

    def _safest(self, row: Sequence[Hypothesis]) -> list[Hypothesis]:
        found = safest([one.text or "" for one in row])
        best = row[found.number]
        best.score = found.utility
        return [best]

    def _scored(self, row: Written) -> Hypothesis:
        length = max(1, len(row.tokens) + (row.closing is not None))
        score = row.logprob / length**self.decoding.length_penalty
        return Hypothesis(**vars(row), score=score)


def write_texts(
    model: Model,
    batch: Batch,
    tokenizer: Tokenizer,
    decoding: Decoding = Decoding(),  # noqa: B008 - frozen
    *,
    limit: int,
) -> Texts:
    """What is written after each row of the batch in the way that is asked for, the best first."""
    return Ways(decoding, model, tokenizer).write(batch, limit=limit)


def choice_of(decoding: Decoding) -> Choose:
    """How the next token is chosen where there is no search."""
    temperature = decoding.temperature if decoding.temperature is not None else 1.0 if decoding.samples else 0.0
    if temperature == 0:
        return greedy
    return Draw(temperature, decoding.top_k, decoding.top_p, decoding.seed, decoding.min_p, decoding.typical)


def rules_of(decoding: Decoding, tokenizer: Tokenizer, ends: Sequence[int]) -> list[Ruling]:
    """The rules that settings ask for, in the tokens of one model."""
    rules: list[Ruling] = []
    if decoding.repetition != 1.0:
        rules.append(Repetition(decoding.repetition))
    if decoding.no_repeat:
        rules.append(NoRepeat(decoding.no_repeat))
    if decoding.min_length:
        if not ends:
            raise UsageError(
                "--min-length: this tokenizer has no token that ends a text, so texts are as long as --length."
            )
        rules.append(MinLength(decoding.min_length, tuple(ends)))
    if decoding.forbid:
        rules.append(Forbid(spelt(decoding.forbid, tokenizer)))
    if decoding.allow:
        rules.append(Among.texts(list(decoding.allow), tokenizer, ends or None))
    if decoding.regex:
        rules.append(Matching(decoding.regex, tokenizer, ends or None))
    if decoding.schema != "":
        rules.append(JsonSchema(decoding.schema, tokenizer, ends or None))
    return rules


@dataclass(frozen=True)
class Named(Rule):
    """Only tokens that the tokenizer has: some models have more scores, to fill a round number of rows."""

    vocab: int

    def __call__(self, scores: Tensor, sofar: Sofar) -> Tensor:
        return scores.index_fill(-1, torch.arange(self.vocab, scores.size(-1), device=scores.device), -math.inf)


def named_only(model: Model, tokenizer: Tokenizer) -> list[Ruling]:
    """The rule that a model needs which has more scores than its tokenizer has tokens; most need none."""
    return [Named(tokenizer.vocab)] if model.autoregressive.head.score.out_features > tokenizer.vocab else []


def spelt(words: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Each word in tokens, as it stands at the beginning of a text and after a space."""
    rows: dict[tuple[int, ...], None] = {}
    for word in words:
        first, later = (tuple(tokenizer.encode(text, special=False).ids) for text in (word, f" {word}"))
        known = [ids for ids in (first, later) if ids and tokenizer.unknown not in ids]
        if not known:
            raise UsageError(
                f"--forbid: the tokenizer has no tokens for {word!r}, so it is never written; leave it out."
            )
        rows |= dict.fromkeys(known)
    return [list(row) for row in rows]


@lru_cache(1)
def draft_of(where: str, tokenizer: Tokenizer) -> Model:
    """The draft model, if it has the tokens of the model that it writes for."""
    draft = load(where).eval()
    theirs = None if draft.tokenizer is None else draft.tokenizer.target
    if theirs is None or any(
        theirs.token(id) != tokenizer.token(id) for id in range(min(theirs.vocab, tokenizer.vocab))
    ):
        raise UsageError(
            f"--draft: {where} has other tokens than the model that it should write for; train both with one tokenizer."
        )
    return draft


def _ranked(row: Sequence[Hypothesis]) -> list[Hypothesis]:
    return sorted(row, key=lambda one: -one.score)
