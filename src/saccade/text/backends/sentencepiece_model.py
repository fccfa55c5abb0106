"""SentencePiece backend: T5's spiece.model, LLaMA's tokenizer.model, Marian's pairs of .spm files.

SentencePiece never produces control pieces such as "</s>" from a text. It does produce user-defined pieces, so those that are
special tokens are split into characters again.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sentencepiece

from saccade.errors import ModelError
from saccade.text.backends.sentencepiece_to_json import to_tokenizer_json
from saccade.text.loading.safe_files import as_model_error
from saccade.text.special_tokens import SpecialTokenTemplate
from saccade.text.tokenizer import OWN_CONFIG_KEY, Encoding


def open_sentencepiece(content: bytes, where: str) -> sentencepiece.SentencePieceProcessor:
    """Load a SentencePiece model from the bytes of its file."""
    with as_model_error(f"{where} is not a SentencePiece model"):
        processor = sentencepiece.SentencePieceProcessor()
        processor.LoadFromSerializedProto(content)
        for id in range(len(processor)):  # a piece that is not valid UTF-8 would fail only when it is first decoded
            processor.id_to_piece(id)
        return processor


@dataclass(frozen=True)
class SentencePieceModel:
    """A loaded model, with the joint vocabulary if ids are not those of the model (Marian)."""

    processor: sentencepiece.SentencePieceProcessor
    where: str
    joint_vocab: dict[str, int] | None = None
    config: dict[str, Any] = field(default_factory=dict)  # settings that `save` writes beside the roles
    files: dict[str, bytes] = field(default_factory=dict)  # name -> content of the files that `save` writes


class SentencePieceBackend:
    """The backend for a SentencePiece model; `role_tokens` are tokens by role, `added_tokens` more special tokens with ids."""

    model: SentencePieceModel
    template: SpecialTokenTemplate
    special_tokens: dict[str, int]

    def __init__(
        self,
        model: SentencePieceModel,
        template: SpecialTokenTemplate,
        role_tokens: dict[str, str],
        added_tokens: dict[str, int],
    ):
        self.model, self.template = model, template
        self._processor = model.processor
        self._ids: dict[str, int] = model.joint_vocab if model.joint_vocab is not None else self._read_model_vocab()
        self._tokens = {id: token for token, id in self._ids.items()} | {
            id: token for token, id in added_tokens.items()
        }
        self.special_tokens = {
            name: self._ids[name] for name in role_tokens.values() if name in self._ids
        } | added_tokens
        self.special_tokens |= {self._tokens[id]: id for id in self._find_control_ids()}
        self._special_ids = set(self.special_tokens.values())
        self.role_tokens: dict[str, str] = {
            role: name for role, name in role_tokens.items() if name in self.special_tokens
        }
        self._role_ids = {role: self.special_tokens[name] for role, name in self.role_tokens.items()}
        self.vocab: int = 1 + max(self._tokens)
        missing = sorted(template.list_required_roles() - self._role_ids.keys())
        if missing:
            raise ModelError(
                f"{model.where}: the model family needs tokens for {', '.join(missing)} around a text, and this model has "
                "none. Is this the tokenizer of that family?"
            )

    def id_to_token(self, id: int) -> str:
        return self._tokens.get(id, "")

    def token_to_id(self, token: str) -> int | None:
        return self.special_tokens[token] if token in self.special_tokens else self._ids.get(token)

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None, add_special_tokens: bool) -> list[Encoding]:
        pairs_or_none = [None] * len(texts) if pairs is None else pairs
        return [
            self._encode_text(text, pair, add_special_tokens) for text, pair in zip(texts, pairs_or_none, strict=True)
        ]

    def encode_ids(self, texts: Sequence[str]) -> list[tuple[list[int], list[int]]]:
        return [(encoding.ids, encoding.segment_ids) for encoding in self.encode(texts, None, True)]

    def decode(self, ids: Sequence[int], keep_special_tokens: bool) -> str:
        """Decode the ids between special tokens separately; special tokens are written by name."""
        if not keep_special_tokens:
            return self._decode_ids([id for id in ids if id not in self._special_ids])
        parts, segment = [], []
        for id in ids:
            if id in self._special_ids:
                parts += [self._decode_ids(segment), self._tokens[id]]
                segment = []
            else:
                segment.append(id)
        return "".join([*parts, self._decode_ids(segment)])

    def save(self, directory: Path) -> dict[str, Any]:
        for name, content in self.model.files.items():
            (directory / name).write_bytes(content)
        added = {token: id for token, id in self.special_tokens.items() if id >= len(self._ids)}
        if added and self.model.joint_vocab is None:
            (directory / "added_tokens.json").write_text(json.dumps(added, ensure_ascii=False), encoding="utf-8")
        models = [content for name, content in self.model.files.items() if name.endswith(".model")]
        spec = (
            to_tokenizer_json(models[0], self.template, self.role_tokens, self.special_tokens)
            if len(models) == 1
            else None
        )
        if spec is None:
            return dict(self.model.config)
        (directory / "tokenizer.json").write_text(json.dumps(spec, ensure_ascii=False), encoding="utf-8")
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        return config | {OWN_CONFIG_KEY: dict(self.model.config)}

    def _read_model_vocab(self) -> dict[str, int]:
        return {self._processor.id_to_piece(id): id for id in range(len(self._processor))}

    def _find_control_ids(self) -> list[int]:
        """The ids of the control pieces and of the unknown piece."""
        p = self._processor
        pieces = [p.id_to_piece(id) for id in range(len(p)) if p.is_control(id) or p.is_unknown(id)]
        return [self._ids[piece] for piece in pieces if piece in self._ids]

    def _encode_text(self, text: str, pair: str | None, add_special_tokens: bool) -> Encoding:
        tokenized = {"A": self._tokenize_text(text), "B": self._tokenize_text(pair) if pair is not None else ([], [])}
        encoding = Encoding([], [], [], [])
        for slot, segment in self.template.list_slots(pair is not None):
            if slot in tokenized:
                ids, spans = tokenized[slot]
                text_id: int | None = "AB".index(slot)
            elif add_special_tokens:
                ids, spans, text_id = [self._role_ids[slot]], [(0, 0)], None
            else:
                continue
            encoding.ids.extend(ids)
            encoding.offsets.extend(spans)
            encoding.segment_ids.extend([segment] * len(ids))
            encoding.text_ids.extend([text_id] * len(ids))
        return encoding

    def _tokenize_text(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids and character spans of a text, without special tokens."""
        with as_model_error(f"{self.model.where} failed on a text"):
            encoding = self._processor.encode(text, return_type="offset_mapping")
        ids, spans = [], []
        unknown = self._role_ids.get("unk", 0)
        for piece_id, piece, span in zip(
            encoding["ids"], encoding["pieces"], _spread_byte_spans(encoding, self._processor), strict=True
        ):
            id = piece_id if self.model.joint_vocab is None else self._ids.get(piece, unknown)
            if id in self._special_ids and id != unknown:  # a user-defined piece spelled like a special token
                characters = range(span[0], span[1])
                ids += [self._find_character_id(text[i]) for i in characters]
                spans += [(i, i + 1) for i in characters]
            else:
                ids.append(id)
                spans.append(span)
        return ids, spans

    def _find_character_id(self, character: str) -> int:
        id = self._ids.get("▁" if character == " " else character)
        return self._role_ids.get("unk", 0) if id is None or id in self._special_ids else id

    def _decode_ids(self, ids: list[int]) -> str:
        with as_model_error(f"{self.model.where} failed on ids"):
            if self.model.joint_vocab is None:
                return self._processor.decode(ids) if ids else ""
            text = self._processor.decode([self._tokens.get(id, "") for id in ids]) if ids else ""
            return text.replace("▁", " ")  # pieces that only the other side's model knows keep their ▁


def _spread_byte_spans(encoding: dict[str, Any], processor: Any) -> list[tuple[int, int]]:
    """The spans, with the span of a character for each of its bytes; SentencePiece gives it to the last byte only."""
    spans = list(encoding["offsets"])
    for i in range(len(spans) - 2, -1, -1):
        start, end = spans[i]
        if start == end and processor.is_byte(encoding["ids"][i]) and processor.is_byte(encoding["ids"][i + 1]):
            spans[i] = spans[i + 1]
    return spans
