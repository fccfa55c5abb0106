"""Hugging Face `tokenizers` backend: loads any tokenizer.json.

A text must never produce special tokens. The library's own option, `encode_special_tokens`, only skips the step that extracts
them before the model runs; a model that has them in its vocabulary (Unigram, words, BPE with `ignore_merges`) still produces
them, and T5 reads "</s>" in a text as the end. So texts are encoded by a copy of the tokenizer in which special tokens have
random names; their ids stay the same.
"""

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models

from saccade.errors import ModelError
from saccade.text.loading.safe_files import abbreviate, as_model_error
from saccade.text.loading.validate_tokenizer_json import check_tokenizer_json
from saccade.text.tokenizer import Encoding

MIN_TEXTS_FOR_THREADS = 64  # fewer texts are encoded one by one: threads would compete with those of the model
MAX_TEMPLATE_TOKENS = 64  # maximum for one letter with its special tokens; published files have up to six


class HFBackend:
    """The backend for a parsed tokenizer.json; `extra_special_tokens` are special tokens that the file does not mark."""

    def __init__(self, spec: dict[str, Any], where: str = "tokenizer.json", extra_special_tokens: Sequence[str] = ()):
        check_tokenizer_json(spec, where)
        spec = spec | {"truncation": None, "padding": None}  # only the caller decides on truncation and padding
        self.where = where
        self._spec = spec
        with as_model_error(f"{where} cannot be read"):
            hidden = {name: f"\0{secrets.token_hex(16)}" for name in _list_special_tokens(spec, extra_special_tokens)}
            self._safe_tokenizer = _build_tokenizer(_hide_special_tokens(spec, hidden))
        self._original: tokenizers.Tokenizer | None = None
        ids = {name: self._safe_tokenizer.token_to_id(secret) for name, secret in hidden.items()}
        self.special_tokens: dict[str, int] = {name: id for name, id in ids.items() if id is not None}
        self._special_by_id = {id: name for name, id in self.special_tokens.items()}
        self.vocab: int = 1 + max(
            _find_max_id(spec), *self.special_tokens.values(), self._safe_tokenizer.get_vocab_size() - 1
        )
        self._check_added(hidden)
        self._check_template()

    def _check_added(self, hidden: dict[str, str]) -> None:
        """The library numbers added tokens by their order; a file with other ids would be misread."""
        for token in self._spec.get("added_tokens") or []:
            name: str = token["content"]
            id = self._safe_tokenizer.token_to_id(hidden.get(name, name))
            if id != token.get("id", id):
                raise ModelError(
                    f"{self.where}: the added token {abbreviate(name)} has the id {token['id']}, but its position gives {id}."
                )

    def _check_template(self) -> None:
        """The template adds few special tokens, and only ids of the vocabulary."""
        for pair in (None, "b"):
            with as_model_error(f"{self.where} failed on a text"):
                encoding = self._safe_tokenizer.encode("a", pair)
            if len(encoding) > MAX_TEMPLATE_TOKENS:
                raise ModelError(
                    f"{self.where} makes {len(encoding):,} tokens of one letter and the special tokens around it; "
                    f"at most {MAX_TEMPLATE_TOKENS} are supported."
                )
            max_id = max(encoding.ids, default=0)
            if max_id >= self.vocab:
                raise ModelError(
                    f"{self.where} adds the id {max_id:,} around a text; the ids of the vocabulary end at {self.vocab - 1:,}."
                )

    def id_to_token(self, id: int) -> str:
        return self._special_by_id.get(id) or self._safe_tokenizer.id_to_token(id) or ""

    def token_to_id(self, token: str) -> int | None:
        return self.special_tokens[token] if token in self.special_tokens else self._safe_tokenizer.token_to_id(token)

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None, add_special_tokens: bool) -> list[Encoding]:
        rows: list[Any] = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
        with as_model_error(f"{self.where} failed on a text"):
            if len(rows) == 1:  # encode_batch would start threads
                encodings = [
                    self._safe_tokenizer.encode(
                        texts[0], None if pairs is None else pairs[0], add_special_tokens=add_special_tokens
                    )
                ]
            else:
                encodings = self._safe_tokenizer.encode_batch(rows, add_special_tokens=add_special_tokens)
        return [Encoding(e.ids, e.offsets, e.type_ids, e.sequence_ids) for e in encodings]

    def encode_ids(self, texts: Sequence[str]) -> list[tuple[list[int], list[int]]]:
        """The token ids and the segment ids of each text, with special tokens."""
        with as_model_error(f"{self.where} failed on a text"):
            if len(texts) < MIN_TEXTS_FOR_THREADS:
                encodings = [encoding for text in texts for encoding in self._safe_tokenizer.encode_batch_fast([text])]
            else:
                encodings = self._safe_tokenizer.encode_batch_fast(list(texts))
        return [(e.ids, e.type_ids) for e in encodings]

    def decode(self, ids: Sequence[int], keep_special_tokens: bool) -> str:
        with as_model_error(f"{self.where} failed on ids"):
            if keep_special_tokens:
                return self._load_original().decode(list(ids), skip_special_tokens=False)
            return self._safe_tokenizer.decode(
                [id for id in ids if id not in self._special_by_id], skip_special_tokens=False
            )

    def save(self, directory: Path) -> dict[str, Any]:
        (directory / "tokenizer.json").write_text(self._json, encoding="utf-8")
        return {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}

    @property
    def _json(self) -> str:
        return json.dumps(self._spec, ensure_ascii=False)

    def _load_original(self) -> tokenizers.Tokenizer:
        if self._original is None:
            self._original = tokenizers.Tokenizer.from_str(self._json)
        return self._original


# The models of `tokenizers`, with their settings in a tokenizer.json besides the vocabulary and the merges.
BPE_KEYS = [
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "fuse_unk",
    "byte_fallback",
    "ignore_merges",
]
MODELS = {
    "BPE": (models.BPE, BPE_KEYS),
    "WordPiece": (models.WordPiece, ["unk_token", "continuing_subword_prefix", "max_input_chars_per_word"]),
    "WordLevel": (models.WordLevel, ["unk_token"]),
    "Unigram": (models.Unigram, ["unk_id", "byte_fallback"]),
}


def _build_tokenizer(spec: dict[str, Any]) -> tokenizers.Tokenizer:
    """Build the tokenizer of a parsed file; passing the vocabulary as objects takes a third of the time of passing it as JSON."""
    model = spec["model"]
    if model.get("type") not in MODELS:  # files from before 2020 have no type; the library infers it
        return tokenizers.Tokenizer.from_str(json.dumps(spec, ensure_ascii=False))
    model_class, keys = MODELS[model["type"]]
    options = {key: model[key] for key in keys if model.get(key) is not None}
    if model["type"] == "BPE":
        pairs = [pair.split(" ", 1) if isinstance(pair, str) else pair for pair in model.get("merges") or []]
        options["merges"] = [(left, right) for left, right in pairs]
    vocab = [(token, score) for token, score in model["vocab"]] if isinstance(model["vocab"], list) else model["vocab"]
    placeholder = {"type": "WordLevel", "vocab": {"": 0}, "unk_token": ""}
    built = tokenizers.Tokenizer.from_str(json.dumps(spec | {"model": placeholder, "added_tokens": []}))
    built.model = model_class(vocab, **options)
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    built.add_tokens(  # all in one call, because each call sorts all added tokens
        [
            tokenizers.AddedToken(token["content"], **{flag: bool(token.get(flag, False)) for flag in flags})
            for token in spec.get("added_tokens") or []
        ]
    )
    return built


def _list_special_tokens(spec: dict[str, Any], extra_special_tokens: Sequence[str]) -> list[str]:
    """The tokens that are marked as special, those that the post-processor adds, and those that other files name."""
    names = [token["content"] for token in spec.get("added_tokens") or [] if token.get("special")]
    return list(dict.fromkeys([*names, *_find_template_tokens(spec.get("post_processor")), *extra_special_tokens]))


def _find_template_tokens(node: Any) -> list[str]:
    """The special tokens that a post-processor adds to texts."""
    if not isinstance(node, dict):
        return []
    names = [name for part in node.get("processors") or [] for name in _find_template_tokens(part)]
    if isinstance(node.get("special_tokens"), dict):
        names += [name for entry in node["special_tokens"].values() for name in entry.get("tokens", [])]
    names += [node[key][0] for key in ("sep", "cls") if isinstance(node.get(key), list) and node[key]]
    return [name for name in names if isinstance(name, str)]


def _hide_special_tokens(spec: dict[str, Any], hidden: dict[str, str]) -> dict[str, Any]:
    """The same tokenizer with other names for the hidden tokens, and the same ids."""
    model = dict(spec["model"])
    if isinstance(model["vocab"], list):
        model["vocab"] = [[hidden.get(token, token), score] for token, score in model["vocab"]]
    else:
        model["vocab"] = dict(model["vocab"])
        for old, new in hidden.items():
            if old in model["vocab"]:
                model["vocab"][new] = model["vocab"].pop(old)
    if model.get("unk_token") in hidden:
        model["unk_token"] = hidden[model["unk_token"]]
    if model.get("merges"):
        model["merges"] = [pair for pair in model["merges"] if not _uses_hidden_token(pair, hidden)]
    if "dropout" in model:
        model["dropout"] = None  # BPE dropout is noise for training; encoding must be deterministic
    added = [
        token | {"content": hidden.get(token["content"], token["content"])} for token in spec.get("added_tokens") or []
    ]
    return spec | {"model": model, "added_tokens": added}


def _uses_hidden_token(pair: Any, hidden: dict[str, str]) -> bool:
    """Whether a merge has a hidden token as a part or as its result."""
    left, right = pair.split(" ", 1) if isinstance(pair, str) and " " in pair else (pair[0], pair[-1])
    return left in hidden or right in hidden or left + right in hidden


def _find_max_id(spec: dict[str, Any]) -> int:
    vocab = spec["model"]["vocab"]
    return len(vocab) - 1 if isinstance(vocab, list) else max(vocab.values(), default=-1)
