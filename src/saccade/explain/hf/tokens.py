"""Names and character spans of the tokens of a tokenizer of the `transformers` package."""

from collections.abc import Sequence
from typing import Any

from saccade.errors import UsageError
from saccade.explain.axis import Axis, Token, make_output_axis, name_byte_tokens

MAX_KNOWN_LENGTH = 10**9  # a larger model_max_length means that there is no limit


class HFTokenizer:
    """A tokenizer of `transformers`, alone or in a processor, with the methods that axes need."""

    def __init__(self, tokenizer: Any):
        self.tokenizer: Any = getattr(tokenizer, "tokenizer", tokenizer)
        if not hasattr(self.tokenizer, "convert_ids_to_tokens"):
            raise UsageError(
                f"tokenizer must be a tokenizer of transformers or a processor that has one; got {type(tokenizer).__name__}."
            )

    @property
    def special_tokens(self) -> dict[str, int]:
        """The special tokens by name, as the tokenizers of saccade have them."""
        return dict(zip(self.tokenizer.all_special_tokens, self.tokenizer.all_special_ids, strict=False))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids, without special tokens."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def id_to_token(self, id: int) -> str:
        """The token of an id in the vocabulary."""
        return str(self.tokenizer.convert_ids_to_tokens(id))

    def encode(self, *texts: str, limit: int | None = None, is_target: bool = False) -> tuple[dict[str, Any], int]:
        """Encode one text or a pair with special tokens; returns the encoding and the number of truncated tokens."""
        model_limit = self.tokenizer.model_max_length
        limits = [length for length in (limit, model_limit) if length is not None and length < MAX_KNOWN_LENGTH]
        inputs = {"text_target": texts[0]} if is_target else dict(zip(("text", "text_pair"), texts, strict=False))
        options: dict[str, Any] = {"return_offsets_mapping": True} if self.tokenizer.is_fast else {}
        encoded = self.tokenizer(**inputs, **options, verbose=False)
        length = len(encoded["input_ids"])
        if limits and length > min(limits):
            encoded = self.tokenizer(**inputs, **options, truncation=True, max_length=min(limits))
        return encoded, length - len(encoded["input_ids"])

    def make_axis(self, encoded: Any, texts: Sequence[str], first_text_index: int = 0) -> tuple[Axis, tuple[str, ...]]:
        """The tokens of an encoding with their names and spans, and the texts that the spans refer to."""
        ids = list(encoded["input_ids"])
        if not self.tokenizer.is_fast:
            return self._make_decoded_axis(ids, texts, first_text_index)
        tokens = []
        for id, span, text_index in zip(ids, encoded["offset_mapping"], encoded.sequence_ids(0), strict=True):
            if text_index is None:
                tokens.append(Token(self.id_to_token(id)))
                continue
            name = texts[int(text_index)][int(span[0]) : int(span[1])] or self.id_to_token(id)
            tokens.append(Token(name, (span[0], span[1]), first_text_index + text_index))
        return Axis("input", tuple(name_byte_tokens(tokens, self, ids))), tuple(texts)

    def _make_decoded_axis(
        self, ids: list[int], texts: Sequence[str], first_text_index: int
    ) -> tuple[Axis, tuple[str, ...]]:
        """The axis for a tokenizer without character offsets: each text is found among the ids, its spans by decoding."""
        tokens = [Token(self.id_to_token(id)) for id in ids]
        decoded_texts, next_index = [], 0
        for number, text in enumerate(texts):
            text_ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            matches = (i for i in range(next_index, len(ids)) if ids[i : i + len(text_ids)] == text_ids[: len(ids) - i])
            start = next(matches, None)
            if start is None:
                decoded_texts.append(text)
                continue
            axis, decoded = make_output_axis(self, text_ids[: len(ids) - start], first_text_index + number)
            tokens[start : start + len(axis)] = axis.tokens
            next_index = start + len(axis)
            decoded_texts.append(decoded)
        return Axis("input", tuple(tokens)), tuple(decoded_texts)

    def name_ids(self, ids: Sequence[int]) -> tuple[Token, ...]:
        """Names for ids without a text; all but the special tokens count as text."""
        special = set(self.tokenizer.all_special_ids)
        return tuple(Token(self.id_to_token(id), (0, 0), None if id in special else 0) for id in ids)


def name_numbers(ids: Sequence[int]) -> tuple[Token, ...]:
    """Names for ids without a tokenizer: the ids themselves."""
    return tuple(Token(str(id), (0, 0), 0) for id in ids)
