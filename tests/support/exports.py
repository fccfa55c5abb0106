"""What the tests of exports share: tiny models with tokenizers, written by us and opened by `transformers`, and texts to read."""

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
READERS = [family for family in PUBLISHED if "label" in family.heads and family.name != "vit"]
WRITERS = [family for family in PUBLISHED if not family.heads]
ODD = [
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
ODD += [
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
    """Different texts of words, of odd characters, of spaces at either end and within, and of any characters at all."""
    draw = random.Random(5)
    words = [*" ".join(CORPUS[:3]).split(), *ODD]
    blocks = [(32, 127), (161, 0x250), (0x370, 0x400), (0x4E00, 0x9FFF), (0x1F300, 0x1F64F)]
    found = dict.fromkeys(["", " ", "  a  b ", "▁", "a▁", " ▁a", "\ta\n", "the cat sat on the mat"])
    while len(found) < count:
        if draw.random() < 0.3:
            made = "".join(chr(draw.randrange(*draw.choice(blocks))) for _ in range(draw.randrange(1, 30)))
        else:
            made = "".join(draw.choice(words) + draw.choice([" ", " ", "", "  "]) for _ in range(draw.randrange(1, 14)))
        found[made] = None
    return list(found)


def plain(tokenizer: Tokenizer, count: int = 1000) -> list[str]:
    """Those texts that do not spell a special token, which only `transformers` finds in a text."""
    found = [text for text in texts(count) if not any(name in text for name in tokenizer.special_tokens)]
    assert len(found) > 0.99 * count
    return found


@dataclass
class Export:
    """A directory as we wrote it: our model, read again, and theirs."""

    ours: Model
    theirs: Any
    words: Any  # their tokenizer

    @property
    def tokenizer(self) -> Tokenizer:
        return self.ours.tokenizer


def sized(family, **more):
    """A tiny config of a family."""
    known = {item.name for item in fields(family.config_class)}
    return family.config_class(**{key: value for key, value in (SIZES | more).items() if key in known})


def built(family, head=None, *, kind="bpe", frame=None, spare=0, seed=1) -> Model:
    """A model with its own tokenizer, no weight of which is what a new one would have."""
    writer = family in WRITERS
    frame = frame or (
        ("t5" if family.name in ("t5", "bart", "marian") else "none") if writer else family.token_template or "bos_eos"
    )
    tokenizer = train_tokenizer(CORPUS, kind, VOCAB.get(kind), token_template=frame)
    torch.manual_seed(seed)
    config = sized(family, vocab=tokenizer.vocab + spare, decoder_start_id=tokenizer.bos_id, pad_id=tokenizer.pad_id)
    model = new(family, config, head=head, labels=("a", "b", "c") if head in ("label", "tag") else ())
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if "norm" in name and name.endswith("weight") else 0.0, std=0.7)
    model.tokenizer = tokenizer
    return model.eval()


def exported(model: Model, directory) -> Export:
    """The model written down, and opened by both; nothing may be missing or too much."""
    model.save(directory)
    cls = getattr(transformers, json.loads((directory / "config.json").read_text())["architectures"][0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one tokenizer recommends a package for punctuation
        # whatever tokenizer_config.json says, the package takes another class for a Qwen2, which splits texts in its own way
        named = transformers.PreTrainedTokenizerFast if model.family.name == "qwen2" else transformers.AutoTokenizer
        words = named.from_pretrained(directory)
    theirs, info = cls.from_pretrained(directory, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    return Export(load(directory), theirs.eval(), words)
