"""llguidance in the tokens of one tokenizer: which tokens may follow, and whether a text is whole.

    vocabulary = Vocabulary.of(tokenizer, ends=(2,))
    matcher = vocabulary.start(grammar_of("/[ab]{2}/"))
    matcher = vocabulary.then(matcher, 17, first=True)

A matcher is never changed: `advance` copies it, which takes a microsecond. So one matcher serves all beams that share a
beginning, and nothing has to be taken back. Where a token is spelled otherwise at the beginning of a text than later in it
(a space that is dropped there), llguidance sees two tokens, the second with a number beyond the vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from saccade.decoding.constraints.token_bytes import token_bytes
from saccade.errors import ResourceError
from saccade.text.tokenizer import Tokenizer

if TYPE_CHECKING:  # imported where it is first used: most commands need none of it
    from llguidance import LLMatcher, LLTokenizer

DEAD_END_ERROR = "NoExtension"  # no token of this vocabulary can follow
PARSER_LIMITS: dict[str, Any] = {"step_lexer_fuel": 1_000_000, "verbose_errors": False}


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a tokenizer, made ready for llguidance."""

    size: int
    stop_ids: tuple[int, ...]
    inner_bytes: tuple[bytes, ...]
    start_ids: np.ndarray  # (size,) the number of each token where it begins a text
    covers_all_bytes: bool  # whether there is a token for every single byte, so that anything can be written
    guidance_tokenizer: "LLTokenizer"

    @staticmethod
    @lru_cache(4)
    def from_tokenizer(tokenizer: Tokenizer, stop_ids: tuple[int, ...]) -> "Vocabulary":
        from llguidance import LLTokenizer, TokenizerWrapper

        spelled = token_bytes(tokenizer)
        size = max(tokenizer.vocab, 1 + max(stop_ids))
        later = [b"" if token in stop_ids else text for token, text in enumerate(_pad(spelled.inner_bytes, size))]
        first = [b"" if token in stop_ids else text for token, text in enumerate(_pad(spelled.start_bytes, size))]
        at_first = np.arange(size)
        differ = [token for token in range(size) if first[token] != later[token]]
        at_first[differ] = size + np.arange(len(differ))
        table = _GuidanceTokenizer(stop_ids[0], (*later, *(first[token] for token in differ)), stop_ids)
        every = {text for text in later if len(text) == 1}
        return Vocabulary(
            size,
            stop_ids,
            tuple(later),
            at_first,
            len(every) == 256,
            LLTokenizer(TokenizerWrapper(table), eos_token=list(stop_ids)),
        )

    @cached_property
    def token_by_bytes(self) -> dict[bytes, int]:
        """Each token that is written, by its bytes."""
        return {text: token for token, text in enumerate(self.inner_bytes) if text}

    def start_matcher(self, grammar: str, character_classes: Sequence[str] = ()) -> "LLMatcher":
        """At the beginning of a text; an error of the grammar is to be asked of the matcher.

        Tokens made of letters of one of the `classes` are looked at together, which is 20 times as fast where they are allowed;
        without any, those that strings of JSON are made of.
        """
        from llguidance import LLMatcher, LLParserLimits

        tokens = (
            self.guidance_tokenizer.with_slices([f"{letters}{{1,20}}" for letters in character_classes])
            if character_classes
            else self.guidance_tokenizer
        )
        return LLMatcher(tokens, grammar, log_level=0, limits=LLParserLimits(**PARSER_LIMITS))

    def advance(self, matcher: "LLMatcher", *tokens: int, at_start: bool) -> "LLMatcher | None":
        """After more tokens, the first of which may stand at the very beginning; None if they may not follow."""
        if any(token >= self.size or token in self.stop_ids for token in tokens):
            return None
        after = matcher.deep_copy()
        numbers = [self.to_guidance_id(tokens[0], at_start=at_start), *tokens[1:]]
        taken = after.try_consume_tokens(numbers) == len(numbers)
        _check_matcher(after)
        return after if taken else None

    def to_guidance_id(self, token: int, *, at_start: bool) -> int:
        """What llguidance calls a token."""
        return int(self.start_ids[token]) if at_start else token

    def encode_bytes(self, text: bytes, *, at_start: bool = True) -> tuple[int, ...] | None:
        """A text in tokens, the longest that fits each time; None where that leads nowhere, or it begins with a special one."""
        by_text = self.token_by_bytes
        longest, found, at = max(map(len, by_text), default=0), [], 0
        while at < len(text):
            sizes = range(min(longest, len(text) - at), 0, -1)
            size = next((size for size in sizes if text[at : at + size] in by_text), None)
            if size is None or (at_start and at == 0 and self.start_ids[by_text[text[:size]]] >= self.size):
                return None
            found.append(by_text[text[at : at + size]])
            at += size
        return tuple(found)

    def allowed_tokens(self, matcher: "LLMatcher", *, at_start: bool) -> np.ndarray:
        """The tokens that may follow, the ends aside, (V,)."""
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        _check_matcher(matcher)
        found = (
            bits[self.start_ids] if at_start and self.start_ids[-1] != self.size - 1 else bits[: self.size]
        ).astype(bool)
        found[list(self.stop_ids)] = False
        return found

    def is_complete_after(self, matcher: "LLMatcher", tokens: Sequence[int]) -> bool:
        """Whether the text is whole after these tokens, none of which begins it."""
        if not tokens:
            return matcher.is_accepting()
        return matcher.validate_tokens([*tokens, self.stop_ids[0]]) == len(tokens) + 1


class _GuidanceTokenizer:
    """What llguidance asks of a tokenizer."""

    bos_token_id = None

    def __init__(self, end: int, tokens: tuple[bytes, ...], special: Sequence[int]):
        self.eos_token_id, self.tokens, self.special_token_ids = end, list(tokens), list(special)

    def __call__(self, text: str) -> list[int]:
        raise NotImplementedError("asked only for tokens that are forced, and none are")


def make_grammar(start: str) -> str:
    """A grammar from what it begins with: `/an expression/`, or `%json` and a schema.

    Where the text is forced, llguidance would otherwise allow the tokens of one spelling alone.
    """
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_lark(f'%llguidance {{"no_forcing": true}}\nstart: {start}')


def _check_matcher(matcher: "LLMatcher") -> None:
    """An error where a limit was hit; that nothing can follow is none."""
    if matcher.is_error() and not matcher_error(matcher).startswith(DEAD_END_ERROR):
        raise ResourceError(
            f"What may be written has become too complex to follow ({matcher_error(matcher)}); simplify the "
            "expression or the schema."
        )


def matcher_error(matcher: "LLMatcher") -> str:
    """What llguidance says is wrong, in one line."""
    return matcher.get_error().removesuffix("<non-verbose/>").strip().splitlines()[0].rstrip(".")


def _pad(tokens: tuple[bytes, ...], size: int) -> tuple[bytes, ...]:
    return tokens + (b"",) * (size - len(tokens))
