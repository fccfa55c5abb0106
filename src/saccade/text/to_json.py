"""A SentencePiece model as a tokenizer.json that gives the same ids, for programs that read no SentencePiece.

Unigram keeps its pieces and scores. BPE merges by the score of what is made, so every way to make a piece is a merge, in the
order of the scores. What cannot be said in a tokenizer.json is not said at all: then there is none. Texts that SentencePiece
normalizes by a table (NFKC) come out alike unless accents stand in an order of their own, or on a ligature or a fraction.
"""

import base64
import struct
from dataclasses import dataclass
from typing import Any

from saccade.text.frame import Frame
from saccade.text.proto import BPE, NORMAL, UNIGRAM, UNKNOWN, UNUSED, USER_DEFINED, read_fields
from saccade.text.spec import LETTERS

SPACE = "▁"
COMPOSING = (
    "nmt_nfkc",
    "nmt_nfkc_cf",
    "nfkc",
    "nfkc_cf",
)  # tables that join letters and accents, as Unicode's NFC does
MANY_SPACES = 1000  # that may stand in front of what was written


@dataclass(frozen=True)
class Proto:
    """What a SentencePiece file says that matters for reading a text."""

    pieces: list[tuple[str, float, int]]  # text, score, kind
    algorithm: int
    byte_fallback: bool
    suffix: bool  # the space is written behind a word
    charsmap: bytes
    rule: str  # the name of that table
    prefix: bool  # a space is put in front of a text
    collapse: bool  # of several spaces one is left, and none at either end
    escape: bool  # a space is written as ▁


def read_proto(content: bytes) -> Proto:
    """The model in these bytes, which SentencePiece has opened already."""
    pieces, trainer, normalizer = [], {}, {}
    for number, value in read_fields(content):
        if number == 1:
            piece = dict(read_fields(value))
            pieces.append((piece[1].decode(), piece.get(2, 0.0), piece.get(3, NORMAL)))
        elif number == 2:
            trainer = dict(read_fields(value))
        elif number == 3:
            normalizer = dict(read_fields(value))
    return Proto(
        pieces,
        algorithm=trainer.get(3, UNIGRAM),
        byte_fallback=bool(trainer.get(35, 0)),
        suffix=bool(trainer.get(24, 0)),
        charsmap=normalizer.get(2, b""),
        rule=normalizer.get(1, b"").decode(),
        prefix=bool(normalizer.get(3, 1)),
        collapse=bool(normalizer.get(4, 1)),
        escape=bool(normalizer.get(5, 1)),
    )


def tokenizer_json(
    content: bytes, frame: Frame, names: dict[str, str], special: dict[str, int]
) -> dict[str, Any] | None:
    """The tokenizer.json of a SentencePiece model with this frame, or None where it could not be exact.

    `names` are the tokens by role, `special` all special tokens with their ids.
    """
    try:
        proto = read_proto(content)
    except (ValueError, LookupError, TypeError, AttributeError, struct.error):  # fields that SentencePiece passes over
        return None
    model = _model(proto, special) if proto.escape and not proto.suffix else None
    beyond = sorted(id for id in special.values() if id >= len(proto.pieces))
    if model is None or beyond != list(range(len(proto.pieces), len(proto.pieces) + len(beyond))):
        return None
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_special(name, id) for name, id in sorted(special.items(), key=lambda pair: pair[1])],
        "normalizer": {"type": "Sequence", "normalizers": _normalizers(proto)},
        "pre_tokenizer": None,
        "post_processor": _around(frame, names, special),
        "decoder": {"type": "Sequence", "decoders": _decoders(proto)},
        "model": model,
    }


def _model(proto: Proto, special: dict[str, int]) -> dict[str, Any] | None:
    """Pieces and merges, or None where SentencePiece does what `tokenizers` cannot."""
    kinds = {kind for text, _, kind in proto.pieces if text not in special}
    unknown = [id for id, (_, _, kind) in enumerate(proto.pieces) if kind == UNKNOWN]
    texts = [text for text, _, _ in proto.pieces]
    if kinds & {UNUSED, USER_DEFINED} or len(unknown) != 1 or len(set(texts)) < len(texts):
        return None
    if max(map(len, texts)) > LETTERS:
        return None
    if proto.algorithm == UNIGRAM:
        vocab = [[text, score] for text, score, _ in proto.pieces]
        return {"type": "Unigram", "unk_id": unknown[0], "vocab": vocab, "byte_fallback": proto.byte_fallback}
    scores = {text: score for text, score, kind in proto.pieces if kind == NORMAL and text not in special}
    if proto.algorithm != BPE or any(letter not in scores for text in scores for letter in text):
        return None
    options = {"dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "ignore_merges": False}
    return {
        "type": "BPE",
        **options,
        "unk_token": texts[unknown[0]],
        "fuse_unk": True,
        "byte_fallback": proto.byte_fallback,
        "vocab": {text: id for id, text in enumerate(texts)},
        "merges": _merges(scores),
    }


def _merges(scores: dict[str, float]) -> list[list[str]]:
    """Every pair of pieces that makes a piece, the highest score first."""
    return [
        [text[:cut], text[cut:]]
        for text in sorted(scores, key=lambda text: -scores[text])
        for cut in range(1, len(text))
        if text[:cut] in scores and text[cut:] in scores
    ]


def _normalizers(proto: Proto) -> list[dict[str, Any]]:
    """What becomes of a text before it is cut into pieces."""
    steps: list[dict[str, Any]] = []
    if proto.charsmap:
        table = base64.b64encode(proto.charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": table})
        if proto.rule in COMPOSING:  # `tokenizers` reads a letter and its accents at once, and loses the second accent
            steps = [{"type": "NFC"}, *steps, {"type": "NFC"}]
    if proto.collapse:
        steps += [_replace(r" {2,}", " "), _replace(r"\A +", ""), _replace(r"[ ▁]+\z", "")]
    if proto.prefix:
        steps.append({"type": "Prepend", "prepend": SPACE})
    return [*steps, {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _decoders(proto: Proto) -> list[dict[str, Any]]:
    """From pieces back to a text."""
    steps: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": SPACE}, "content": " "}]
    steps += [{"type": "ByteFallback"}] if proto.byte_fallback else []
    steps.append({"type": "Fuse"})
    spaces = MANY_SPACES if proto.collapse else int(proto.prefix)
    return [*steps, *([{"type": "Strip", "content": " ", "start": spaces, "stop": 0}] if spaces else [])]


def _around(frame: Frame, names: dict[str, str], special: dict[str, int]) -> dict[str, Any]:
    """The special tokens that the family puts around a text, as a template."""

    def side(pair: bool) -> list[dict[str, Any]]:
        return [
            {"Sequence" if word in "AB" else "SpecialToken": {"id": names.get(word, word), "type_id": segment}}
            for word, segment in frame.slots(pair)
        ]

    used = {names[role]: special[names[role]] for role in sorted(frame.roles())}
    tokens = {name: {"id": name, "ids": [id], "tokens": [name]} for name, id in used.items()}
    return {"type": "TemplateProcessing", "single": side(False), "pair": side(True), "special_tokens": tokens}


def _special(name: str, id: int) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": id, "content": name, **flags}
