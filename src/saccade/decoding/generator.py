"""From settings to texts: every way to write behind one call.

    for found in generate_hypotheses(model, batch, tokenizer, GenerationConfig(beams=4, n_best=2), max_new_tokens=64):
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
from saccade.decoding.beam import BeamConfig, Hypothesis, beam_search
from saccade.decoding.config import GenerationConfig
from saccade.decoding.constraints.processors import ChoiceConstraint, JsonSchemaConstraint, RegexConstraint
from saccade.decoding.contrastive import contrastive_steps
from saccade.decoding.logits_processors import (
    BadWords,
    CheckedProcessor,
    LogitsProcessor,
    MinNewTokens,
    NoRepeatNgram,
    RepetitionPenalty,
    TokenHistory,
)
from saccade.decoding.loop import SamplerFunction
from saccade.decoding.mbr import mbr_select
from saccade.decoding.sampling import Sampler, greedy
from saccade.decoding.speculative import (
    Drafter,
    DraftModel,
    PromptLookup,
    SpeculationStats,
    speculative_steps,
    split_rows,
)
from saccade.decoding.stop_strings import (
    GeneratedText,
    StopStringCutters,
    collect_texts,
    cut_at_stop_string,
    generate_texts,
    stop_string_condition,
)
from saccade.decoding.stopping import StoppingCriteria
from saccade.errors import UsageError
from saccade.models.load import load
from saccade.models.model import Model
from saccade.text.tokenizer import Tokenizer

HypothesisLists = list[list[Hypothesis]]  # of each row, the best first


class TextGenerator:
    """Settings made ready for one model: its tokens looked up, its rules built, its draft loaded."""

    def __init__(self, decoding: GenerationConfig, model: Model, tokenizer: Tokenizer):
        self.decoding, self.model, self.tokenizer = decoding.check(), model, tokenizer
        self.stop_ids = [] if tokenizer.eos_id is None else [tokenizer.eos_id]
        self.processors = [*vocab_processors(model, tokenizer), *processors_for(decoding, tokenizer, self.stop_ids)]
        self.sampler = sampler_for(decoding)
        self.speculation_stats = SpeculationStats()  # of speculation
        self._drafter: Drafter | None = PromptLookup() if decoding.prompt_lookup else None
        if decoding.draft_model:
            self._drafter = DraftModel(
                load_draft_model(decoding.draft_model, tokenizer).to(next(model.parameters()).device)
            )

    def generate(self, batch: Batch, *, max_new_tokens: int) -> HypothesisLists:
        """What is written after each row, at most `max_new_tokens` tokens, or fewer if the settings say so."""
        bounds = self.make_criteria(max_new_tokens)
        if self.decoding.beams > 1:
            return self._beam_search(batch, bounds)
        if self.decoding.contrastive_alpha:
            return self._contrastive_search(batch, bounds)
        if self._drafter is not None:
            return [[self._speculate(one, bounds, self._drafter)] for one in split_rows(batch)]
        count = self.decoding.mbr_samples or self.decoding.n_best
        draws = zip(*(self._generate_once(batch, bounds) for _ in range(count)), strict=True)
        pick = self._select_mbr if self.decoding.mbr_samples else _sort_by_score
        return [pick(list(row)) for row in draws]

    def make_criteria(self, max_new_tokens: int) -> StoppingCriteria:
        """Where a text of at most so many tokens ends, stop strings aside, and what may stand in it."""
        return StoppingCriteria(
            self.stop_ids, min(max_new_tokens, self.decoding.max_new_tokens or max_new_tokens), self.processors
        )

    def make_cutters(self) -> StopStringCutters:
        """What ends texts at their stop strings."""
        return StopStringCutters(self.tokenizer, self.decoding.stop)

    def _generate_once(self, batch: Batch, criteria: StoppingCriteria) -> list[Hypothesis]:
        given = {"tokenizer": self.tokenizer, "stop_strings": self.decoding.stop}
        return [self._to_hypothesis(row) for row in generate_texts(self.model, batch, criteria, self.sampler, **given)]

    def _beam_search(self, batch: Batch, criteria: StoppingCriteria) -> HypothesisLists:
        asked = self.decoding
        beams = BeamConfig(
            asked.beams,
            asked.length_penalty,
            asked.coverage_penalty,
            asked.beam_groups,
            asked.diversity_penalty,
            early_stopping=asked.early_stopping,
        )
        criteria = replace(criteria, stop_condition=stop_string_condition(self.tokenizer, asked.stop))
        found = beam_search(self.model, batch, criteria, beams, n_best=asked.n_best)
        for row in found:
            for one in row:
                one.text = cut_at_stop_string(self.tokenizer, one.tokens, asked.stop)
        return found

    def _contrastive_search(self, batch: Batch, criteria: StoppingCriteria) -> HypothesisLists:
        cutters = self.make_cutters()
        found = contrastive_steps(
            self.model, batch, cutters.with_stop_condition(criteria), alpha=self.decoding.contrastive_alpha
        )
        return [[self._to_hypothesis(row)] for row in collect_texts(found, cutters)]

    def _speculate(self, batch: Batch, criteria: StoppingCriteria, drafter: Drafter) -> Hypothesis:
        """One row by speculation."""
        cutters = self.make_cutters()
        (row,) = collect_texts(
            speculative_steps(
                self.model, batch, cutters.with_stop_condition(criteria), drafter, self.speculation_stats
            ),
            cutters,
        )
        return self._to_hypothesis(row)

    def _select_mbr(self, row: Sequence[Hypothesis]) -> list[Hypothesis]:
        found = mbr_select([one.text or "" for one in row])
        best = row[found.index]
        best.score = found.utility
        return [best]

    def _to_hypothesis(self, row: GeneratedText) -> Hypothesis:
        length = max(1, len(row.tokens) + (row.stop_logprob is not None))
        score = row.cumulative_logprob / length**self.decoding.length_penalty
        return Hypothesis(**vars(row), score=score)


def generate_hypotheses(
    model: Model,
    batch: Batch,
    tokenizer: Tokenizer,
    decoding: GenerationConfig = GenerationConfig(),  # noqa: B008 - frozen
    *,
    max_new_tokens: int,
) -> HypothesisLists:
    """What is written after each row of the batch in the way that is asked for, the best first."""
    return TextGenerator(decoding, model, tokenizer).generate(batch, max_new_tokens=max_new_tokens)


def sampler_for(decoding: GenerationConfig) -> SamplerFunction:
    """How the next token is chosen where there is no search."""
    temperature = decoding.temperature if decoding.temperature is not None else 1.0 if decoding.mbr_samples else 0.0
    if temperature == 0:
        return greedy
    return Sampler(temperature, decoding.top_k, decoding.top_p, decoding.seed, decoding.min_p, decoding.typical_p)


def processors_for(decoding: GenerationConfig, tokenizer: Tokenizer, stop_ids: Sequence[int]) -> list[LogitsProcessor]:
    """The rules that settings ask for, in the tokens of one model."""
    rules: list[LogitsProcessor] = []
    if decoding.repetition_penalty != 1.0:
        rules.append(RepetitionPenalty(decoding.repetition_penalty))
    if decoding.no_repeat_ngram_size:
        rules.append(NoRepeatNgram(decoding.no_repeat_ngram_size))
    if decoding.min_new_tokens:
        if not stop_ids:
            raise UsageError(
                "--min-new-tokens: this tokenizer has no token that ends a text, so texts are as long as --max-new-tokens."
            )
        rules.append(MinNewTokens(decoding.min_new_tokens, tuple(stop_ids)))
    if decoding.bad_words:
        rules.append(BadWords(bad_words_ids(decoding.bad_words, tokenizer)))
    if decoding.choices:
        rules.append(ChoiceConstraint.from_texts(list(decoding.choices), tokenizer, stop_ids or None))
    if decoding.regex:
        rules.append(RegexConstraint(decoding.regex, tokenizer, stop_ids or None))
    if decoding.schema != "":
        rules.append(JsonSchemaConstraint(decoding.schema, tokenizer, stop_ids or None))
    return rules


@dataclass(frozen=True)
class KnownTokensOnly(CheckedProcessor):
    """Only tokens that the tokenizer has: some models have more scores, to fill a round number of rows."""

    vocab: int

    def __call__(self, scores: Tensor, history: TokenHistory) -> Tensor:
        return scores.index_fill(-1, torch.arange(self.vocab, scores.size(-1), device=scores.device), -math.inf)


def vocab_processors(model: Model, tokenizer: Tokenizer) -> list[LogitsProcessor]:
    """The rule that a model needs which has more scores than its tokenizer has tokens; most need none."""
    return (
        [KnownTokensOnly(tokenizer.vocab)]
        if model.autoregressive_body.head.score.out_features > tokenizer.vocab
        else []
    )


def bad_words_ids(words: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Each word in tokens, as it stands at the beginning of a text and after a space."""
    rows: dict[tuple[int, ...], None] = {}
    for word in words:
        first, later = (tuple(tokenizer.encode(text, add_special_tokens=False).ids) for text in (word, f" {word}"))
        known = [ids for ids in (first, later) if ids and tokenizer.unk_id not in ids]
        if not known:
            raise UsageError(
                f"--bad-words: the tokenizer has no tokens for {word!r}, so it is never written; leave it out."
            )
        rows |= dict.fromkeys(known)
    return [list(row) for row in rows]


@lru_cache(1)
def load_draft_model(path: str, tokenizer: Tokenizer) -> Model:
    """The draft model, if it has the tokens of the model that it writes for."""
    draft = load(path).eval()
    theirs = None if draft.tokenizer is None else draft.tokenizer.target
    if theirs is None or any(
        theirs.id_to_token(id) != tokenizer.id_to_token(id) for id in range(min(theirs.vocab, tokenizer.vocab))
    ):
        raise UsageError(
            f"--draft-model: {path} has other tokens than the model that it should write for; train both with one tokenizer."
        )
    return draft


def _sort_by_score(row: Sequence[Hypothesis]) -> list[Hypothesis]:
    return sorted(row, key=lambda one: -one.score)
