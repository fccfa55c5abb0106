"""Strings to ids and back: one class for every kind of tokenizer, whichever library does the work.

>>> from saccade.text.train import train
>>> tokenizer = train(["a rose is a rose is a rose"], "characters")
>>> found = tokenizer.encode("rose")
>>> [tokenizer.token(id) for id in found.ids], found.offsets
(['r', 'o', 's', 'e'], [(0, 1), (1, 2), (2, 3), (3, 4)])
>>> tokenizer.decode(found.ids)
'rose'
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from saccade.errors import DataError, ModelError
from saccade.text.frame import ROLES

OURS = "saccade"  # in tokenizer_config.json: what was said before a tokenizer.json was made of a SentencePiece model
TEMPLATE = "chat_template.jinja"
LIMIT = 1_000_000  # characters of a text: measured, these take 0.1 GB (English) to 0.5 GB (emoji as bytes) and 1 to 3 s


class BadText(DataError):
    """A text that no tokenizer reads: too long to be held as tokens, or not Unicode."""

    def __init__(self, message: str):
        super().__init__(message.rstrip("."))


@dataclass(frozen=True)
class Encoded:
    """A text, or a pair of texts, as ids.

    `offsets` are the characters of the original text that a token stands for, `text[start:end]`, a space before a word
    included where the tokenizer writes it into the word; tokens that share one character (its bytes) share its span.
    Special tokens stand for nothing: (0, 0). `parts` says which text a token is from, 0 or 1, and None for special tokens;
    `segments` are what BERT calls token types.
    """

    ids: list[int]
    offsets: list[tuple[int, int]]
    segments: list[int]
    parts: list[int | None]

    @property
    def special(self) -> list[bool]:
        """True where a token was put around the text, not read from it."""
        return [part is None for part in self.parts]

    def __len__(self) -> int:
        return len(self.ids)

    def truncate(self, length: int) -> "Encoded":
        """At most `length` tokens: the last tokens of the longer text go first, special tokens never."""
        over = len(self) - length
        if over <= 0:
            return self
        left = [self.parts.count(0), self.parts.count(1)]
        if over > sum(left):
            raise ModelError(
                f"{len(self) - sum(left)} special tokens do not fit in a length of {length}; raise `truncate`."
            )
        for _ in range(over):
            left[0 if left[0] > left[1] else 1] -= 1
        keep, seen = [], [0, 0]
        for i, part in enumerate(self.parts):
            if part is None or seen[part] < left[part]:
                keep.append(i)
            if part is not None:
                seen[part] += 1
        return Encoded(*([column[i] for i in keep] for column in (self.ids, self.offsets, self.segments, self.parts)))


@dataclass(frozen=True)
class Kept:
    """What a directory says for other programs only: read, and written again as it came."""

    template: str | None = None  # the content of chat_template.jinja
    settings: dict[str, Any] = field(default_factory=dict)  # of tokenizer_config.json


class Engine(Protocol):
    """What a library has to offer to be a tokenizer; `fast.py` and `pieces.py` have one each."""

    vocab: int
    special: dict[str, int]

    def token(self, id: int) -> str: ...
    def id(self, token: str) -> int | None: ...
    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None, special: bool) -> list[Encoded]: ...
    def decode(self, ids: Sequence[int], special: bool) -> str: ...
    def save(self, directory: Path) -> dict[str, Any]: ...


class Tokenizer:
    """Encodes texts and decodes ids.

    Nothing in a text can become a special token: '[MASK]' in a text is six letters. Whoever wants the token takes its id,
    `tokenizer.mask` or `tokenizer.id("[MASK]")`, and puts it among the ids.

    `target` is the tokenizer of the other language where the two sides differ (Marian), and the tokenizer itself where they
    do not. `length` is the longest input in tokens, if the files state one; nothing is cut unless `truncate` is given.
    `notes` are remarks of the loader, such as code that a directory named and that was ignored.
    """

    def __init__(
        self,
        engine: Engine,
        roles: dict[str, int],
        *,
        length: int | None = None,
        target: "Tokenizer | None" = None,
        notes: Iterable[str] = (),
        kept: Kept | None = None,
    ):
        self.engine = engine
        self.kept = kept or Kept()
        self.roles = {role: roles[role] for role in ROLES if role in roles}
        self.length = length
        self.target: Tokenizer = target or self
        self.notes = tuple(notes)

    def __repr__(self) -> str:
        roles = "".join(f", {role}={id}" for role, id in self.roles.items())
        return f"Tokenizer(vocab={self.vocab}{roles})"

    @property
    def vocab(self) -> int:
        """The number of ids, special tokens included."""
        return self.engine.vocab

    @property
    def begin(self) -> int | None:
        return self.roles.get("begin")

    @property
    def end(self) -> int | None:
        return self.roles.get("end")

    @property
    def pad(self) -> int | None:
        return self.roles.get("pad")

    @property
    def mask(self) -> int | None:
        return self.roles.get("mask")

    @property
    def unknown(self) -> int | None:
        return self.roles.get("unknown")

    @property
    def separator(self) -> int | None:
        return self.roles.get("separator")

    @property
    def classify(self) -> int | None:
        """The token in front whose vector stands for the whole text."""
        return self.roles.get("classify")

    @property
    def special(self) -> dict[str, int]:
        """Every token that only a program can write, with its id."""
        return dict(self.engine.special)

    def token(self, id: int) -> str:
        """The token of an id, as the vocabulary spells it."""
        self._check_ids([id])
        return self.engine.token(id)

    def id(self, token: str) -> int | None:
        """The id of a token, spelled as in the vocabulary; None if there is none."""
        return self.engine.id(token)

    def encode(
        self,
        text: str,
        pair: str | None = None,
        *,
        special: bool = True,
        truncate: int | None = None,
        limit: int = LIMIT,
    ) -> Encoded:
        """The ids of a text or a pair, with what the family puts around it unless `special` is False."""
        pairs = None if pair is None else [pair]
        return self.encode_batch([text], pairs, special=special, truncate=truncate, limit=limit)[0]

    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        special: bool = True,
        truncate: int | None = None,
        limit: int = LIMIT,
    ) -> list[Encoded]:
        """The same for many texts, faster; `limit` holds for each text."""
        return list(self.encode_each(texts, pairs, special=special, truncate=truncate, limit=limit))

    def encode_each(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        special: bool = True,
        truncate: int | None = None,
        limit: int = LIMIT,
    ) -> Iterator[Encoded]:
        """The same one after another, so that never more than about `limit` characters are in memory as tokens.

        Where `truncate` cuts the end off anyway, only the first `limit` characters of a longer text are read.
        """
        if isinstance(texts, str):
            raise ModelError("A batch is a list of texts; got one string. Use `encode` for a single text.")
        if pairs is not None and len(pairs) != len(texts):
            raise ModelError(f"Every text needs its pair; got {len(texts)} texts and {len(pairs)} pairs.")
        if truncate is not None:
            texts = [text[:limit] if isinstance(text, str) else text for text in texts]
            pairs = pairs and [pair[:limit] if isinstance(pair, str) else pair for pair in pairs]
        for start, stop in _chunks(texts, pairs, limit):
            seconds = None if pairs is None else pairs[start:stop]
            for found in self.engine.encode(texts[start:stop], seconds, special):
                yield found if truncate is None else found.truncate(truncate)

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of ids; special tokens are left out unless `special` is True. See `Stream` for ids that still come."""
        ids = list(ids)
        self._check_ids(ids)
        return self.engine.decode(ids, special)

    @property
    def chat_template(self) -> str | None:
        """The Jinja template that writes a conversation as one text, if the directory had one; nothing here renders it."""
        stated = self.kept.template or self.kept.settings.get("chat_template")
        return stated if isinstance(stated, str) else None

    def save(self, directory: str | Path, *, input_names: Sequence[str] = ()) -> None:
        """Write files that `load` and the `transformers` package read.

        `input_names` are the inputs of the model beside which the files will lie, as `transformers` calls them; a model that
        tells segments apart needs `token_type_ids` among them.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        config = self.engine.save(directory) | self.kept.settings
        names = {ROLES[role]: self.engine.token(id) for role, id in self.roles.items()}
        if self.length is not None:
            config["model_max_length"] = self.length
        if input_names:
            config["model_input_names"] = list(input_names)
        _write(directory / "tokenizer_config.json", config | names)
        _write(directory / "special_tokens_map.json", names)
        if self.kept.template is not None:
            (directory / TEMPLATE).write_bytes(self.kept.template.encode())

    def with_length(self, length: int | None) -> "Tokenizer":
        """The same tokenizer with another longest input."""
        other = self._other()
        return Tokenizer(self.engine, self.roles, length=length, target=other, notes=self.notes, kept=self.kept)

    def _other(self) -> "Tokenizer | None":
        return None if self.target is self else self.target

    def _check_ids(self, ids: Sequence[int]) -> None:
        for i, id in enumerate(ids):
            if not 0 <= id < self.vocab:
                raise ModelError(f"Id {id} at place {i} is not in the vocabulary, whose ids are 0 to {self.vocab - 1}.")


def _chunks(texts: Sequence[str], pairs: Sequence[str] | None, limit: int) -> Iterable[tuple[int, int]]:
    """Stretches of a batch that together have about `limit` characters, each text checked."""
    start = size = 0
    for i, text in enumerate(texts):
        row = [text] if pairs is None else [text, pairs[i]]
        for one in row:
            _check(one, i, limit)
        more = sum(len(one) for one in row)
        if size and size + more > limit:
            yield start, i
            start, size = i, 0
        size += more
    if start < len(texts):
        yield start, len(texts)


def _check(text: Any, i: int, limit: int) -> None:
    if not isinstance(text, str):
        raise ModelError(f"Text {i} is a {type(text).__name__}; a string is needed.")
    if len(text) > limit:
        raise BadText(
            f"Text {i} has {len(text):,} characters; at most {limit:,} are tokenized as one text, to bound the memory. "
            "Divide it into several texts. In Python, `limit` sets another bound."
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadText(
            f"Text {i} has half a character (the surrogate {text[error.start]!r}) at place {error.start}; "
            "read the source again as UTF-8, with errors='replace' if it is damaged."
        ) from None


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
