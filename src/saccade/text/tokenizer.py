"""Tokenizer: encode text as token ids and decode it; one class for every backend library.

>>> from saccade.text.train import train_tokenizer
>>> tokenizer = train_tokenizer(["a rose is a rose is a rose"], "characters")
>>> encoding = tokenizer.encode("rose")
>>> [tokenizer.id_to_token(id) for id in encoding.ids], encoding.offsets
(['r', 'o', 's', 'e'], [(0, 1), (1, 2), (2, 3), (3, 4)])
>>> tokenizer.decode(encoding.ids)
'rose'
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from saccade.errors import DataError, ModelError
from saccade.text.special_tokens import ROLE_KEYS

# Key in tokenizer_config.json that keeps the original settings of a SentencePiece model that is saved with a tokenizer.json.
OWN_CONFIG_KEY = "saccade"
CHAT_TEMPLATE_FILE = "chat_template.jinja"
MAX_TEXT_CHARACTERS = 1_000_000  # measured: 0.1 GB (English) to 0.5 GB (emoji as bytes) of memory, and 1 to 3 s


class TextError(DataError):
    """A text that cannot be tokenized: too long to hold its tokens in memory, or not valid Unicode."""

    def __init__(self, message: str):
        super().__init__(message.rstrip("."))


@dataclass(frozen=True)
class Encoding:
    """The token ids of a text or of a pair of texts.

    `offsets` are the character spans of the tokens in the original text, `text[start:end]`. A span includes the space before
    a word where the tokenizer makes it part of the token; byte tokens of one character share its span, and special tokens
    have (0, 0). `text_ids` tells which text a token is from, 0 or 1, and None for special tokens; `segment_ids` are BERT's
    token type ids.
    """

    ids: list[int]
    offsets: list[tuple[int, int]]
    segment_ids: list[int]
    text_ids: list[int | None]

    @property
    def special_tokens_mask(self) -> list[bool]:
        """True for special tokens, which the template added and which are not part of the text."""
        return [text_id is None for text_id in self.text_ids]

    def __len__(self) -> int:
        return len(self.ids)

    def truncate(self, max_tokens: int) -> "Encoding":
        """Truncate to at most `max_tokens` tokens, from the end of the longer text first; special tokens are kept."""
        excess = len(self) - max_tokens
        if excess <= 0:
            return self
        lengths = [self.text_ids.count(0), self.text_ids.count(1)]
        if excess > sum(lengths):
            raise ModelError(
                f"{len(self) - sum(lengths)} special tokens do not fit in a length of {max_tokens}; raise `max_tokens`."
            )
        for _ in range(excess):
            lengths[0 if lengths[0] > lengths[1] else 1] -= 1
        keep, seen = [], [0, 0]
        for i, text_id in enumerate(self.text_ids):
            if text_id is None or seen[text_id] < lengths[text_id]:
                keep.append(i)
            if text_id is not None:
                seen[text_id] += 1
        return Encoding(
            *([column[i] for i in keep] for column in (self.ids, self.offsets, self.segment_ids, self.text_ids))
        )


@dataclass(frozen=True)
class PassthroughConfig:
    """Settings of a tokenizer directory that only other programs use: loaded, and saved unchanged."""

    chat_template: str | None = None  # the content of chat_template.jinja
    settings: dict[str, Any] = field(default_factory=dict)  # of tokenizer_config.json


class TokenizerBackend(Protocol):
    """The interface between `Tokenizer` and a library; implemented in `hf_tokenizers.py` and `sentencepiece_model.py`."""

    vocab: int
    special_tokens: dict[str, int]

    def id_to_token(self, id: int) -> str: ...
    def token_to_id(self, token: str) -> int | None: ...
    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None, add_special_tokens: bool) -> list[Encoding]: ...
    def encode_ids(self, texts: Sequence[str]) -> list[tuple[list[int], list[int]]]: ...
    def decode(self, ids: Sequence[int], keep_special_tokens: bool) -> str: ...
    def save(self, directory: Path) -> dict[str, Any]: ...


class Tokenizer:
    """Encodes texts and decodes ids.

    A text never produces special tokens: '[MASK]' in a text is read as six ordinary characters. To insert a special token,
    add its id, `tokenizer.mask_id` or `tokenizer.token_to_id("[MASK]")`, to the ids.

    `target` is the tokenizer of the target language where source and target have separate ones (Marian), and the tokenizer
    itself otherwise. `max_tokens` is the maximum input length that the files state, if any; texts are truncated only if
    `max_tokens` is passed to `encode`. `notes` are remarks of the loader, for example that a directory refers to code, which
    was ignored.
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
        self.passthrough: PassthroughConfig = passthrough or PassthroughConfig()
        self.role_ids: dict[str, int] = {role: role_ids[role] for role in ROLE_KEYS if role in role_ids}
        self.max_tokens = max_tokens
        self.target: Tokenizer = target or self
        self.notes: tuple[str, ...] = tuple(notes)

    def __repr__(self) -> str:
        roles = "".join(f", {role}={id}" for role, id in self.role_ids.items())
        return f"Tokenizer(vocab={self.vocab}{roles})"

    @property
    def vocab(self) -> int:
        """The vocabulary size, special tokens included."""
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
        """The id of the classification token, whose vector represents the whole text."""
        return self.role_ids.get("cls")

    @property
    def special_tokens(self) -> dict[str, int]:
        """All special tokens, which a text never produces, with their ids."""
        return dict(self.backend.special_tokens)

    def id_to_token(self, id: int) -> str:
        """The token of an id, spelled as in the vocabulary."""
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
        """Encode a text or a pair, with the special tokens of the model unless `add_special_tokens` is False."""
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
        """Encode many texts, which is faster than one by one; `max_characters` is the limit for each text."""
        return list(
            self.encode_iter(
                texts,
                pairs,
                add_special_tokens=add_special_tokens,
                max_tokens=max_tokens,
                max_characters=max_characters,
            )
        )

    def encode_ids(self, texts: Sequence[str]) -> tuple[list[list[int]], list[list[int]]]:
        """The token ids and the segment ids of each text, with special tokens: faster than `encode_batch`, since offsets are
        not computed."""
        token_ids: list[list[int]] = []
        segment_ids: list[list[int]] = []
        for start, stop in _chunk_texts(texts, None, MAX_TEXT_CHARACTERS):
            for ids, segments in self.backend.encode_ids(texts[start:stop]):
                token_ids.append(ids)
                segment_ids.append(segments)
        return token_ids, segment_ids

    def encode_iter(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        add_special_tokens: bool = True,
        max_tokens: int | None = None,
        max_characters: int = MAX_TEXT_CHARACTERS,
    ) -> Iterator[Encoding]:
        """Encode many texts and yield the encodings in order, holding the tokens of about `max_characters` characters at a time.

        With `max_tokens`, a text longer than `max_characters` is no error: only its first `max_characters` characters are read.
        """
        if isinstance(texts, str):
            raise ModelError("A batch must be a list of texts; got one string. Use `encode` for a single text.")
        if pairs is not None and len(pairs) != len(texts):
            raise ModelError(f"Every text needs a pair; got {len(texts)} texts and {len(pairs)} pairs.")
        if max_tokens is not None:
            texts = [text[:max_characters] if isinstance(text, str) else text for text in texts]
            pairs = pairs and [pair[:max_characters] if isinstance(pair, str) else pair for pair in pairs]
        for start, stop in _chunk_texts(texts, pairs, max_characters):
            chunk_pairs = None if pairs is None else pairs[start:stop]
            for encoding in self.backend.encode(texts[start:stop], chunk_pairs, add_special_tokens):
                yield encoding if max_tokens is None else encoding.truncate(max_tokens)

    def decode(self, ids: Sequence[int], *, keep_special_tokens: bool = False) -> str:
        """Decode ids to text; special tokens are skipped unless `keep_special_tokens` is True.

        To decode ids while they are generated, use `StreamDecoder`.
        """
        ids = list(ids)
        self._check_ids(ids)
        return self.backend.decode(ids, keep_special_tokens)

    @property
    def chat_template(self) -> str | None:
        """The Jinja chat template of the directory, if it has one; saccade only passes it on and never renders it."""
        template = self.passthrough.chat_template or self.passthrough.settings.get("chat_template")
        return template if isinstance(template, str) else None

    def save(self, directory: str | Path, *, model_input_names: Sequence[str] = ()) -> None:
        """Save the tokenizer in files that `load_tokenizer` and the `transformers` package can load.

        `model_input_names` are the inputs of the model in the same directory, as `transformers` calls them; a model with
        segment embeddings needs `token_type_ids` among them.
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
        """The same tokenizer with another maximum input length."""
        return Tokenizer(
            self.backend,
            self.role_ids,
            max_tokens=max_tokens,
            target=self._separate_target(),
            notes=self.notes,
            passthrough=self.passthrough,
        )

    def _separate_target(self) -> "Tokenizer | None":
        return None if self.target is self else self.target

    def _check_ids(self, ids: Sequence[int]) -> None:
        for i, id in enumerate(ids):
            if not 0 <= id < self.vocab:
                raise ModelError(f"Id {id} at index {i} is not in the vocabulary, whose ids are 0 to {self.vocab - 1}.")


def _chunk_texts(texts: Sequence[str], pairs: Sequence[str] | None, max_characters: int) -> Iterable[tuple[int, int]]:
    """Check each text, and yield (start, stop) of slices of the batch with about `max_characters` characters each."""
    start = size = 0
    for i, text in enumerate(texts):
        row = [text] if pairs is None else [text, pairs[i]]
        for part in row:
            _check_text(part, i, max_characters)
        row_size = sum(len(part) for part in row)
        if size and size + row_size > max_characters:
            yield start, i
            start, size = i, 0
        size += row_size
    if start < len(texts):
        yield start, len(texts)


def _check_text(text: Any, index: int, max_characters: int) -> None:
    if not isinstance(text, str):
        raise ModelError(f"Text {index} is of type {type(text).__name__}; it must be a string.")
    if len(text) > max_characters:
        raise TextError(
            f"Text {index} has {len(text):,} characters; at most {max_characters:,} are tokenized as one text, to limit "
            "memory use. Divide it into several texts. In Python, `max_characters` sets another limit."
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TextError(
            f"Text {index} has a lone surrogate ({text[error.start]!r}, half a character) at index {error.start}; "
            "read the source again as UTF-8, with errors='replace' if it is damaged."
        ) from None


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
