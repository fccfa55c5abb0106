"""The axes of an attention map: tokens with their offsets in a text, cells of an image, units, or channels."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from saccade.text.scripts import find_word_spans
from saccade.text.tokenizer import Encoding

ELLIPSIS = "…"


@dataclass(frozen=True)
class Token:
    """A name, and the span of characters in one of the texts; a special token, a cell or a unit has an empty span."""

    name: str
    span: tuple[int, int] = (0, 0)
    text_index: int | None = None  # index of the text that the span refers to


@dataclass(frozen=True)
class Axis:
    """A sequence of tokens; if the last of them are the cells of an image, `grid` is its (rows, columns)."""

    kind: str  # input, decoder_input, output, cells, units, channels, points
    tokens: tuple[Token, ...]
    grid: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def names(self) -> list[str]:
        return [token.name for token in self.tokens]

    @property
    def special_tokens_mask(self) -> list[bool]:
        """True for tokens that stand for no text, such as [CLS]; False for the cells of an image.

        >>> tokens = (Token("a", (0, 1), 0), Token("[image]"), *make_cell_axis(1, 2).tokens)
        >>> Axis("decoder_input", tokens, (1, 2)).special_tokens_mask
        [False, True, False, False]
        """
        first_cell = len(self) - (0 if self.grid is None else self.grid[0] * self.grid[1])
        return [token.text_index is None and position < first_cell for position, token in enumerate(self.tokens)]

    def select(self, positions: Sequence[int]) -> "Axis":
        """Select tokens by position."""
        kept = tuple(self.tokens[position] for position in positions)
        return replace(self, tokens=kept, grid=self.grid if kept == self.tokens else None)

    def pool(self, size: int) -> "Axis":
        """Merge neighbors in groups of `size`, as `Downsample` does.

        >>> make_numbered_axis("units", 5).pool(2).names
        ['0…1', '2…3', '4']
        """
        groups = [self.tokens[start : start + size] for start in range(0, len(self), size)]
        return Axis(self.kind, tuple(_merge_tokens(group, ELLIPSIS) for group in groups))

    def group_words(self, texts: Sequence[str]) -> tuple["Axis", list[list[int]]]:
        """Group tokens into words: an axis of words, and the positions of the tokens of each word.

        Words are separated by spaces; in scripts without spaces a word is a token, or the character that several tokens encode.

        >>> tokens = tuple(Token(name, span, 0) for name, span in (("un", (0, 2)), ("seen", (2, 6)), (" it", (6, 9))))
        >>> axis, groups = Axis("input", tokens).group_words(["unseen it"])
        >>> axis.names, groups
        (['unseen', 'it'], [[0, 1], [2]])
        """
        starts = [_word_starts(text) for text in texts]
        groups: list[list[int]] = []
        last: Any = None
        for position, token in enumerate(self.tokens):
            word = None if token.text_index is None else (token.text_index, _find_word_at(token, texts, starts))
            if word is None or word != last:
                groups.append([])
            groups[-1].append(position)
            last = word
        if len(groups) == len(self) and self.grid is not None:
            return self, groups
        words = [self._merge_word([self.tokens[i] for i in group], texts) for group in groups]
        return Axis(self.kind, tuple(words)), groups

    def _merge_word(self, tokens: Sequence[Token], texts: Sequence[str]) -> Token:
        first = tokens[0]
        if first.text_index is None:
            return first
        word = _merge_tokens(tokens, "")
        name = texts[first.text_index][slice(*word.span)].strip()
        return replace(word, name=name or word.name)


def _merge_tokens(tokens: Sequence[Token], separator: str) -> Token:
    """Merge tokens into one that spans from the first to the last, if both belong to the same text."""
    first, last = tokens[0], tokens[-1]
    if len(tokens) == 1:
        return first
    same_text = first.text_index is not None and first.text_index == last.text_index
    span = (first.span[0], last.span[1]) if same_text else (0, 0)
    return Token(f"{first.name}{separator}{last.name}", span, first.text_index if same_text else None)


def _word_starts(text: str) -> list[int]:
    """For each character, the offset at which its word starts; a space belongs to the next word."""
    starts = [len(text)] * len(text)
    previous_end = 0
    for start, end in find_word_spans(text):
        starts[previous_end:end] = [start] * (end - previous_end)
        previous_end = end
    return starts


def _find_word_at(token: Token, texts: Sequence[str], starts: Sequence[Sequence[int]]) -> int:
    assert token.text_index is not None
    start, words = token.span[0], starts[token.text_index]
    return words[start] if start < len(words) else len(words)


def make_numbered_axis(kind: str, count: int) -> Axis:
    """An axis whose names are numbers: units, channels, points."""
    return Axis(kind, tuple(Token(str(number)) for number in range(count)))


def make_cell_axis(rows: int, columns: int, names_before: Sequence[str] = ()) -> Axis:
    """The cells of an image row by row, after the tokens of `names_before`.

    >>> make_cell_axis(1, 2, ["[image]"]).names
    ['[image]', '0,0', '0,1']
    """
    names = [*names_before, *(f"{row},{column}" for row in range(rows) for column in range(columns))]
    return Axis("cells", tuple(map(Token, names)), (rows, columns))


def make_time_axis(count: int, seconds: float) -> Axis:
    """The vectors of a recording, each of which stands for so many seconds; they are the columns of its spectrogram.

    >>> make_time_axis(3, 0.04).names
    ['0.00s', '0.04s', '0.08s']
    """
    return Axis("cells", tuple(Token(f"{number * seconds:.2f}s") for number in range(count)), (1, count))


def make_input_axis(tokenizer: Any, encoded: Encoding, texts: Sequence[str], *, first_text_index: int = 0) -> Axis:
    """The axis of encoded texts; the first has the index `first_text_index` in `AttentionMaps.texts`."""
    tokens = []
    for id, span, text_id in zip(encoded.ids, encoded.offsets, encoded.text_ids, strict=True):
        vocabulary_name = tokenizer.id_to_token(id)
        if text_id is None:
            tokens.append(Token(vocabulary_name))
            continue
        surface = texts[text_id][slice(*span)]
        tokens.append(Token(surface or vocabulary_name, span, first_text_index + text_id))
    return Axis("input", tuple(name_byte_tokens(tokens, tokenizer, encoded.ids)))


def name_byte_tokens(tokens: Sequence[Token], tokenizer: Any, ids: Sequence[int]) -> list[Token]:
    """Name tokens that share one character (byte tokens) as in the vocabulary, so that their names differ."""
    counts = Counter((token.text_index, token.span) for token in tokens)
    shared = [token.text_index is not None and counts[token.text_index, token.span] > 1 for token in tokens]
    return [
        replace(token, name=tokenizer.id_to_token(id)) if is_shared else token
        for token, is_shared, id in zip(tokens, shared, ids, strict=True)
    ]


def make_output_axis(
    tokenizer: Any, ids: Sequence[int], text_index: int, prefix: tuple[Sequence[int], int] = ((), 0)
) -> tuple[Axis, str]:
    """The axis of generated tokens, with their offsets in the generated text, and that text.

    Every prefix of the output is decoded, and a token gets the characters that it adds. `prefix` has the ids that the output
    continues, or the last of them, and the number of characters of the whole text before the output.
    """
    prefix_ids, offset = prefix
    prefix_text = tokenizer.decode(prefix_ids) if prefix_ids else ""
    special_ids = set(tokenizer.special_tokens.values())
    tokens, text = [], ""
    for count, id in enumerate(ids, start=1):
        if id in special_ids:
            tokens.append(Token(tokenizer.id_to_token(id)))
            continue
        longer = tokenizer.decode([*prefix_ids, *ids[:count]]).removeprefix(prefix_text)
        added = longer[len(text) :] if longer.startswith(text) else ""
        start = offset + (len(text) if added else min(len(text), len(longer)))
        tokens.append(Token(added or tokenizer.id_to_token(id), (start, offset + len(longer)), text_index))
        text = longer
    return Axis("output", tuple(tokens)), text
