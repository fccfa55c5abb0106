"""Small tokenizers of `transformers`, trained on a few words."""

from collections.abc import Sequence

import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def make_tokenizer(texts: Sequence[str], kind: str) -> hf.PreTrainedTokenizerFast:
    """`bert`: WordPiece between [CLS] and [SEP]; `gpt2`: byte-level BPE without special tokens; `t5`: the same and [SEP]."""
    if kind == "bert":
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=60, special_tokens=SPECIAL_TOKENS)
        single, pair = "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"
        ends = [("[CLS]", 2), ("[SEP]", 3)]
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=SPECIAL_TOKENS, initial_alphabet=alphabet)
        single, pair, ends = "$A [SEP]", "$A [SEP] $B [SEP]", [("[SEP]", 3)]
    tokenizer.train_from_iterator([text for text in texts for _ in range(3)], trainer)
    if kind != "gpt2":
        tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ends)
    names = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "eos_token": "[SEP]",
    }
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if kind == "bert" else ["input_ids", "attention_mask"]
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=inputs, **names)
