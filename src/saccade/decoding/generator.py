"""Text generation from a `GenerationConfig`: one interface to all decoding strategies.

    for hypotheses in generate_hypotheses(model, batch, tokenizer, GenerationConfig(beams=4, n_best=2), max_new_tokens=64):
        hypotheses[0].text, hypotheses[0].score, hypotheses[1].text

The score of a text is its log-probability divided by length ** length_penalty, for every strategy; in minimum Bayes risk decoding
it is the mean similarity to the other samples.
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

HypothesisLists = list[list[Hypothesis]]  # for each row, best first


class TextGenerator:
    """A decoding strategy prepared for one model: logits processors built, sampler made, draft model loaded."""

    decoding: GenerationConfig
    model: Model
    tokenizer: Tokenizer

    def __init__(self, decoding: GenerationConfig, model: Model, tokenizer: Tokenizer):
        self.decoding, self.model, self.tokenizer = decoding.check(), model, tokenizer
        self.stop_ids: list[int] = [] if tokenizer.eos_id is None else [tokenizer.eos_id]
        self.processors: list[LogitsProcessor] = [
            *vocab_processors(model, tokenizer),
            *processors_for(decoding, tokenizer, self.stop_ids),
        ]
        self.sampler: SamplerFunction = sampler_for(decoding)
        self.speculation_stats: SpeculationStats = SpeculationStats()
        self._drafter: Drafter | None = PromptLookup() if decoding.prompt_lookup else None
        if decoding.draft_model:
            self._drafter = DraftModel(
                load_draft_model(decoding.draft_model, tokenizer).to(next(model.parameters()).device)
            )

    def generate(self, batch: Batch, *, max_new_tokens: int) -> HypothesisLists:
        """Generate hypotheses for each row, with at most `max_new_tokens` tokens, or fewer if the config says so."""
        criteria = self.make_criteria(max_new_tokens)
        if self.decoding.beams > 1:
            return self._beam_search(batch, criteria)
        if self.decoding.contrastive_alpha:
            return self._contrastive_search(batch, criteria)
        if self._drafter is not None:
            return [[self._speculate(row, criteria, self._drafter)] for row in split_rows(batch)]
        count = self.decoding.mbr_samples or self.decoding.n_best
        samples = zip(*(self._generate_once(batch, criteria) for _ in range(count)), strict=True)
        select = self._select_mbr if self.decoding.mbr_samples else _sort_by_score
        return [select(list(row)) for row in samples]

    def make_criteria(self, max_new_tokens: int) -> StoppingCriteria:
        """The stopping criteria and logits processors for at most `max_new_tokens` tokens, without stop strings."""
        return StoppingCriteria(
            self.stop_ids, min(max_new_tokens, self.decoding.max_new_tokens or max_new_tokens), self.processors
        )

    def make_cutters(self) -> StopStringCutters:
        """Cutters that end texts at the stop strings."""
        return StopStringCutters(self.tokenizer, self.decoding.stop)

    def _generate_once(self, batch: Batch, criteria: StoppingCriteria) -> list[Hypothesis]:
        rows = generate_texts(
            self.model, batch, criteria, self.sampler, tokenizer=self.tokenizer, stop_strings=self.decoding.stop
        )
        return [self._to_hypothesis(row) for row in rows]

    def _beam_search(self, batch: Batch, criteria: StoppingCriteria) -> HypothesisLists:
        config = self.decoding
        beam_config = BeamConfig(
            config.beams,
            config.length_penalty,
            config.coverage_penalty,
            config.beam_groups,
            config.diversity_penalty,
            early_stopping=config.early_stopping,
        )
        criteria = replace(criteria, stop_condition=stop_string_condition(self.tokenizer, config.stop))
        rows = beam_search(self.model, batch, criteria, beam_config, n_best=config.n_best)
        for row in rows:
            for hypothesis in row:
                hypothesis.text = cut_at_stop_string(self.tokenizer, hypothesis.tokens, config.stop)
        return rows

    def _contrastive_search(self, batch: Batch, criteria: StoppingCriteria) -> HypothesisLists:
        cutters = self.make_cutters()
        steps = contrastive_steps(
            self.model, batch, cutters.with_stop_condition(criteria), alpha=self.decoding.contrastive_alpha
        )
        return [[self._to_hypothesis(row)] for row in collect_texts(steps, cutters)]

    def _speculate(self, batch: Batch, criteria: StoppingCriteria, drafter: Drafter) -> Hypothesis:
        """Decode one row speculatively."""
        cutters = self.make_cutters()
        (row,) = collect_texts(
            speculative_steps(
                self.model, batch, cutters.with_stop_condition(criteria), drafter, self.speculation_stats
            ),
            cutters,
        )
        return self._to_hypothesis(row)

    def _select_mbr(self, row: Sequence[Hypothesis]) -> list[Hypothesis]:
        result = mbr_select([hypothesis.text or "" for hypothesis in row])
        best = row[result.index]
        best.score = result.utility
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
    """Generate hypotheses for each row of the batch with the strategy of a config, best first."""
    return TextGenerator(decoding, model, tokenizer).generate(batch, max_new_tokens=max_new_tokens)


def sampler_for(decoding: GenerationConfig) -> SamplerFunction:
    """The sampler of a config, for strategies that choose one token at a time."""
    temperature = decoding.temperature if decoding.temperature is not None else 1.0 if decoding.mbr_samples else 0.0
    if temperature == 0:
        return greedy
    return Sampler(temperature, decoding.top_k, decoding.top_p, decoding.seed, decoding.min_p, decoding.typical_p)


def processors_for(decoding: GenerationConfig, tokenizer: Tokenizer, stop_ids: Sequence[int]) -> list[LogitsProcessor]:
    """The logits processors of a config, for the vocabulary of one tokenizer."""
    processors: list[LogitsProcessor] = []
    if decoding.repetition_penalty != 1.0:
        processors.append(RepetitionPenalty(decoding.repetition_penalty))
    if decoding.no_repeat_ngram_size:
        processors.append(NoRepeatNgram(decoding.no_repeat_ngram_size))
    if decoding.min_new_tokens:
        if not stop_ids:
            raise UsageError(
                "--min-new-tokens: this tokenizer has no end-of-sequence token, so every text is --max-new-tokens long."
            )
        processors.append(MinNewTokens(decoding.min_new_tokens, tuple(stop_ids)))
    if decoding.bad_words:
        processors.append(BadWords(bad_words_ids(decoding.bad_words, tokenizer)))
    if decoding.choices:
        processors.append(ChoiceConstraint.from_texts(list(decoding.choices), tokenizer, stop_ids or None))
    if decoding.regex:
        processors.append(RegexConstraint(decoding.regex, tokenizer, stop_ids or None))
    if decoding.schema != "":
        processors.append(JsonSchemaConstraint(decoding.schema, tokenizer, stop_ids or None))
    return processors


@dataclass(frozen=True)
class KnownTokensOnly(CheckedProcessor):
    """Forbid ids that the tokenizer does not have: the vocabulary of some models is padded to a round number."""

    vocab: int

    def __call__(self, scores: Tensor, history: TokenHistory) -> Tensor:
        return scores.index_fill(-1, torch.arange(self.vocab, scores.size(-1), device=scores.device), -math.inf)


def vocab_processors(model: Model, tokenizer: Tokenizer) -> list[LogitsProcessor]:
    """A `KnownTokensOnly` processor if the model has more scores than its tokenizer has tokens."""
    return (
        [KnownTokensOnly(tokenizer.vocab)]
        if model.autoregressive_body.head.score.out_features > tokenizer.vocab
        else []
    )


def bad_words_ids(words: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Token sequences of each word, at the start of a text and after a space."""
    rows: dict[tuple[int, ...], None] = {}
    for word in words:
        at_start, after_space = (
            tuple(tokenizer.encode(text, add_special_tokens=False).ids) for text in (word, f" {word}")
        )
        known = [ids for ids in (at_start, after_space) if ids and tokenizer.unk_id not in ids]
        if not known:
            raise UsageError(
                f"--bad-words: the tokenizer has no tokens for {word!r}, so it is never generated; leave it out."
            )
        rows |= dict.fromkeys(known)
    return [list(row) for row in rows]


@lru_cache(1)
def load_draft_model(path: str, tokenizer: Tokenizer) -> Model:
    """Load a draft model, and check that it has the same tokens as the model that verifies."""
    draft = load(path).eval()
    draft_tokenizer = None if draft.tokenizer is None else draft.tokenizer.target
    if draft_tokenizer is None or any(
        draft_tokenizer.id_to_token(id) != tokenizer.id_to_token(id)
        for id in range(min(draft_tokenizer.vocab, tokenizer.vocab))
    ):
        raise UsageError(
            f"--draft-model: {path} has other tokens than the model that it drafts for; train both with the same tokenizer."
        )
    return draft


def _sort_by_score(row: Sequence[Hypothesis]) -> list[Hypothesis]:
    return sorted(row, key=lambda hypothesis: -hypothesis.score)
