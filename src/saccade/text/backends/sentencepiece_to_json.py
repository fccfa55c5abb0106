"""Convert a SentencePiece model to a tokenizer.json with the same ids, for programs that cannot read SentencePiece files.

Unigram models keep their pieces and scores. SentencePiece BPE merges by the score of the resulting piece, so every way to split
a piece into two pieces becomes a merge, ordered by score. A model that tokenizer.json cannot express exactly is not converted.
If SentencePiece normalizes by a table (NFKC), ids are the same unless accents are in a non-canonical order, or on a ligature or
a fraction.
"""

import base64
import struct
from dataclasses import dataclass
from typing import Any

from saccade.text.backends.sentencepiece_proto import BPE, NORMAL, UNIGRAM, UNKNOWN, UNUSED, USER_DEFINED, decode_fields
from saccade.text.loading.validate_tokenizer_json import MAX_TOKEN_CHARACTERS
from saccade.text.special_tokens import SpecialTokenTemplate

SPACE_SYMBOL = "▁"
COMPOSING_NORMALIZERS = ("nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf")  # compose letters and accents, as NFC does
MAX_LEADING_SPACES = 1000  # leading spaces that the decoder strips at most


@dataclass(frozen=True)
class SentencePieceSpec:
    """The settings of a SentencePiece model that matter for encoding and decoding."""

    pieces: list[tuple[str, float, int]]  # text, score, kind
    model_type: int
    byte_fallback: bool
    treat_whitespace_as_suffix: bool  # a space belongs to the word before it
    precompiled_charsmap: bytes  # the table of the normalizer
    normalizer_name: str
    add_dummy_prefix: bool  # a space is added before a text
    remove_extra_whitespaces: bool  # repeated spaces become one, and spaces at both ends are removed
    escape_whitespaces: bool  # a space is written as ▁


def parse_sentencepiece(content: bytes) -> SentencePieceSpec:
    """Parse the bytes of a model file that SentencePiece was able to load."""
    pieces, trainer, normalizer = [], {}, {}
    for number, value in decode_fields(content):
        if number == 1:
            piece = dict(decode_fields(value))
            pieces.append((piece[1].decode(), piece.get(2, 0.0), piece.get(3, NORMAL)))
        elif number == 2:
            trainer = dict(decode_fields(value))
        elif number == 3:
            normalizer = dict(decode_fields(value))
    return SentencePieceSpec(
        pieces,
        model_type=trainer.get(3, UNIGRAM),
        byte_fallback=bool(trainer.get(35, 0)),
        treat_whitespace_as_suffix=bool(trainer.get(24, 0)),
        precompiled_charsmap=normalizer.get(2, b""),
        normalizer_name=normalizer.get(1, b"").decode(),
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
        escape_whitespaces=bool(normalizer.get(5, 1)),
    )


def to_tokenizer_json(
    content: bytes, template: SpecialTokenTemplate, role_tokens: dict[str, str], special_tokens: dict[str, int]
) -> dict[str, Any] | None:
    """Convert a SentencePiece model with this template to a tokenizer.json; None if the result would not be exact.

    `role_tokens` are the tokens by role, `special_tokens` all special tokens with their ids.
    """
    try:
        proto = parse_sentencepiece(content)
    except (ValueError, LookupError, TypeError, AttributeError, struct.error):  # fields that SentencePiece ignores
        return None
    model = (
        _make_model(proto, special_tokens)
        if proto.escape_whitespaces and not proto.treat_whitespace_as_suffix
        else None
    )
    added_ids = sorted(id for id in special_tokens.values() if id >= len(proto.pieces))
    if model is None or added_ids != list(range(len(proto.pieces), len(proto.pieces) + len(added_ids))):
        return None
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _make_added_token(name, id) for name, id in sorted(special_tokens.items(), key=lambda pair: pair[1])
        ],
        "normalizer": {"type": "Sequence", "normalizers": _make_normalizers(proto)},
        "pre_tokenizer": None,
        "post_processor": _make_post_processor(template, role_tokens, special_tokens),
        "decoder": {"type": "Sequence", "decoders": _make_decoders(proto)},
        "model": model,
    }


def _make_model(spec: SentencePieceSpec, special_tokens: dict[str, int]) -> dict[str, Any] | None:
    """The model with its pieces and merges; None if it needs a feature of SentencePiece that `tokenizers` lacks."""
    kinds = {kind for text, _, kind in spec.pieces if text not in special_tokens}
    unknown = [id for id, (_, _, kind) in enumerate(spec.pieces) if kind == UNKNOWN]
    texts = [text for text, _, _ in spec.pieces]
    if kinds & {UNUSED, USER_DEFINED} or len(unknown) != 1 or len(set(texts)) < len(texts):
        return None
    if max(map(len, texts)) > MAX_TOKEN_CHARACTERS:
        return None
    if spec.model_type == UNIGRAM:
        vocab = [[text, score] for text, score, _ in spec.pieces]
        return {"type": "Unigram", "unk_id": unknown[0], "vocab": vocab, "byte_fallback": spec.byte_fallback}
    scores = {text: score for text, score, kind in spec.pieces if kind == NORMAL and text not in special_tokens}
    if spec.model_type != BPE or any(character not in scores for text in scores for character in text):
        return None
    options = {"dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "ignore_merges": False}
    return {
        "type": "BPE",
        **options,
        "unk_token": texts[unknown[0]],
        "fuse_unk": True,
        "byte_fallback": spec.byte_fallback,
        "vocab": {text: id for id, text in enumerate(texts)},
        "merges": _find_merges(scores),
    }


def _find_merges(scores: dict[str, float]) -> list[list[str]]:
    """All pairs of pieces that form a piece together, those of the highest score first."""
    return [
        [text[:cut], text[cut:]]
        for text in sorted(scores, key=lambda text: -scores[text])
        for cut in range(1, len(text))
        if text[:cut] in scores and text[cut:] in scores
    ]


def _make_normalizers(spec: SentencePieceSpec) -> list[dict[str, Any]]:
    """The normalization of a text before it is split into pieces."""
    steps: list[dict[str, Any]] = []
    if spec.precompiled_charsmap:
        table = base64.b64encode(spec.precompiled_charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": table})
        if spec.normalizer_name in COMPOSING_NORMALIZERS:
            # `tokenizers` maps a letter and its accents as one unit, which loses the second accent
            steps = [{"type": "NFC"}, *steps, {"type": "NFC"}]
    if spec.remove_extra_whitespaces:
        steps += [_make_replace(r" {2,}", " "), _make_replace(r"\A +", ""), _make_replace(r"[ ▁]+\z", "")]
    if spec.add_dummy_prefix:
        steps.append({"type": "Prepend", "prepend": SPACE_SYMBOL})
    return [*steps, {"type": "Replace", "pattern": {"String": " "}, "content": SPACE_SYMBOL}]


def _make_replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _make_decoders(spec: SentencePieceSpec) -> list[dict[str, Any]]:
    """The steps that turn pieces into text."""
    steps: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": SPACE_SYMBOL}, "content": " "}]
    steps += [{"type": "ByteFallback"}] if spec.byte_fallback else []
    steps.append({"type": "Fuse"})
    spaces = MAX_LEADING_SPACES if spec.remove_extra_whitespaces else int(spec.add_dummy_prefix)
    return [*steps, *([{"type": "Strip", "content": " ", "start": spaces, "stop": 0}] if spaces else [])]


def _make_post_processor(
    template: SpecialTokenTemplate, role_tokens: dict[str, str], special_tokens: dict[str, int]
) -> dict[str, Any]:
    """The special tokens around a text, as a TemplateProcessing."""

    def side(pair: bool) -> list[dict[str, Any]]:
        return [
            {"Sequence" if word in "AB" else "SpecialToken": {"id": role_tokens.get(word, word), "type_id": segment}}
            for word, segment in template.list_slots(pair)
        ]

    used = {role_tokens[role]: special_tokens[role_tokens[role]] for role in sorted(template.list_required_roles())}
    tokens = {name: {"id": name, "ids": [id], "tokens": [name]} for name, id in used.items()}
    return {"type": "TemplateProcessing", "single": side(False), "pair": side(True), "special_tokens": tokens}


def _make_added_token(name: str, id: int) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": id, "content": name, **flags}
