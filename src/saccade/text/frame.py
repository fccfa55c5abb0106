"""What a family puts around a text: which special tokens, where, and which segment each part belongs to.

A frame is written in roles, `A` and `B` being the texts; `:1` marks the second segment.

>>> FRAMES["bert"].pair
'classify A separator B:1 separator:1'
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Frame:
    """The tokens around one text and around a pair."""

    single: str
    pair: str

    def slots(self, pair: bool) -> list[tuple[str, int]]:
        """(role or text, segment) in order.

        >>> FRAMES["t5"].slots(pair=False)
        [('A', 0), ('end', 0)]
        """
        words = (self.pair if pair else self.single).split()
        return [(word.partition(":")[0], int(word.partition(":")[2] or 0)) for word in words]

    def roles(self) -> set[str]:
        """The roles it needs."""
        return {word for pair in (False, True) for word, _ in self.slots(pair)} - {"A", "B"}

    def template(self, names: dict[str, str]) -> tuple[str, str]:
        """The same as `tokenizers` writes it, with the tokens' names in place of the roles."""

        def write(pair: bool) -> str:
            return " ".join(f"${word}:{n}" if word in "AB" else f"{names[word]}:{n}" for word, n in self.slots(pair))

        return write(False), write(True)


FRAMES = {
    "none": Frame("A", "A B:1"),
    "bert": Frame("classify A separator", "classify A separator B:1 separator:1"),
    "roberta": Frame("begin A end", "begin A end end B end"),
    "t5": Frame("A end", "A end B end"),
    "marian": Frame("A end", "A B end"),
    "llama": Frame("begin A", "begin A begin:1 B:1"),
    "both": Frame("begin A end", "begin A end begin:1 B:1 end:1"),
}

# The classes that a tokenizer_config.json may name (with or without "Fast"), for directories without a tokenizer.json.
CLASSES = {
    "BertTokenizer": "bert",
    "DistilBertTokenizer": "bert",
    "ElectraTokenizer": "bert",
    "BigBirdTokenizer": "bert",
    "RobertaTokenizer": "roberta",
    "BartTokenizer": "roberta",
    "LongformerTokenizer": "roberta",
    "GPT2Tokenizer": "none",
    "ReformerTokenizer": "none",
    "T5Tokenizer": "t5",
    "MarianTokenizer": "marian",
    "LlamaTokenizer": "llama",
}

# Our roles and the keys under which special_tokens_map.json and tokenizer_config.json state them.
ROLES = {
    "begin": "bos_token",
    "end": "eos_token",
    "pad": "pad_token",
    "mask": "mask_token",
    "unknown": "unk_token",
    "separator": "sep_token",
    "classify": "cls_token",
}

# Where no file states a role, a special token of one of these names plays it.
NAMES = {
    "begin": ["<s>", "[BOS]", "<bos>", "<|begin_of_text|>", "<|endoftext|>"],
    "end": ["</s>", "[EOS]", "<eos>", "<|end_of_text|>", "<|endoftext|>"],
    "pad": ["<pad>", "[PAD]"],
    "mask": ["<mask>", "[MASK]"],
    "unknown": ["<unk>", "[UNK]"],
    "separator": ["[SEP]"],
    "classify": ["[CLS]"],
}
