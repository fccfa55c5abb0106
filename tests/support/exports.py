"""Helpers for tests of exports: tiny models with tokenizers, saved by saccade and loaded by `transformers`, and texts."""

import json
import random
import unicodedata
import warnings
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import torch
import transformers

from saccade.models.build import new
from saccade.models.load import load
from saccade.models.model import Model
from saccade.models.registry import FAMILIES
from saccade.text import train_tokenizer
from saccade.text.tokenizer import Tokenizer

CORPUS = ["the cat sat on the mat, didn't it? 12 = 42", "naïve café für 5 € — 漢字と仮名", "so it goes on and on."] * 20
SIZES: dict[str, Any] = {
    "width": 12,
    "layers": 2,
    "heads": 3,
    "ffn_width": 17,
    "max_positions": 96,
    "head_width": 4,
    "kv_heads": 3,
}
SIZES |= {
    "decoder_layers": 2,
    "decoder_heads": 3,
    "decoder_ffn_width": 17,
    "embedding_width": 5,
    "attention_windows": (4,),
    "block_type": 16,
}
SIZES |= {
    "rotary_fraction": 0.5,
    "sliding_window": 5,
    "full_attention_every": 2,
    "attention_scale_width": 7,
    "random_blocks": 1,
    "image_height": 12,
    "patch_size": 4,
    "channels": 3,
}
VOCAB = {"bpe": 300, "wordpiece": 250, "unigram": 150, "words": 40}
PUBLISHED = [family for family in FAMILIES if family.weight_map is not None and not family.import_only]
ENCODERS = [family for family in PUBLISHED if "label" in family.heads and family.name != "vit"]
GENERATIVE = [family for family in PUBLISHED if not family.heads]
UNUSUAL_TEXTS = [
    "naïve",
    "café",
    "5 €",
    "—",
    "漢字",
    "😀👩‍👩‍👧",
    "שלום",
    "عالم",
    "так",
    "ﬁ½①",
    "İßſ",
    "\u3000",
    "\t",
    "\n",
    "\r\n",
    "�",
    "▁",
]
UNUSUAL_TEXTS += [
    "e\u0301",
    unicodedata.normalize("NFD", "Việt"),
    unicodedata.normalize("NFD", "한국어"),
    "ﾊﾟ",
    "\u00a0",
    "\u200b",
    "\x00",
]


@cache
def texts(count: int = 1000) -> list[str]:
    """Distinct texts of ordinary words, unusual characters, spaces at either end and inside, and random characters."""
    rng = random.Random(5)
    words = [*" ".join(CORPUS[:3]).split(), *UNUSUAL_TEXTS]
    blocks = [(32, 127), (161, 0x250), (0x370, 0x400), (0x4E00, 0x9FFF), (0x1F300, 0x1F64F)]
    distinct = dict.fromkeys(["", " ", "  a  b ", "▁", "a▁", " ▁a", "\ta\n", "the cat sat on the mat"])
    while len(distinct) < count:
        if rng.random() < 0.3:
            text = "".join(chr(rng.randrange(*rng.choice(blocks))) for _ in range(rng.randrange(1, 30)))
        else:
            text = "".join(rng.choice(words) + rng.choice([" ", " ", "", "  "]) for _ in range(rng.randrange(1, 14)))
        distinct[text] = None
    return list(distinct)


def plain_texts(tokenizer: Tokenizer, count: int = 1000) -> list[str]:
    """The texts without the name of a special token, which only `transformers` recognizes in a text."""
    plain = [text for text in texts(count) if not any(name in text for name in tokenizer.special_tokens)]
    assert len(plain) > 0.99 * count
    return plain


@dataclass
class Export:
    """An exported directory, loaded by saccade (`ours`) and by `transformers` (`theirs`)."""

    ours: Model
    theirs: Any
    words: Any  # the tokenizer of `transformers`

    @property
    def tokenizer(self) -> Tokenizer:
        return self.ours.tokenizer


def make_config(family, **sizes):
    """A tiny config of a family."""
    known = {item.name for item in fields(family.config_class)}
    return family.config_class(**{key: value for key, value in (SIZES | sizes).items() if key in known})


def make_model(family, head=None, *, kind="bpe", frame=None, spare=0, seed=1) -> Model:
    """A model with its own tokenizer, whose weights all differ from those of a new model."""
    generative = family in GENERATIVE
    frame = frame or (
        ("t5" if family.name in ("t5", "bart", "marian") else "none")
        if generative
        else family.token_template or "bos_eos"
    )
    tokenizer = train_tokenizer(CORPUS, kind, VOCAB.get(kind), token_template=frame)
    torch.manual_seed(seed)
    config = make_config(
        family, vocab=tokenizer.vocab + spare, decoder_start_id=tokenizer.bos_id, pad_id=tokenizer.pad_id
    )
    model = new(family, config, head=head, labels=("a", "b", "c") if head in ("label", "tag") else ())
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if "norm" in name and name.endswith("weight") else 0.0, std=0.7)
    model.tokenizer = tokenizer
    return model.eval()


def export_model(model: Model, directory) -> Export:
    """Save the model and load it with both libraries; no weight may be missing or unexpected."""
    model.save(directory)
    model_class = getattr(transformers, json.loads((directory / "config.json").read_text())["architectures"][0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one tokenizer warns about a missing package for punctuation
        # AutoTokenizer ignores tokenizer_config.json for Qwen2 and uses a class that splits texts in its own way
        tokenizer_class = (
            transformers.PreTrainedTokenizerFast if model.family.name == "qwen2" else transformers.AutoTokenizer
        )
        words = tokenizer_class.from_pretrained(directory)
    theirs, info = model_class.from_pretrained(directory, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    return Export(load(directory), theirs.eval(), words)
