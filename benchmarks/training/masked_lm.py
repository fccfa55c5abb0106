"""Masked language modeling compared with `transformers`: a small BERT with the published vocabulary size, on sentences.

Both mask 15 % of the tokens, drawn anew in each step, and have the same number of tokens per step without padding.
`transformers` pads shuffled texts and computes logits at every token, as its collator and its model do; saccade batches texts
of similar length and computes logits only at masked tokens.
"""

from typing import Any

import numpy as np

from benchmarks.training.common import (
    Case,
    Step,
    batch_by_length,
    make_plain_step,
    make_saccade_step,
    make_sentences,
    shuffled_batches,
)

VOCAB = 30_522
BATCH_SIZE = 64
BOS_ID, EOS_ID, MASK_ID = 2, 3, 4


def train_masked_saccade(case: Case) -> Step:
    """BERT-mini (4 layers, width 256), in batches of similar length."""
    from saccade.data import Example
    from saccade.models.build import new
    from saccade.models.families import bert
    from saccade.tasks.base import Item
    from saccade.tasks.pretrain.masked_lm import MaskedLM
    from saccade.tasks.pretrain.packed_rows import NO_UNIT, RowUnits

    config = bert.Config(
        vocab=VOCAB, width=256, layers=4, heads=4, ffn_width=1024, dropout=case.dropout, attention_dropout=case.dropout,
        use_attention_dropout=case.dropout > 0,
    )  # fmt: skip
    model = new("bert", config, head="lm")
    model.tokenizer = _make_saccade_tokenizer()
    texts = make_framed_sentences()
    items = []
    for row in texts:
        units = np.arange(-1, len(row) - 1, dtype=np.int32)
        units[-1] = NO_UNIT
        items.append(Item(Example({}), row, gold=RowUnits(units)))
    task = MaskedLM()
    batch_tokens = BATCH_SIZE * round(np.mean([len(row) for row in texts]))
    return make_saccade_step(model, task, batch_by_length(task, items, batch_tokens))


def train_masked_transformers(case: Case) -> Step:
    import transformers

    config = transformers.BertConfig(
        vocab_size=VOCAB, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024,
        hidden_dropout_prob=case.dropout, attention_probs_dropout_prob=case.dropout,
    )  # fmt: skip
    model = transformers.BertForMaskedLM._from_config(config, attn_implementation="sdpa")
    special_tokens = {
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "mask_token": "<mask>",
    }
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=_make_tokenizer(), **special_tokens)
    collate = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=True, mlm_probability=0.15)
    rows = [{"input_ids": row.tolist()} for row in make_framed_sentences()]
    batches = shuffled_batches(rows, collate, BATCH_SIZE)
    return make_plain_step(model, batches, lambda batch: int(batch["attention_mask"].sum()))


def make_framed_sentences() -> list[np.ndarray]:
    """The sentences, each between a begin and an end token."""
    return [np.concatenate([[BOS_ID], ids, [EOS_ID]]).astype(np.int32) for ids in make_sentences(VOCAB)]


def _make_tokenizer() -> Any:
    """A tokenizer with the vocabulary size of BERT; no text is encoded, but masking draws random tokens from it."""
    from tokenizers import Tokenizer, models

    special_tokens = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    words = [*special_tokens, *(f"w{i}" for i in range(VOCAB - len(special_tokens)))]
    tokenizer = Tokenizer(models.WordLevel({word: id for id, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.add_special_tokens(special_tokens)
    return tokenizer


def _make_saccade_tokenizer() -> Any:
    import json

    from saccade.text.backends.hf_tokenizers import HFBackend
    from saccade.text.tokenizer import Tokenizer

    roles = {"pad": 0, "unk": 1, "bos": BOS_ID, "eos": EOS_ID, "mask": MASK_ID}
    return Tokenizer(HFBackend(json.loads(_make_tokenizer().to_str())), roles)
