"""Special tokens: their roles, and the templates that place them around a text or a pair of texts.

A template is a sequence of roles, with `A` and `B` for the texts; `:1` marks the second segment.

>>> TEMPLATES["bert"].pair
'cls A sep B:1 sep:1'
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class SpecialTokenTemplate:
    """The special tokens around a single text and around a pair of texts."""

    single: str
    pair: str

    def list_slots(self, pair: bool) -> list[tuple[str, int]]:
        """The slots in order, as (role, or "A" or "B" for a text; segment id).

        >>> TEMPLATES["t5"].list_slots(pair=False)
        [('A', 0), ('eos', 0)]
        """
        words = (self.pair if pair else self.single).split()
        return [(word.partition(":")[0], int(word.partition(":")[2] or 0)) for word in words]

    def list_required_roles(self) -> set[str]:
        """The roles for which a tokenizer with this template needs a token."""
        return {word for pair in (False, True) for word, _ in self.list_slots(pair)} - {"A", "B"}

    def to_hf_template(self, role_tokens: dict[str, str]) -> tuple[str, str]:
        """The two templates in the notation of Hugging Face `tokenizers`, with token names instead of roles."""

        def write(pair: bool) -> str:
            return " ".join(
                f"${word}:{n}" if word in "AB" else f"{role_tokens[word]}:{n}" for word, n in self.list_slots(pair)
            )

        return write(False), write(True)


TEMPLATES = {
    "none": SpecialTokenTemplate("A", "A B:1"),
    "bert": SpecialTokenTemplate("cls A sep", "cls A sep B:1 sep:1"),
    "roberta": SpecialTokenTemplate("bos A eos", "bos A eos eos B eos"),
    "t5": SpecialTokenTemplate("A eos", "A eos B eos"),
    "marian": SpecialTokenTemplate("A eos", "A B eos"),
    "llama": SpecialTokenTemplate("bos A", "bos A bos:1 B:1"),
    "bos_eos": SpecialTokenTemplate("bos A eos", "bos A eos bos:1 B:1 eos:1"),
}

# The template of each tokenizer_class in tokenizer_config.json (with or without "Fast"), for directories without tokenizer.json.
TEMPLATES_BY_CLASS = {
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

# The roles, and their keys in special_tokens_map.json and tokenizer_config.json.
ROLE_KEYS = {
    "bos": "bos_token",
    "eos": "eos_token",
    "pad": "pad_token",
    "mask": "mask_token",
    "unk": "unk_token",
    "sep": "sep_token",
    "cls": "cls_token",
}

# Usual names of the token of each role, tried in this order where no file states it.
ROLE_TOKENS = {
    "bos": ["<s>", "[BOS]", "<bos>", "<|begin_of_text|>", "<|endoftext|>"],
    "eos": ["</s>", "[EOS]", "<eos>", "<|end_of_text|>", "<|endoftext|>"],
    "pad": ["<pad>", "[PAD]"],
    "mask": ["<mask>", "[MASK]"],
    "unk": ["<unk>", "[UNK]"],
    "sep": ["[SEP]"],
    "cls": ["[CLS]"],
}
