"""What one side of a map runs over: tokens with their places in a text, cells of a picture, units, channels."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from saccade.text.scripts import find_word_spans
from saccade.text.tokenizer import Encoding

ELLIPSIS = "…"


@dataclass(frozen=True)
class Token:
    """A name, and the characters it stands for in one of the texts; a special token, a cell or a unit stands for none."""

    name: str
    span: tuple[int, int] = (0, 0)
    text_index: int | None = None  # the number of its text


@dataclass(frozen=True)
class Axis:
    """Tokens in order; where the last of them are the cells of a picture, `grid` has its rows and columns."""

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
        """True where a token stands for nothing in a text, such as [CLS]; a cell of a picture stands for what is in it.

        >>> Axis("decoder_input", (Token("a", (0, 1), 0), Token("[image]"), *make_cell_axis(1, 2).tokens), (1, 2)).special_tokens_mask
        [False, True, False, False]
        """
        painted = len(self) - (0 if self.grid is None else self.grid[0] * self.grid[1])
        return [token.text_index is None and place < painted for place, token in enumerate(self.tokens)]

    def select(self, positions: Sequence[int]) -> "Axis":
        """Some of the tokens."""
        kept = tuple(self.tokens[number] for number in positions)
        return replace(self, tokens=kept, grid=self.grid if kept == self.tokens else None)

    def pool(self, size: int) -> "Axis":
        """Neighbours together, `size` at a time, as `Downsample` does.

        >>> make_numbered_axis("units", 5).pool(2).names
        ['0…1', '2…3', '4']
        """
        groups = [self.tokens[start : start + size] for start in range(0, len(self), size)]
        return Axis(self.kind, tuple(_merge_tokens(group, ELLIPSIS) for group in groups))

    def group_words(self, texts: Sequence[str]) -> tuple["Axis", list[list[int]]]:
        """Words and the numbers of the tokens that each is made of.

        A word is what stands between spaces; in scripts without spaces it is a token, or the character of several tokens.

        >>> tokens = tuple(Token(name, span, 0) for name, span in (("un", (0, 2)), ("seen", (2, 6)), (" it", (6, 9))))
        >>> axis, groups = Axis("input", tokens).group_words(["unseen it"])
        >>> axis.names, groups
        (['unseen', 'it'], [[0, 1], [2]])
        """
        starts = [_word_starts(text) for text in texts]
        groups: list[list[int]] = []
        last: Any = None
        for number, token in enumerate(self.tokens):
            place = None if token.text_index is None else (token.text_index, _find_word_at(token, texts, starts))
            if place is None or place != last:
                groups.append([])
            groups[-1].append(number)
            last = place
        if len(groups) == len(self) and self.grid is not None:
            return self, groups
        made = [self._merge_word([self.tokens[i] for i in group], texts) for group in groups]
        return Axis(self.kind, tuple(made)), groups

    def _merge_word(self, tokens: Sequence[Token], texts: Sequence[str]) -> Token:
        first = tokens[0]
        if first.text_index is None:
            return first
        word = _merge_tokens(tokens, "")
        name = texts[first.text_index][slice(*word.span)].strip()
        return replace(word, name=name or word.name)


def _merge_tokens(tokens: Sequence[Token], separator: str) -> Token:
    """Several tokens as one: the characters from the first to the last, where all are of one text."""
    first, last = tokens[0], tokens[-1]
    if len(tokens) == 1:
        return first
    one = first.text_index is not None and first.text_index == last.text_index
    span = (first.span[0], last.span[1]) if one else (0, 0)
    return Token(f"{first.name}{separator}{last.name}", span, first.text_index if one else None)


def _word_starts(text: str) -> list[int]:
    """The word of each character, by the place where the word begins; of a space, the next word's."""
    out = [len(text)] * len(text)
    before = 0
    for start, end in find_word_spans(text):
        out[before:end] = [start] * (end - before)
        before = end
    return out


def _find_word_at(token: Token, texts: Sequence[str], starts: Sequence[Sequence[int]]) -> int:
    assert token.text_index is not None
    start, words = token.span[0], starts[token.text_index]
    return words[start] if start < len(words) else len(words)


def make_numbered_axis(kind: str, count: int) -> Axis:
    """Names that are numbers: units, channels, points."""
    return Axis(kind, tuple(Token(str(number)) for number in range(count)))


def make_cell_axis(rows: int, columns: int, names_before: Sequence[str] = ()) -> Axis:
    """The cells of a picture row by row, after what stands before them.

    >>> make_cell_axis(1, 2, ["[image]"]).names
    ['[image]', '0,0', '0,1']
    """
    names = [*names_before, *(f"{row},{column}" for row in range(rows) for column in range(columns))]
    return Axis("cells", tuple(map(Token, names)), (rows, columns))


def make_input_axis(tokenizer: Any, encoded: Encoding, texts: Sequence[str], *, first_text_index: int = 0) -> Axis:
    """Tokens that were encoded from texts, the first of which has the number `first` among all texts of a look."""
    tokens = []
    for id, span, part in zip(encoded.ids, encoded.offsets, encoded.text_ids, strict=True):
        spelt = tokenizer.id_to_token(id)
        if part is None:
            tokens.append(Token(spelt))
            continue
        said = texts[part][slice(*span)]
        tokens.append(Token(said or spelt, span, first_text_index + part))
    return Axis("input", tuple(name_byte_tokens(tokens, tokenizer, encoded.ids)))


def name_byte_tokens(tokens: Sequence[Token], tokenizer: Any, ids: Sequence[int]) -> list[Token]:
    """Tokens that share one character, its bytes, keep the names that the vocabulary has for them."""
    often = Counter((token.text_index, token.span) for token in tokens)
    shared = [token.text_index is not None and often[token.text_index, token.span] > 1 for token in tokens]
    return [
        replace(token, name=tokenizer.id_to_token(id)) if several else token
        for token, several, id in zip(tokens, shared, ids, strict=True)
    ]


def make_output_axis(
    tokenizer: Any, ids: Sequence[int], text_index: int, prefix: tuple[Sequence[int], int] = ((), 0)
) -> tuple[Axis, str]:
    """Tokens that a model wrote, with their places in the text that they make, and that text.

    The text of each beginning is decoded, so that a token has the characters by which it made the text longer. `after` are the
    ids that it continues, some of them at least, and how many characters of the same text those and others take.
    """
    before, ahead = prefix
    opening = tokenizer.decode(before) if before else ""
    special = set(tokenizer.special_tokens.values())
    tokens, done = [], ""
    for number, id in enumerate(ids, start=1):
        if id in special:
            tokens.append(Token(tokenizer.id_to_token(id)))
            continue
        sofar = tokenizer.decode([*before, *ids[:number]]).removeprefix(opening)
        said = sofar[len(done) :] if sofar.startswith(done) else ""
        start = ahead + (len(done) if said else min(len(done), len(sofar)))
        tokens.append(Token(said or tokenizer.id_to_token(id), (start, ahead + len(sofar)), text_index))
        done = sofar
    return Axis("output", tuple(tokens)), done
