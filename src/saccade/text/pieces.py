"""Tokenizers on `sentencepiece`: T5's spiece.model, LLaMA's tokenizer.model, Marian's pairs of .spm files.

SentencePiece itself never reads a control piece such as "</s>" in a text. Pieces that the model's trainer declared as user
defined are read, so those that play a special role are taken apart again into characters.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sentencepiece

from saccade.errors import ModelError
from saccade.text.files import guarded
from saccade.text.frame import Frame
from saccade.text.to_json import tokenizer_json
from saccade.text.tokenizer import OURS, Encoded


def open_model(content: bytes, where: str) -> sentencepiece.SentencePieceProcessor:
    """The SentencePiece model in these bytes."""
    with guarded(f"{where} is not a SentencePiece model"):
        processor = sentencepiece.SentencePieceProcessor()
        processor.LoadFromSerializedProto(content)
        for id in range(len(processor)):  # a piece that is no text would only be found out when it is first written
            processor.id_to_piece(id)
        return processor


@dataclass(frozen=True)
class Source:
    """Where the pieces come from: an open model, and the joint vocabulary where ids are not the model's own (Marian)."""

    processor: sentencepiece.SentencePieceProcessor
    where: str
    lookup: dict[str, int] | None = None
    config: dict[str, Any] = field(default_factory=dict)  # what save writes besides the roles
    files: dict[str, bytes] = field(default_factory=dict)  # name -> content, written by save


class Pieces:
    """The engine for a SentencePiece model; `roles` are names by role, `added` names of further special tokens with ids."""

    def __init__(self, source: Source, frame: Frame, roles: dict[str, str], added: dict[str, int]):
        self.source, self.frame = source, frame
        self._processor = source.processor
        self._ids: dict[str, int] = source.lookup if source.lookup is not None else self._own()
        self._tokens = {id: token for token, id in self._ids.items()} | {id: token for token, id in added.items()}
        self.special = {name: self._ids[name] for name in roles.values() if name in self._ids} | added
        self.special |= {self._tokens[id]: id for id in self._controls()}
        self._special_ids = set(self.special.values())
        self.names = {role: name for role, name in roles.items() if name in self.special}
        self._roles = {role: self.special[name] for role, name in self.names.items()}
        self.vocab = 1 + max(self._tokens)
        missing = sorted(frame.roles() - self._roles.keys())
        if missing:
            raise ModelError(
                f"{source.where}: the family puts {', '.join(missing)} around a text; the model has no such token."
            )

    def token(self, id: int) -> str:
        return self._tokens.get(id, "")

    def id(self, token: str) -> int | None:
        return self.special[token] if token in self.special else self._ids.get(token)

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None, special: bool) -> list[Encoded]:
        seconds = [None] * len(texts) if pairs is None else pairs
        return [self._encode(text, pair, special) for text, pair in zip(texts, seconds, strict=True)]

    def decode(self, ids: Sequence[int], special: bool) -> str:
        """Stretches between special tokens are decoded each for itself; special tokens are written as they are spelled."""
        if not special:
            return self._write([id for id in ids if id not in self._special_ids])
        out, stretch = [], []
        for id in ids:
            if id in self._special_ids:
                out += [self._write(stretch), self._tokens[id]]
                stretch = []
            else:
                stretch.append(id)
        return "".join([*out, self._write(stretch)])

    def save(self, directory: Path) -> dict[str, Any]:
        for name, content in self.source.files.items():
            (directory / name).write_bytes(content)
        beyond = {token: id for token, id in self.special.items() if id >= len(self._ids)}
        if beyond and self.source.lookup is None:
            (directory / "added_tokens.json").write_text(json.dumps(beyond, ensure_ascii=False), encoding="utf-8")
        models = [content for name, content in self.source.files.items() if name.endswith(".model")]
        spec = tokenizer_json(models[0], self.frame, self.names, self.special) if len(models) == 1 else None
        if spec is None:
            return dict(self.source.config)
        (directory / "tokenizer.json").write_text(json.dumps(spec, ensure_ascii=False), encoding="utf-8")
        other = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
        return other | {OURS: dict(self.source.config)}

    def _own(self) -> dict[str, int]:
        return {self._processor.id_to_piece(id): id for id in range(len(self._processor))}

    def _controls(self) -> list[int]:
        """The ids of the control pieces and of the unknown one."""
        p = self._processor
        found = [p.id_to_piece(id) for id in range(len(p)) if p.is_control(id) or p.is_unknown(id)]
        return [self._ids[piece] for piece in found if piece in self._ids]

    def _encode(self, text: str, pair: str | None, special: bool) -> Encoded:
        read = {"A": self._read(text), "B": self._read(pair) if pair is not None else ([], [])}
        out = Encoded([], [], [], [])
        for word, segment in self.frame.slots(pair is not None):
            if word in read:
                ids, spans = read[word]
                part: int | None = "AB".index(word)
            elif special:
                ids, spans, part = [self._roles[word]], [(0, 0)], None
            else:
                continue
            out.ids.extend(ids)
            out.offsets.extend(spans)
            out.segments.extend([segment] * len(ids))
            out.parts.extend([part] * len(ids))
        return out

    def _read(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids and spans of a text, nothing around it."""
        with guarded(f"{self.source.where} failed on a text"):
            found = self._processor.encode(text, return_type="offset_mapping")
        ids, spans = [], []
        unknown = self._roles.get("unknown", 0)
        for own, piece, span in zip(found["ids"], found["pieces"], _shared(found, self._processor), strict=True):
            id = own if self.source.lookup is None else self._ids.get(piece, unknown)
            if id in self._special_ids and id != unknown:  # a user-defined piece spelled like a special token
                letters = range(span[0], span[1])
                ids += [self._letter(text[i]) for i in letters]
                spans += [(i, i + 1) for i in letters]
            else:
                ids.append(id)
                spans.append(span)
        return ids, spans

    def _letter(self, letter: str) -> int:
        id = self._ids.get("▁" if letter == " " else letter)
        return self._roles.get("unknown", 0) if id is None or id in self._special_ids else id

    def _write(self, ids: list[int]) -> str:
        with guarded(f"{self.source.where} failed on ids"):
            if self.source.lookup is None:
                return self._processor.decode(ids) if ids else ""
            text = self._processor.decode([self._tokens.get(id, "") for id in ids]) if ids else ""
            return text.replace("▁", " ")  # pieces of the other language are unknown to this model


def _shared(found: dict[str, Any], processor: Any) -> list[tuple[int, int]]:
    """The spans, with the bytes of a character all given the character; SentencePiece gives it to the last one only."""
    spans = list(found["offsets"])
    for i in range(len(spans) - 2, -1, -1):
        start, end = spans[i]
        if start == end and processor.is_byte(found["ids"][i]) and processor.is_byte(found["ids"][i + 1]):
            spans[i] = spans[i + 1]
    return spans
