"""llguidance in the tokens of one tokenizer: which tokens may follow, and whether a text is whole.

    vocabulary = Vocabulary.of(tokenizer, ends=(2,))
    matcher = vocabulary.start(grammar_of("/[ab]{2}/"))
    matcher = vocabulary.then(matcher, 17, first=True)

A matcher is never changed: `then` copies it, which takes a microsecond. So one matcher serves all beams that share a beginning,
and nothing has to be taken back. Where a token is spelled otherwise at the beginning of a text than later in it (a space that
is dropped there), llguidance sees two tokens, the second with a number beyond the vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from saccade.decoding.spelling import spelling
from saccade.errors import ResourceError
from saccade.text.tokenizer import Tokenizer

if TYPE_CHECKING:  # imported where it is first used: most commands need none of it
    from llguidance import LLMatcher, LLTokenizer

DEAD_END = "NoExtension"  # no token of this vocabulary can follow
LIMITS: dict[str, Any] = {"step_lexer_fuel": 1_000_000, "verbose_errors": False}


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a tokenizer, made ready for llguidance."""

    size: int
    ends: tuple[int, ...]
    later: tuple[bytes, ...]
    at_first: np.ndarray  # (size,) the number of each token where it begins a text
    complete: bool  # whether there is a token for every single byte, so that anything can be written
    tokens: "LLTokenizer"

    @staticmethod
    @lru_cache(4)
    def of(tokenizer: Tokenizer, ends: tuple[int, ...]) -> "Vocabulary":
        from llguidance import LLTokenizer, TokenizerWrapper

        spelled = spelling(tokenizer)
        size = max(tokenizer.vocab, 1 + max(ends))
        later = [b"" if token in ends else text for token, text in enumerate(_padded(spelled.later, size))]
        first = [b"" if token in ends else text for token, text in enumerate(_padded(spelled.first, size))]
        at_first = np.arange(size)
        differ = [token for token in range(size) if first[token] != later[token]]
        at_first[differ] = size + np.arange(len(differ))
        table = _Table(ends[0], (*later, *(first[token] for token in differ)), ends)
        every = {text for text in later if len(text) == 1}
        return Vocabulary(
            size,
            ends,
            tuple(later),
            at_first,
            len(every) == 256,
            LLTokenizer(TokenizerWrapper(table), eos_token=list(ends)),
        )

    @cached_property
    def by_text(self) -> dict[bytes, int]:
        """Each token that is written, by its bytes."""
        return {text: token for token, text in enumerate(self.later) if text}

    def start(self, grammar: str, classes: Sequence[str] = ()) -> "LLMatcher":
        """At the beginning of a text; an error of the grammar is to be asked of the matcher.

        Tokens made of letters of one of the `classes` are looked at together, which is 20 times as fast where they are allowed;
        without any, those that strings of JSON are made of.
        """
        from llguidance import LLMatcher, LLParserLimits

        tokens = self.tokens.with_slices([f"{letters}{{1,20}}" for letters in classes]) if classes else self.tokens
        return LLMatcher(tokens, grammar, log_level=0, limits=LLParserLimits(**LIMITS))

    def then(self, matcher: "LLMatcher", *tokens: int, first: bool) -> "LLMatcher | None":
        """After more tokens, the first of which may stand at the very beginning; None if they may not follow."""
        if any(token >= self.size or token in self.ends for token in tokens):
            return None
        after = matcher.deep_copy()
        numbers = [self.number(tokens[0], first=first), *tokens[1:]]
        taken = after.try_consume_tokens(numbers) == len(numbers)
        _need_sound(after)
        return after if taken else None

    def number(self, token: int, *, first: bool) -> int:
        """What llguidance calls a token."""
        return int(self.at_first[token]) if first else token

    def spell(self, text: bytes, *, first: bool = True) -> tuple[int, ...] | None:
        """A text in tokens, the longest that fits each time; None where that leads nowhere, or it begins with a special one."""
        by_text = self.by_text
        longest, found, at = max(map(len, by_text), default=0), [], 0
        while at < len(text):
            sizes = range(min(longest, len(text) - at), 0, -1)
            size = next((size for size in sizes if text[at : at + size] in by_text), None)
            if size is None or (first and at == 0 and self.at_first[by_text[text[:size]]] >= self.size):
                return None
            found.append(by_text[text[at : at + size]])
            at += size
        return tuple(found)

    def allowed(self, matcher: "LLMatcher", *, first: bool) -> np.ndarray:
        """The tokens that may follow, the ends aside, (V,)."""
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        _need_sound(matcher)
        found = (bits[self.at_first] if first and self.at_first[-1] != self.size - 1 else bits[: self.size]).astype(
            bool
        )
        found[list(self.ends)] = False
        return found

    def ends_after(self, matcher: "LLMatcher", tokens: Sequence[int]) -> bool:
        """Whether the text is whole after these tokens, none of which begins it."""
        if not tokens:
            return matcher.is_accepting()
        return matcher.validate_tokens([*tokens, self.ends[0]]) == len(tokens) + 1


class _Table:
    """What llguidance asks of a tokenizer."""

    bos_token_id = None

    def __init__(self, end: int, tokens: tuple[bytes, ...], special: Sequence[int]):
        self.eos_token_id, self.tokens, self.special_token_ids = end, list(tokens), list(special)

    def __call__(self, text: str) -> list[int]:
        raise NotImplementedError("asked only for tokens that are forced, and none are")


def grammar_of(start: str) -> str:
    """A grammar from what it begins with: `/an expression/`, or `%json` and a schema.

    Where the text is forced, llguidance would otherwise allow the tokens of one spelling alone.
    """
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_lark(f'%llguidance {{"no_forcing": true}}\nstart: {start}')


def _need_sound(matcher: "LLMatcher") -> None:
    """An error where a limit was hit; that nothing can follow is none."""
    if matcher.is_error() and not explain(matcher).startswith(DEAD_END):
        raise ResourceError(
            f"What may be written has become too complex to follow ({explain(matcher)}); simplify the expression or the schema."
        )


def explain(matcher: "LLMatcher") -> str:
    """What llguidance says is wrong, in one line."""
    return matcher.get_error().removesuffix("<non-verbose/>").strip().splitlines()[0].rstrip(".")


def _padded(tokens: tuple[bytes, ...], size: int) -> tuple[bytes, ...]:
    return tokens + (b"",) * (size - len(tokens))
