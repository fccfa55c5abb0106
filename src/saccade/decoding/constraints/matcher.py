"""llguidance with the vocabulary of a tokenizer: which tokens may follow, and whether a text is complete.

    vocabulary = Vocabulary.from_tokenizer(tokenizer, stop_ids=(2,))
    matcher = vocabulary.start_matcher(make_grammar("/[ab]{2}/"))
    matcher = vocabulary.advance(matcher, 17, at_start=True)

Matchers are immutable here: `advance` copies one, which takes a microsecond, so that all beams with the same prefix share
a matcher. A token that is decoded differently at the start of a text (a space that is dropped there) is two tokens to
llguidance, the second with an id beyond the vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from saccade.decoding.constraints.token_bytes import token_bytes
from saccade.errors import ResourceError
from saccade.text.tokenizer import Tokenizer

if TYPE_CHECKING:  # imported on first use, since most commands do not need it
    from llguidance import LLMatcher, LLTokenizer

DEAD_END_ERROR = "NoExtension"  # no token of this vocabulary can follow
PARSER_LIMITS: dict[str, Any] = {"step_lexer_fuel": 1_000_000, "verbose_errors": False}


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary of a tokenizer in the form that llguidance needs."""

    size: int
    stop_ids: tuple[int, ...]
    inner_bytes: tuple[bytes, ...]
    start_ids: np.ndarray  # (size,) the id of each token at the start of a text
    covers_all_bytes: bool  # whether every single byte is a token, so that every text can be generated
    guidance_tokenizer: "LLTokenizer"

    @staticmethod
    @lru_cache(4)
    def from_tokenizer(tokenizer: Tokenizer, stop_ids: tuple[int, ...]) -> "Vocabulary":
        from llguidance import LLTokenizer, TokenizerWrapper

        spelling = token_bytes(tokenizer)
        size = max(tokenizer.vocab, 1 + max(stop_ids))
        inner = [b"" if token in stop_ids else text for token, text in enumerate(_pad(spelling.inner_bytes, size))]
        start = [b"" if token in stop_ids else text for token, text in enumerate(_pad(spelling.start_bytes, size))]
        start_ids = np.arange(size)
        different = [token for token in range(size) if start[token] != inner[token]]
        start_ids[different] = size + np.arange(len(different))
        table = _GuidanceTokenizer(stop_ids[0], (*inner, *(start[token] for token in different)), stop_ids)
        single_bytes = {text for text in inner if len(text) == 1}
        return Vocabulary(
            size,
            stop_ids,
            tuple(inner),
            start_ids,
            len(single_bytes) == 256,
            LLTokenizer(TokenizerWrapper(table), eos_token=list(stop_ids)),
        )

    @cached_property
    def token_by_bytes(self) -> dict[bytes, int]:
        """The token with the given bytes, for all tokens that add to a text."""
        return {text: token for token, text in enumerate(self.inner_bytes) if text}

    def start_matcher(self, grammar: str, character_classes: Sequence[str] = ()) -> "LLMatcher":
        """The matcher at the start of a text; the caller has to check it for errors of the grammar.

        Tokens that consist of letters of one of the `character_classes` are checked together, which is 20 times as fast
        where they are allowed; the default classes are those of JSON strings.
        """
        from llguidance import LLMatcher, LLParserLimits

        tokens = (
            self.guidance_tokenizer.with_slices([f"{characters}{{1,20}}" for characters in character_classes])
            if character_classes
            else self.guidance_tokenizer
        )
        return LLMatcher(tokens, grammar, log_level=0, limits=LLParserLimits(**PARSER_LIMITS))

    def advance(self, matcher: "LLMatcher", *tokens: int, at_start: bool) -> "LLMatcher | None":
        """The matcher after more tokens, the first of which may be the first of the text; None if they are not allowed."""
        if any(token >= self.size or token in self.stop_ids for token in tokens):
            return None
        new = matcher.deep_copy()
        ids = [self.to_guidance_id(tokens[0], at_start=at_start), *tokens[1:]]
        is_accepted = new.try_consume_tokens(ids) == len(ids)
        _check_matcher(new)
        return new if is_accepted else None

    def to_guidance_id(self, token: int, *, at_start: bool) -> int:
        """The id of a token in llguidance's vocabulary."""
        return int(self.start_ids[token]) if at_start else token

    def encode_bytes(self, text: bytes, *, at_start: bool = True) -> tuple[int, ...] | None:
        """Tokenize a text greedily by longest match; None if that fails, or if its first token differs at the start."""
        by_text = self.token_by_bytes
        longest, tokens, at = max(map(len, by_text), default=0), [], 0
        while at < len(text):
            sizes = range(min(longest, len(text) - at), 0, -1)
            size = next((size for size in sizes if text[at : at + size] in by_text), None)
            if size is None or (at_start and at == 0 and self.start_ids[by_text[text[:size]]] >= self.size):
                return None
            tokens.append(by_text[text[at : at + size]])
            at += size
        return tuple(tokens)

    def allowed_tokens(self, matcher: "LLMatcher", *, at_start: bool) -> np.ndarray:
        """Which tokens may follow, without stop tokens, (V,)."""
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        _check_matcher(matcher)
        allowed = (
            bits[self.start_ids] if at_start and self.start_ids[-1] != self.size - 1 else bits[: self.size]
        ).astype(bool)
        allowed[list(self.stop_ids)] = False
        return allowed

    def is_complete_after(self, matcher: "LLMatcher", tokens: Sequence[int]) -> bool:
        """Whether the text is complete after these tokens, which must not be at the start of the text."""
        if not tokens:
            return matcher.is_accepting()
        return matcher.validate_tokens([*tokens, self.stop_ids[0]]) == len(tokens) + 1


class _GuidanceTokenizer:
    """The interface that llguidance expects of a tokenizer."""

    bos_token_id = None

    def __init__(self, end: int, tokens: tuple[bytes, ...], special: Sequence[int]):
        self.eos_token_id, self.tokens, self.special_token_ids = end, list(tokens), list(special)

    def __call__(self, text: str) -> list[int]:
        raise NotImplementedError("llguidance only tokenizes forced text, which is disabled")


def make_grammar(start: str) -> str:
    """Make a grammar from its start rule: `/an expression/`, or `%json` and a schema.

    `no_forcing` is set because llguidance would otherwise allow only one tokenization of forced text.
    """
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_lark(f'%llguidance {{"no_forcing": true}}\nstart: {start}')


def _check_matcher(matcher: "LLMatcher") -> None:
    """Raise an error if llguidance has hit one of its limits; a dead end is not an error."""
    if matcher.is_error() and not matcher_error(matcher).startswith(DEAD_END_ERROR):
        raise ResourceError(
            f"The constraint has become too complex for llguidance ({matcher_error(matcher)}); simplify the expression or the "
            "schema."
        )


def matcher_error(matcher: "LLMatcher") -> str:
    """The error message of llguidance, in one line."""
    return matcher.get_error().removesuffix("<non-verbose/>").strip().splitlines()[0].rstrip(".")


def _pad(tokens: tuple[bytes, ...], size: int) -> tuple[bytes, ...]:
    return tokens + (b"",) * (size - len(tokens))
