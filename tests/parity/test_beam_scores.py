"""Beam search against that of the `transformers` package: the same texts with the same scores, from the same weights."""

import pytest
import torch
from torch.testing import assert_close

from saccade.data import Batch, Text
from saccade.decoding import StoppingCriteria
from saccade.decoding.beam import BeamConfig, beam_search
from saccade.decoding.logits_processors import MinNewTokens, NoRepeatNgram, RepetitionPenalty
from saccade.models.families import bart, gpt2, marian, t5
from support.parity import convert_model

VOCAB, STOP, PAD = 53, 2, 0
ROWS = [[7, 41, 8, 30, 9], [12, 5], [33, 34, 51]]


def hf_gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_embd=12, n_layer=2, n_head=3, n_positions=32))


def hf_t5():
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 12, "d_kv": 4, "d_ff": 17, "num_layers": 2, "num_heads": 3, "relative_attention_num_buckets": 8}
    return T5ForConditionalGeneration(T5Config(vocab_size=VOCAB, **sizes, decoder_start_token_id=PAD))


def hf_pair(kind):
    from transformers import BartConfig, BartForConditionalGeneration, MarianConfig, MarianMTModel

    config, model = {
        "bart": (BartConfig, BartForConditionalGeneration),
        "marian": (MarianConfig, MarianMTModel),
    }[kind]
    sizes = {"d_model": 12, "encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 32}
    heads = {"encoder_attention_heads": 3, "decoder_attention_heads": 3, "encoder_ffn_dim": 17, "decoder_ffn_dim": 17}
    tokens = {"pad_token_id": PAD, "eos_token_id": STOP, "decoder_start_token_id": STOP, "forced_eos_token_id": None}
    return model(config(vocab_size=VOCAB, **sizes, **heads, **tokens))


FAMILIES = {
    "gpt2": (gpt2.FAMILY, hf_gpt2),
    "t5": (t5.FAMILY, hf_t5),
    "bart": (bart.FAMILY, lambda: hf_pair("bart")),
    "marian": (marian.FAMILY, lambda: hf_pair("marian")),
}
METHODS = {  # ours and theirs
    "plain": (BeamConfig(4), {}, ()),
    "short": (BeamConfig(5, 0.0), {"length_penalty": 0.0}, ()),
    "long": (BeamConfig(3, 2.0), {"length_penalty": 2.0}, ()),
    "first": (BeamConfig(4, early_stopping="first"), {"early_stopping": True}, ()),
    "sure": (BeamConfig(4, early_stopping="exact"), {"early_stopping": "never"}, ()),
    "rules": (
        BeamConfig(4),
        {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "min_new_tokens": 4},
        (NoRepeatNgram(2), RepetitionPenalty(1.3), MinNewTokens(4, (STOP,))),
    ),
}


def pair(name, seed):
    family, make = FAMILIES[name]
    torch.manual_seed(seed)
    theirs = make().double().eval()
    for p in theirs.parameters():
        if p.requires_grad:  # a fixed table of positions is not ours to change
            torch.nn.init.normal_(p, std=0.4)
    return convert_model(family, theirs), theirs


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", FAMILIES)
def test_texts_and_scores(name, method):
    beams, options, rules = METHODS[method]
    ours, theirs = pair(name, seed=3)
    text = Text.pad(ROWS, pad_left=name == "gpt2")  # where the package wants its padding
    best = beams.beams
    given = {"max_new_tokens": 9, "num_beams": best, "num_return_sequences": best, "do_sample": False}
    marks = {"eos_token_id": STOP, "pad_token_id": PAD, "forced_eos_token_id": None, "forced_bos_token_id": None}
    wanted = theirs.generate(
        text.tokens,
        attention_mask=text.keep.long(),
        **(given | marks | options),
        output_scores=True,
        return_dict_in_generate=True,
    )
    found = beam_search(
        ours, Batch(text), StoppingCriteria(stop_ids=STOP, max_new_tokens=9, processors=rules), beams, n_best=best
    )
    front = text.tokens.size(1) if name == "gpt2" else 1
    for one, row, score in zip(
        [one for texts in found for one in texts], wanted.sequences.tolist(), wanted.sequences_scores, strict=True
    ):
        written = row[front:]
        length = written.index(STOP) if STOP in written else len(one.tokens)
        assert one.tokens == written[:length]
        assert_close(torch.tensor(one.score), score.float(), rtol=1e-4, atol=1e-4)
