"""Masked words beside `transformers`: a small BERT, its published vocabulary, and texts as long as sentences.

Both hide 15 % of the tokens, new ones at each step, with the same real tokens to a step. The peer pads texts that come in any
order and scores the vocabulary at every token, as its collator and its model do; ours reads texts of like length together and
scores the vocabulary where a word is hidden.
"""

from typing import Any

import numpy as np

from benchmarks.training.common import Case, Step, by_length, in_any_order, learner, lines, loop

VOCAB = 30_522
ROWS = 64
BEGIN, END, MASK = 2, 3, 4


def masked_ours(case: Case) -> Step:
    """BERT-mini, 4 layers, 256 wide, on texts of like length."""
    from saccade.data import Example
    from saccade.models.build import new
    from saccade.models.families import bert
    from saccade.tasks.base import Item
    from saccade.tasks.pretrain.masked_lm import MaskedLM
    from saccade.tasks.pretrain.packed_rows import NO_UNIT, RowUnits

    sizes = bert.Config(
        vocab=VOCAB, width=256, layers=4, heads=4, ffn_width=1024, dropout=case.dropout, attention_dropout=case.dropout,
        use_attention_dropout=case.dropout > 0,
    )  # fmt: skip
    model = new("bert", sizes, head="lm")
    model.tokenizer = _ours()
    texts = framed()
    items = []
    for row in texts:
        units = np.arange(-1, len(row) - 1, dtype=np.int32)
        units[-1] = NO_UNIT
        items.append(Item(Example({}), row, gold=RowUnits(units)))
    task = MaskedLM()
    return learner(model, task, by_length(task, items, ROWS * round(np.mean([len(row) for row in texts]))))


def masked_transformers(case: Case) -> Step:
    import transformers

    config = transformers.BertConfig(
        vocab_size=VOCAB, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024,
        hidden_dropout_prob=case.dropout, attention_probs_dropout_prob=case.dropout,
    )  # fmt: skip
    model = transformers.BertForMaskedLM._from_config(config, attn_implementation="sdpa")
    names = {
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "mask_token": "<mask>",
    }
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=_vocabulary(), **names)
    collate = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=True, mlm_probability=0.15)
    rows = [{"input_ids": row.tolist()} for row in framed()]
    return loop(model, in_any_order(rows, collate, ROWS), lambda batch: int(batch["attention_mask"].sum()))


def framed() -> list[np.ndarray]:
    """The texts, each between a begin and an end."""
    return [np.concatenate([[BEGIN], line, [END]]).astype(np.int32) for line in lines(VOCAB)]


def _vocabulary() -> Any:
    """As many words as BERT has; nothing is read with it, but masks and other words are drawn from it."""
    from tokenizers import Tokenizer, models

    special = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    words = [*special, *(f"w{i}" for i in range(VOCAB - len(special)))]
    built = Tokenizer(models.WordLevel({word: id for id, word in enumerate(words)}, unk_token="<unk>"))
    built.add_special_tokens(special)
    return built


def _ours() -> Any:
    import json

    from saccade.text.backends.hf_tokenizers import HFBackend
    from saccade.text.tokenizer import Tokenizer

    roles = {"pad": 0, "unk": 1, "bos": BEGIN, "eos": END, "mask": MASK}
    return Tokenizer(HFBackend(json.loads(_vocabulary().to_str())), roles)
