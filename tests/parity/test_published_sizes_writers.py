"""Writers at their published sizes, on the meta device: every name has a place, every shape fits, and the counts are known."""

import re

import pytest
import torch
import transformers

from saccade.models import bart, llama, marian, relatives, t5
from saccade.models.weights import to_ours


def both_sides(**sizes):
    return {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}


LLAMA_7B = {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32}
LLAMA_7B |= {"num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 2048}
LLAMA_32_1B = {"vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
LLAMA_32_1B |= {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "tie_word_embeddings": True}
LLAMA_32_1B |= {"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0}
LLAMA_32_1B |= {
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
}
LLAMA_3_8B = {"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32}
LLAMA_3_8B |= {"num_attention_heads": 32, "num_key_value_heads": 8, "rope_theta": 500000.0, "rms_norm_eps": 1e-5}
MISTRAL_7B = LLAMA_3_8B | {"vocab_size": 32768, "rope_theta": 1e6, "sliding_window": None}
T5_SMALL = {"vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
T5_BASE = T5_SMALL | {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
T5_11_SMALL = T5_SMALL | {"d_ff": 1024, "num_layers": 8, "num_decoder_layers": 8, "num_heads": 6}
T5_11_SMALL |= {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
BART_BASE = {"vocab_size": 50265, "d_model": 768, "max_position_embeddings": 1024}
BART_BASE |= both_sides(layers=6, ffn_dim=3072, attention_heads=12)
BART_LARGE = {"vocab_size": 50265, "d_model": 1024} | both_sides(layers=12, ffn_dim=4096, attention_heads=16)
OPUS_MT = {"vocab_size": 58101, "d_model": 512, "max_position_embeddings": 512, "activation_function": "swish"}
OPUS_MT |= {"scale_embedding": True} | both_sides(layers=6, ffn_dim=2048, attention_heads=8)

HF = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
    "t5": (transformers.T5Config, transformers.T5ForConditionalGeneration),
    "bart": (transformers.BartConfig, transformers.BartForConditionalGeneration),
    "marian": (transformers.MarianConfig, transformers.MarianMTModel),
}
PUBLISHED = [  # the counts as the model cards and papers round them, to the last parameter
    ("llama-7b", llama.FAMILY, LLAMA_7B, 6_738_415_616),
    ("llama-3-8b", llama.FAMILY, LLAMA_3_8B, 8_030_261_248),
    ("llama-3.2-1b", llama.FAMILY, LLAMA_32_1B, 1_235_814_400),
    ("mistral-7b-v0.3", relatives.MISTRAL, MISTRAL_7B, 7_248_023_552),
    ("t5-small", t5.FAMILY, T5_SMALL, 60_506_624),
    ("t5-base", t5.FAMILY, T5_BASE, 222_903_552),
    ("t5-v1.1-small", t5.FAMILY, T5_11_SMALL, 76_961_152),
    ("bart-base", bart.FAMILY, BART_BASE, 139_420_416),
    ("bart-large", bart.FAMILY, BART_LARGE, 406_291_456),
    # 74,410,496 with the package's two tables of sines, 512 x 512 each, which are computed here
    ("opus-mt-en-de", marian.FAMILY, OPUS_MT, 74_410_496 - 2 * 512 * 512),
]


@pytest.mark.parametrize(("family", "numbers", "count"), [row[1:] for row in PUBLISHED], ids=[r[0] for r in PUBLISHED])
def test_every_name_and_every_shape(family, numbers, count):
    make_config, make_model = HF[family.name]
    with torch.device("meta"):
        raw = make_config(**numbers)
        theirs = make_model(raw)
        if family.name == "t5" and not raw.scale_decoder_outputs:
            theirs.lm_head.weight = torch.nn.Parameter(torch.empty_like(theirs.lm_head.weight))
        config = family.read(raw.to_dict())
        ours = family.build(config)
    assert sum(p.numel() for p in ours.parameters()) == count
    published = {name.removeprefix(family.prefix): tensor for name, tensor in theirs.state_dict().items()}
    read = to_ours(published, family.names(config))
    assert not [name for name in read.left if not any(re.fullmatch(p, name) for p in family.ignored)]
    own = ours.state_dict()
    assert {name: x.shape for name, x in read.found.items()} == {name: own[name].shape for name in read.found}
    found = {id(p) for name, p in ours.named_parameters(remove_duplicate=False) if name in read.found}
    assert all(id(p) in found for p in ours.parameters())
    assert {n for n, _ in ours.named_buffers()} <= read.found.keys()
    for field in ("vocab", "width", "layers", "heads", "inner"):  # a published file says no more than its numbers
        assert getattr(family.read(numbers), field) == getattr(config, field)
