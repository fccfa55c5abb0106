"""Generation config: decoding strategy and settings, as the flags of commands and as the input of `TextGenerator`.

This module imports no torch, so that commands print their help quickly.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from os import PathLike
from typing import Annotated, Any, Literal

import tyro

from saccade.errors import UsageError

MAX_LENGTH_PENALTY = 10.0  # beyond this length penalty, length ** penalty overflows
FLAG_NAMES = {"schema": "json-schema"}  # fields with another flag name
SEED_RANGE = range(-(2**63), 2**64)  # the seeds that torch.manual_seed accepts


@dataclass(frozen=True)
class GenerationConfig:
    """Decoding strategy and its settings; the default is greedy decoding."""

    beams: int = 1
    """Beam search with this many beams; 1 disables it."""
    length_penalty: float = 1.0
    """Length penalty: divide the summed log-probabilities by length to this power. Above 0 favors long texts; 0 disables it."""
    coverage_penalty: float = 0.0
    """Coverage penalty of beam search for source tokens that get little attention; 0 disables it."""
    beam_groups: int = 1
    """Diverse beam search: split the beams into this many groups; 1 disables it."""
    diversity_penalty: float = 0.0
    """Diversity penalty for a token that an earlier beam group has just chosen; 0 disables it."""
    early_stopping: Literal["first", "heuristic", "exact"] = "heuristic"
    """Early stopping of finished beams: at once (first), if a better text is unlikely (heuristic), or impossible (exact)."""
    n_best: int = 1
    """Number of texts per input, best first: from beam search, or from as many samples."""
    temperature: Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")] = None
    """Sampling temperature: below 1 favors likely tokens, 0 is greedy; default: greedy, or 0.8 in `saccade generate`."""
    top_k: int = 0
    """Top-k sampling: sample from this many most likely tokens; 0 disables it."""
    top_p: float = 1.0
    """Nucleus sampling: sample from the smallest set of tokens with this total probability; 1.0 disables it."""
    min_p: float = 0.0
    """Min-p sampling: sample from tokens at least this fraction as likely as the most likely one; 0 disables it."""
    typical_p: float = 1.0
    """Locally typical sampling: tokens closest to the expected surprisal with this total probability; 1.0 disables it."""
    seed: int = 0
    """Random seed of sampling: the same seed gives the same texts."""
    mbr_samples: int = 0
    """Minimum Bayes risk decoding: sample this many texts and keep the one most similar to the others; 0 disables it."""
    contrastive_alpha: float = 0.0
    """Contrastive search: penalty on similarity to the preceding tokens, from 0 (disabled) to 1."""
    max_new_tokens: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Maximum number of tokens to generate; default: the limit of the task or command."""
    min_new_tokens: int = 0
    """Minimum number of tokens to generate; 0 sets no minimum."""
    no_repeat_ngram_size: int = 0
    """Never generate an n-gram of this size twice, prompt included; 0 allows repetition."""
    repetition_penalty: float = 1.0
    """Repetition penalty: above 1, tokens of the prompt and the text so far become less likely; 1.0 disables it."""
    bad_words: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEXT", help_behavior_hint="")] = ()
    """Bad words: words or phrases that are never generated."""
    choices: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEXT", help_behavior_hint="")] = ()
    """Constrained decoding: generate one of these texts and nothing else."""
    regex: Annotated[str, tyro.conf.arg(metavar="EXPRESSION", help_behavior_hint="")] = ""
    """Constrained decoding: generate a text that matches this regular expression from start to end."""
    schema: Annotated[
        str | PathLike[str] | Mapping[str, Any],
        tyro.conf.arg(name="json-schema", metavar="FILE", constructor=str, help_behavior_hint=""),
    ] = ""
    """Constrained decoding: JSON that fits the JSON schema in this file; in Python, a path or the schema as a dictionary."""
    stop: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEXT", help_behavior_hint="")] = ()
    """Stop strings: end the text before the first of these."""
    draft_model: Annotated[str, tyro.conf.arg(metavar="RUN", help_behavior_hint="")] = ""
    """Speculative decoding: a smaller model with the same tokenizer drafts, this one verifies. Same greedy output, faster."""
    prompt_lookup: tyro.conf.FlagCreatePairsOff[bool] = False
    """Speculative decoding without a second model: draft tokens by n-gram lookup in the input. For texts that quote it."""

    @property
    def is_greedy(self) -> bool:
        """Whether decoding is plain greedy: no beam search, no sampling, no speculation."""
        return not (any(on for _, on in self._strategies()) or self.temperature)

    @property
    def outputs_json(self) -> bool:
        """Whether the output is JSON, which is returned without the prompt."""
        return self.schema != ""

    @property
    def can_stream(self) -> bool:
        """Whether tokens can be shown as they are generated: one text, whose tokens are final once chosen."""
        return self.n_best == 1 and not any(on for _, on in self._strategies())

    def with_default_sampling(self, temperature: float, top_p: float) -> "GenerationConfig":
        """This config with sampling at the given settings, unless a strategy or temperature is set; for commands that sample."""
        if self.temperature is not None or any(on for name, on in self._strategies() if name != "mbr_samples"):
            return self
        return replace(self, temperature=temperature, top_p=top_p if self.top_p == 1.0 else self.top_p)

    def check(self) -> "GenerationConfig":
        """Return this config, or raise an error that names settings which are wrong or cannot be combined."""
        strategies = [name for name, on in self._strategies() if on]
        if len(strategies) > 1:
            raise UsageError(
                f"{flag(strategies[0])} and {flag(strategies[1])} are two decoding strategies; choose one of them."
            )
        for name, problem in self._problems(strategies[0] if strategies else ""):
            raise UsageError(f"{flag(name)}: {problem}")
        return self

    def _strategies(self) -> list[tuple[str, bool]]:
        """The decoding strategies besides greedy decoding and sampling, and whether each is enabled."""
        on = {
            "beams": self.beams > 1,
            "mbr_samples": self.mbr_samples > 0,
            "contrastive_alpha": self.contrastive_alpha != 0,
        }
        return [*on.items(), ("draft_model", bool(self.draft_model)), ("prompt_lookup", self.prompt_lookup)]

    def _problems(self, strategy: str) -> Iterator[tuple[str, str]]:
        """Yield settings that are wrong, each with the reason."""
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, float) and not math.isfinite(value):
                yield item.name, f"a number is needed; got {value}."
        yield from self._range_problems()
        yield from self._combination_problems(strategy)
        yield from self._text_problems()
        if self.beams % self.beam_groups:
            yield "beam_groups", f"groups must be of equal size; got {self.beams} beams in {self.beam_groups} groups."
        if self.max_new_tokens is not None and self.max_new_tokens < max(1, self.min_new_tokens):
            yield (
                "max_new_tokens",
                f"a maximum of {self.max_new_tokens} tokens is below the minimum of {max(1, self.min_new_tokens)}.",
            )

    def _range_problems(self) -> Iterator[tuple[str, str]]:
        """Yield numbers that are out of range."""
        for name in ("beams", "n_best", "beam_groups"):
            if getattr(self, name) < 1:
                yield name, f"at least 1 is needed; got {getattr(self, name)}."
        for name in (
            "mbr_samples",
            "min_new_tokens",
            "no_repeat_ngram_size",
            "top_k",
            "temperature",
            "coverage_penalty",
            "diversity_penalty",
        ):
            if (getattr(self, name) or 0) < 0:
                yield name, f"0 or more is needed; got {getattr(self, name)}."
        for name in ("top_p", "typical_p"):
            if not 0 < getattr(self, name) <= 1:
                yield (
                    name,
                    f"a probability above 0 and at most 1 is needed, and 1 disables it; got {getattr(self, name)}.",
                )
        for name in ("min_p", "contrastive_alpha"):
            if not 0 <= getattr(self, name) <= 1:
                yield name, f"a number from 0 to 1 is needed, and 0 disables it; got {getattr(self, name)}."
        if self.repetition_penalty <= 0:
            yield (
                "repetition_penalty",
                f"a number above 0 is needed, and 1 disables it; got {self.repetition_penalty}.",
            )
        if abs(self.length_penalty) > MAX_LENGTH_PENALTY:
            yield (
                "length_penalty",
                f"a number from {-MAX_LENGTH_PENALTY:g} to {MAX_LENGTH_PENALTY:g} is needed; got {self.length_penalty}.",
            )
        if self.seed not in SEED_RANGE:
            yield "seed", f"a whole number of at most 64 bits is needed; got {self.seed}."

    def _text_problems(self) -> Iterator[tuple[str, str]]:
        """Yield texts, expressions and schemas that cannot be used."""
        for name in ("bad_words", "stop"):
            if "" in getattr(self, name):
                yield name, "a text of at least one character is needed; got an empty one. Leave it out."
        given = [name for name in ("choices", "regex", "schema") if getattr(self, name) not in ("", ())]
        if len(given) > 1:
            yield given[0], f"it and {flag(given[1])} both constrain the whole text; choose one of them."
        if given and self.stop:
            yield (
                given[0],
                "the constraint decides where a text ends, and --stop would cut it earlier; leave one of them out.",
            )
        if self.regex:
            from saccade.decoding.constraints.regex_parser import parse_regex

            try:
                parse_regex(self.regex)
            except ValueError as error:
                yield "regex", str(error)
        if "schema" in given:
            from saccade.decoding.constraints.json_schema import load_schema

            load_schema(self.schema)  # its errors name the file, or the place in the schema

    def _combination_problems(self, strategy: str) -> Iterator[tuple[str, str]]:
        """Yield settings that have no effect without, or together with, another."""
        defaults = GenerationConfig()
        samples = bool(self.temperature) or strategy == "mbr_samples"
        if self.temperature and strategy not in ("", "mbr_samples"):
            yield "temperature", f"{flag(strategy)} does not sample; leave one of the two out."
        if strategy == "mbr_samples" and self.temperature == 0:
            yield "mbr_samples", "a temperature of 0 does not sample; leave --temperature out, or raise it."
        for name in ("top_k", "top_p", "min_p", "typical_p"):
            if getattr(self, name) != getattr(defaults, name) and not samples:
                yield name, "it filters what is sampled, and nothing is sampled; set --temperature too."
        for name in ("coverage_penalty", "beam_groups", "diversity_penalty", "early_stopping"):
            if getattr(self, name) != getattr(defaults, name) and strategy != "beams":
                yield name, "it belongs to beam search, which is disabled; set --beams too."
        if self.diversity_penalty and self.beam_groups == 1:
            yield "diversity_penalty", "it applies between beam groups, and there is only one; set --beam-groups too."
        if self.n_best > 1 and strategy != "beams" and not (self.temperature and strategy == ""):
            yield (
                "n_best",
                "several texts come from beam search (--beams) or sampling (--temperature); set one of them too.",
            )
        if strategy == "beams" and self.n_best > self.beams:
            yield "n_best", f"{self.beams} beams give at most {self.beams} texts; got {self.n_best}. Use more beams."


def flag(name: str) -> str:
    """The command line flag of a field.

    >>> flag("n_best")
    '--n-best'
    """
    return f"--{FLAG_NAMES.get(name, name).replace('_', '-')}"
