"""Names and character spans of the tokens of a tokenizer of the `transformers` package."""

from collections.abc import Sequence
from typing import Any

from saccade.errors import UsageError
from saccade.explain.axis import Axis, Token, make_output_axis, name_byte_tokens

MAX_KNOWN_LENGTH = 10**9  # a tokenizer without a limit has a larger one


class HFTokenizer:
    """A tokenizer of `transformers`, alone or in a processor, with the methods that our axes need."""

    def __init__(self, tokenizer: Any):
        self.tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        if not hasattr(self.tokenizer, "convert_ids_to_tokens"):
            raise UsageError(
                f"A tokenizer of transformers is needed, or a processor that has one; got {type(tokenizer).__name__}."
            )

    @property
    def special_tokens(self) -> dict[str, int]:
        """The special tokens by name, as the tokenizers of saccade have them."""
        return dict(zip(self.tokenizer.all_special_tokens, self.tokenizer.all_special_ids, strict=False))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids, without special tokens."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def id_to_token(self, id: int) -> str:
        """What the vocabulary calls a token."""
        return str(self.tokenizer.convert_ids_to_tokens(id))

    def encode(self, *texts: str, limit: int | None = None, is_target: bool = False) -> tuple[dict[str, Any], int]:
        """Encode one text or a pair, as the model reads it, and count the tokens that did not fit."""
        known = self.tokenizer.model_max_length
        limits = [length for length in (limit, known) if length is not None and length < MAX_KNOWN_LENGTH]
        given = {"text_target": texts[0]} if is_target else dict(zip(("text", "text_pair"), texts, strict=False))
        options: dict[str, Any] = {"return_offsets_mapping": True} if self.tokenizer.is_fast else {}
        encoded = self.tokenizer(**given, **options, verbose=False)
        length = len(encoded["input_ids"])
        if limits and length > min(limits):
            encoded = self.tokenizer(**given, **options, truncation=True, max_length=min(limits))
        return encoded, length - len(encoded["input_ids"])

    def make_axis(self, encoded: Any, texts: Sequence[str], first_text_index: int = 0) -> tuple[Axis, tuple[str, ...]]:
        """The tokens of an encoding with their names and spans, and the texts that the spans count in."""
        ids = list(encoded["input_ids"])
        if not self.tokenizer.is_fast:
            return self._make_decoded_axis(ids, texts, first_text_index)
        tokens = []
        for id, span, part in zip(ids, encoded["offset_mapping"], encoded.sequence_ids(0), strict=True):
            if part is None:
                tokens.append(Token(self.id_to_token(id)))
                continue
            name = texts[int(part)][int(span[0]) : int(span[1])] or self.id_to_token(id)
            tokens.append(Token(name, (span[0], span[1]), first_text_index + part))
        return Axis("input", tuple(name_byte_tokens(tokens, self, ids))), tuple(texts)

    def _make_decoded_axis(
        self, ids: list[int], texts: Sequence[str], first_text_index: int
    ) -> tuple[Axis, tuple[str, ...]]:
        """Of a tokenizer that knows no character offsets: each text is found among the ids, and its spans by decoding."""
        tokens = [Token(self.id_to_token(id)) for id in ids]
        read, start = [], 0
        for number, text in enumerate(texts):
            part = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            at = next((i for i in range(start, len(ids)) if ids[i : i + len(part)] == part[: len(ids) - i]), None)
            if at is None:
                read.append(text)
                continue
            axis, decoded = make_output_axis(self, part[: len(ids) - at], first_text_index + number)
            tokens[at : at + len(axis)] = axis.tokens
            start = at + len(axis)
            read.append(decoded)
        return Axis("input", tuple(tokens)), tuple(read)

    def name_ids(self, ids: Sequence[int]) -> tuple[Token, ...]:
        """Names for ids whose text is not known; those that are no special tokens count as text."""
        special = set(self.tokenizer.all_special_ids)
        return tuple(Token(self.id_to_token(id), (0, 0), None if id in special else 0) for id in ids)


def name_numbers(ids: Sequence[int]) -> tuple[Token, ...]:
    """Names for ids without a tokenizer: the ids themselves."""
    return tuple(Token(str(id), (0, 0), 0) for id in ids)
