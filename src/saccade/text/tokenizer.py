"""Strings to ids and back: one class for every kind of tokenizer, whichever library does the work.

>>> from saccade.text.train import train_tokenizer
>>> tokenizer = train_tokenizer(["a rose is a rose is a rose"], "characters")
>>> found = tokenizer.encode("rose")
>>> [tokenizer.id_to_token(id) for id in found.ids], found.offsets
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
from saccade.text.special_tokens import ROLE_KEYS

OWN_CONFIG_KEY = (
    "saccade"  # in tokenizer_config.json: what was said before a tokenizer.json was made of a SentencePiece model
)
CHAT_TEMPLATE_FILE = "chat_template.jinja"
MAX_TEXT_CHARACTERS = (
    1_000_000  # characters of a text: measured, these take 0.1 GB (English) to 0.5 GB (emoji as bytes) and 1 to 3 s
)


class TextError(DataError):
    """A text that no tokenizer reads: too long to be held as tokens, or not Unicode."""

    def __init__(self, message: str):
        super().__init__(message.rstrip("."))


@dataclass(frozen=True)
class Encoding:
    """A text, or a pair of texts, as ids.

    `offsets` are the characters of the original text that a token stands for, `text[start:end]`, a space before a word
    included where the tokenizer writes it into the word; tokens that share one character (its bytes) share its span.
    Special tokens stand for nothing: (0, 0). `text_ids` says which text a token is from, 0 or 1, and None for special tokens;
    `segment_ids` are what BERT calls token types.
    """

    ids: list[int]
    offsets: list[tuple[int, int]]
    segment_ids: list[int]
    text_ids: list[int | None]

    @property
    def special_tokens_mask(self) -> list[bool]:
        """True where a token was put around the text, not read from it."""
        return [part is None for part in self.text_ids]

    def __len__(self) -> int:
        return len(self.ids)

    def truncate(self, max_tokens: int) -> "Encoding":
        """At most `max_tokens` tokens: the last tokens of the longer text go first, special tokens never."""
        over = len(self) - max_tokens
        if over <= 0:
            return self
        left = [self.text_ids.count(0), self.text_ids.count(1)]
        if over > sum(left):
            raise ModelError(
                f"{len(self) - sum(left)} special tokens do not fit in a length of {max_tokens}; raise `max_tokens`."
            )
        for _ in range(over):
            left[0 if left[0] > left[1] else 1] -= 1
        keep, seen = [], [0, 0]
        for i, part in enumerate(self.text_ids):
            if part is None or seen[part] < left[part]:
                keep.append(i)
            if part is not None:
                seen[part] += 1
        return Encoding(
            *([column[i] for i in keep] for column in (self.ids, self.offsets, self.segment_ids, self.text_ids))
        )


@dataclass(frozen=True)
class PassthroughConfig:
    """What a directory says for other programs only: read, and written again as it came."""

    chat_template: str | None = None  # the content of chat_template.jinja
    settings: dict[str, Any] = field(default_factory=dict)  # of tokenizer_config.json


class TokenizerBackend(Protocol):
    """What a library has to offer to be a tokenizer; `hf_tokenizers.py` and `sentencepiece_model.py` have one each."""

    vocab: int
    special_tokens: dict[str, int]

    def id_to_token(self, id: int) -> str: ...
    def token_to_id(self, token: str) -> int | None: ...
    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None, add_special_tokens: bool) -> list[Encoding]: ...
    def decode(self, ids: Sequence[int], keep_special_tokens: bool) -> str: ...
    def save(self, directory: Path) -> dict[str, Any]: ...


class Tokenizer:
    """Encodes texts and decodes ids.

    Nothing in a text can become a special token: '[MASK]' in a text is six letters. Whoever wants the token takes its id,
    `tokenizer.mask_id` or `tokenizer.token_to_id("[MASK]")`, and puts it among the ids.

    `target` is the tokenizer of the other language where the two sides differ (Marian), and the tokenizer itself where they
    do not. `max_tokens` is the longest input in tokens, if the files state one; nothing is cut unless `encode` is given one.
    `notes` are remarks of the loader, such as code that a directory named and that was ignored.
    """

    def __init__(
        self,
        backend: TokenizerBackend,
        role_ids: dict[str, int],
        *,
        max_tokens: int | None = None,
        target: "Tokenizer | None" = None,
        notes: Iterable[str] = (),
        passthrough: PassthroughConfig | None = None,
    ):
        self.backend = backend
        self.passthrough = passthrough or PassthroughConfig()
        self.role_ids = {role: role_ids[role] for role in ROLE_KEYS if role in role_ids}
        self.max_tokens = max_tokens
        self.target: Tokenizer = target or self
        self.notes = tuple(notes)

    def __repr__(self) -> str:
        roles = "".join(f", {role}={id}" for role, id in self.role_ids.items())
        return f"Tokenizer(vocab={self.vocab}{roles})"

    @property
    def vocab(self) -> int:
        """The number of ids, special tokens included."""
        return self.backend.vocab

    @property
    def bos_id(self) -> int | None:
        return self.role_ids.get("bos")

    @property
    def eos_id(self) -> int | None:
        return self.role_ids.get("eos")

    @property
    def pad_id(self) -> int | None:
        return self.role_ids.get("pad")

    @property
    def mask_id(self) -> int | None:
        return self.role_ids.get("mask")

    @property
    def unk_id(self) -> int | None:
        return self.role_ids.get("unk")

    @property
    def sep_id(self) -> int | None:
        return self.role_ids.get("sep")

    @property
    def cls_id(self) -> int | None:
        """The token in front whose vector stands for the whole text."""
        return self.role_ids.get("cls")

    @property
    def special_tokens(self) -> dict[str, int]:
        """Every token that only a program can write, with its id."""
        return dict(self.backend.special_tokens)

    def id_to_token(self, id: int) -> str:
        """The token of an id, as the vocabulary spells it."""
        self._check_ids([id])
        return self.backend.id_to_token(id)

    def token_to_id(self, token: str) -> int | None:
        """The id of a token, spelled as in the vocabulary; None if there is none."""
        return self.backend.token_to_id(token)

    def encode(
        self,
        text: str,
        pair: str | None = None,
        *,
        add_special_tokens: bool = True,
        max_tokens: int | None = None,
        max_characters: int = MAX_TEXT_CHARACTERS,
    ) -> Encoding:
        """The ids of a text or a pair, with what the family puts around it unless `add_special_tokens` is False."""
        pairs = None if pair is None else [pair]
        return self.encode_batch(
            [text], pairs, add_special_tokens=add_special_tokens, max_tokens=max_tokens, max_characters=max_characters
        )[0]

    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        add_special_tokens: bool = True,
        max_tokens: int | None = None,
        max_characters: int = MAX_TEXT_CHARACTERS,
    ) -> list[Encoding]:
        """The same for many texts, faster; `max_characters` holds for each text."""
        return list(
            self.encode_iter(
                texts,
                pairs,
                add_special_tokens=add_special_tokens,
                max_tokens=max_tokens,
                max_characters=max_characters,
            )
        )

    def encode_iter(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        add_special_tokens: bool = True,
        max_tokens: int | None = None,
        max_characters: int = MAX_TEXT_CHARACTERS,
    ) -> Iterator[Encoding]:
        """The same one after another, so that never more than about `max_characters` characters are in memory as tokens.

        Where `max_tokens` cuts the end off anyway, only the first `max_characters` characters of a longer text are read.
        """
        if isinstance(texts, str):
            raise ModelError("A batch is a list of texts; got one string. Use `encode` for a single text.")
        if pairs is not None and len(pairs) != len(texts):
            raise ModelError(f"Every text needs its pair; got {len(texts)} texts and {len(pairs)} pairs.")
        if max_tokens is not None:
            texts = [text[:max_characters] if isinstance(text, str) else text for text in texts]
            pairs = pairs and [pair[:max_characters] if isinstance(pair, str) else pair for pair in pairs]
        for start, stop in _chunk_texts(texts, pairs, max_characters):
            seconds = None if pairs is None else pairs[start:stop]
            for found in self.backend.encode(texts[start:stop], seconds, add_special_tokens):
                yield found if max_tokens is None else found.truncate(max_tokens)

    def decode(self, ids: Sequence[int], *, keep_special_tokens: bool = False) -> str:
        """The text of ids; special tokens are left out unless `keep_special_tokens` is True.

        See `StreamDecoder` for ids that still come.
        """
        ids = list(ids)
        self._check_ids(ids)
        return self.backend.decode(ids, keep_special_tokens)

    @property
    def chat_template(self) -> str | None:
        """The Jinja template that writes a conversation as one text, if the directory had one; nothing here renders it."""
        stated = self.passthrough.chat_template or self.passthrough.settings.get("chat_template")
        return stated if isinstance(stated, str) else None

    def save(self, directory: str | Path, *, model_input_names: Sequence[str] = ()) -> None:
        """Write files that `load_tokenizer` and the `transformers` package read.

        `model_input_names` are the inputs of the model beside which the files will lie, as `transformers` calls them; a model
        that tells segments apart needs `token_type_ids` among them.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        config = self.backend.save(directory) | self.passthrough.settings
        names = {ROLE_KEYS[role]: self.backend.id_to_token(id) for role, id in self.role_ids.items()}
        if self.max_tokens is not None:
            config["model_max_length"] = self.max_tokens
        if model_input_names:
            config["model_input_names"] = list(model_input_names)
        _write_json(directory / "tokenizer_config.json", config | names)
        _write_json(directory / "special_tokens_map.json", names)
        if self.passthrough.chat_template is not None:
            (directory / CHAT_TEMPLATE_FILE).write_bytes(self.passthrough.chat_template.encode())

    def with_max_tokens(self, max_tokens: int | None) -> "Tokenizer":
        """The same tokenizer with another longest input."""
        other = self._separate_target()
        return Tokenizer(
            self.backend,
            self.role_ids,
            max_tokens=max_tokens,
            target=other,
            notes=self.notes,
            passthrough=self.passthrough,
        )

    def _separate_target(self) -> "Tokenizer | None":
        return None if self.target is self else self.target

    def _check_ids(self, ids: Sequence[int]) -> None:
        for i, id in enumerate(ids):
            if not 0 <= id < self.vocab:
                raise ModelError(f"Id {id} at place {i} is not in the vocabulary, whose ids are 0 to {self.vocab - 1}.")


def _chunk_texts(texts: Sequence[str], pairs: Sequence[str] | None, max_characters: int) -> Iterable[tuple[int, int]]:
    """Stretches of a batch that together have about `max_characters` characters, each text checked."""
    start = size = 0
    for i, text in enumerate(texts):
        row = [text] if pairs is None else [text, pairs[i]]
        for one in row:
            _check_text(one, i, max_characters)
        more = sum(len(one) for one in row)
        if size and size + more > max_characters:
            yield start, i
            start, size = i, 0
        size += more
    if start < len(texts):
        yield start, len(texts)


def _check_text(text: Any, index: int, max_characters: int) -> None:
    if not isinstance(text, str):
        raise ModelError(f"Text {index} is a {type(text).__name__}; a string is needed.")
    if len(text) > max_characters:
        raise TextError(
            f"Text {index} has {len(text):,} characters; at most {max_characters:,} are tokenized as one text, to bound the "
            "memory. Divide it into several texts. In Python, `max_characters` sets another bound."
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TextError(
            f"Text {index} has half a character (the surrogate {text[error.start]!r}) at place {error.start}; "
            "read the source again as UTF-8, with errors='replace' if it is damaged."
        ) from None


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
