"""Whole, small models to spoil: BERT with each kind of tokenizer that it may have, GPT-2, T5 and Marian."""

import json
import string
from pathlib import Path
from typing import Any

import torch

from saccade.models.families import bert, gpt2, marian, t5
from saccade.models.family import Family
from saccade.models.load import Model
from saccade.text.backends.sentencepiece_proto import BYTE, CONTROL, NORMAL, UNKNOWN, encode_model

VOCAB = 320
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [*string.ascii_lowercase, *string.digits, ".", ",", "!"]
WORDS = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), "the", "bank"]


def spec() -> dict[str, Any]:
    """A tokenizer.json as BERT has it."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    sequence = [{"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB")]
    first, last = ({"SpecialToken": {"id": name, "type_id": 0}} for name in ("[CLS]", "[SEP]"))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": name, **flags} for i, name in enumerate(SPECIAL)],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [first, sequence[0], last],
            "pair": [first, sequence[0], last, sequence[1], last],
            "special_tokens": {
                name: {"id": name, "ids": [WORDS.index(name)], "tokens": [name]} for name in ("[CLS]", "[SEP]")
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {word: i for i, word in enumerate(WORDS)},
        },
    }


def pieces() -> bytes:
    """A SentencePiece model of bytes and letters."""
    first = [(b"<unk>", 0.0, UNKNOWN), (b"<s>", 0.0, CONTROL), (b"</s>", 0.0, CONTROL)]
    letters = [(f"\u2581{x}".encode() if i else "\u2581".encode(), -1.0 - i, NORMAL) for i, x in enumerate(LETTERS)]
    return encode_model([*first, *((f"<0x{i:02X}>".encode(), 0.0, BYTE) for i in range(256)), *letters])


def build(home: Path) -> None:
    """Write every base into a directory of its own; the names are those that a `Case` gives."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab": VOCAB, "width": 12, "layers": 2, "heads": 3, "ffn_width": 20}
    _write(home / "bert", bert.FAMILY, bert.Config(**sizes, max_positions=16))
    (home / "bert" / "tokenizer.json").write_text(json.dumps(spec()), encoding="utf-8")
    _write(home / "vocab", bert.FAMILY, bert.Config(**sizes, max_positions=16))
    (home / "vocab" / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    _write(home / "merges", gpt2.FAMILY, gpt2.Config(**sizes, max_positions=16))
    tokens = [*LETTERS, "th", "the"]
    (home / "merges" / "vocab.json").write_text(json.dumps({x: i for i, x in enumerate(tokens)}), encoding="utf-8")
    (home / "merges" / "merges.txt").write_text("#version: 0.2\nt h\nth e\n", encoding="utf-8")
    more: dict[str, Any] = sizes | {"vocab": 420, "head_width": 4, "relative_buckets": 4, "max_relative_distance": 8}
    _write(home / "pieces", t5.FAMILY, t5.Config(**more))
    (home / "pieces" / "spiece.model").write_bytes(pieces())
    (home / "pieces" / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer"}', encoding="utf-8")
    both: dict[str, Any] = {
        "decoder_layers": 2,
        "decoder_heads": 3,
        "decoder_ffn_width": 20,
        "max_positions": 16,
        "decoder_start_id": 319,
    }
    _write(home / "marian", marian.FAMILY, marian.Config(**sizes, **both))
    for name in ("source.spm", "target.spm"):
        (home / "marian" / name).write_bytes(pieces())
    known = ["</s>", "<unk>", *(f"\u2581{x}" for x in LETTERS), ">>fra<<"]
    vocab = {x: i for i, x in enumerate(known)} | {"<pad>": 319}
    (home / "marian" / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")


def _write(home: Path, family: Family, config: Any) -> None:
    Model(family, config, family.build(config)).save(home)
