"""Writers at their published sizes, on the meta device: every name has a place, every shape fits, and the counts are known."""

import re

import pytest
import torch
import transformers

from saccade.models import derived_families
from saccade.models.families import bart, gemma3, gpt_neox, llama, marian, qwen, t5
from saccade.models.weight_map import to_ours


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
MISTRAL_7B_01 = MISTRAL_7B | {"vocab_size": 32000, "rope_theta": 1e4, "sliding_window": 4096}
QWEN2_05B = {"vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24}
QWEN2_05B |= {"num_attention_heads": 14, "num_key_value_heads": 2, "rope_theta": 1e6, "tie_word_embeddings": True}
QWEN2_05B |= {"use_sliding_window": False, "sliding_window": 32768, "max_window_layers": 24}
QWEN3_06B = {"vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28}
QWEN3_06B |= {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True}
QWEN3_06B |= {"rope_theta": 1e6, "use_sliding_window": False, "sliding_window": None, "max_window_layers": 28}
PYTHIA_70M = {"vocab_size": 50304, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 6}
PYTHIA_70M |= {"num_attention_heads": 8, "rotary_pct": 0.25, "rotary_emb_base": 10000, "use_parallel_residual": True}
GEMMA3_1B = {"vocab_size": 262144, "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26}
GEMMA3_1B |= {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "query_pre_attn_scalar": 256}
GEMMA3_1B |= {"sliding_window": 512, "sliding_window_pattern": 6, "rope_theta": 1e6, "rope_local_base_freq": 1e4}
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
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    "gpt_neox": (transformers.GPTNeoXConfig, transformers.GPTNeoXForCausalLM),
    "gemma3": (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM),
    "t5": (transformers.T5Config, transformers.T5ForConditionalGeneration),
    "bart": (transformers.BartConfig, transformers.BartForConditionalGeneration),
    "marian": (transformers.MarianConfig, transformers.MarianMTModel),
}
PUBLISHED = [  # the counts as the model cards and papers round them, to the last parameter
    ("llama-7b", llama.FAMILY, LLAMA_7B, 6_738_415_616),
    ("llama-3-8b", llama.FAMILY, LLAMA_3_8B, 8_030_261_248),
    ("llama-3.2-1b", llama.FAMILY, LLAMA_32_1B, 1_235_814_400),
    ("mistral-7b-v0.3", derived_families.MISTRAL, MISTRAL_7B, 7_248_023_552),
    ("mistral-7b-v0.1", derived_families.MISTRAL, MISTRAL_7B_01, 7_241_732_096),
    ("qwen2.5-0.5b", qwen.QWEN2, QWEN2_05B, 494_032_768),
    ("qwen3-0.6b", qwen.QWEN3, QWEN3_06B, 596_049_920),
    ("pythia-70m", gpt_neox.FAMILY, PYTHIA_70M, 70_426_624),
    ("gemma-3-1b", gemma3.FAMILY, GEMMA3_1B, 999_885_952),
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
        config = family.config_from_hf(raw.to_dict())
        ours = family.build(config)
    assert sum(p.numel() for p in ours.parameters()) == count
    published = {name.removeprefix(family.prefix): tensor for name, tensor in theirs.state_dict().items()}
    read = to_ours(published, family.weight_map(config))
    assert not [name for name in read.unmapped if not any(re.fullmatch(p, name) for p in family.ignored_tensors)]
    own = ours.state_dict()
    assert {name: x.shape for name, x in read.tensors.items()} == {name: own[name].shape for name in read.tensors}
    found = {id(p) for name, p in ours.named_parameters(remove_duplicate=False) if name in read.tensors}
    assert all(id(p) in found for p in ours.parameters())
    assert {n for n, _ in ours.named_buffers()} <= read.tensors.keys()
    for field in ("vocab", "width", "layers", "heads", "ffn_width"):  # a published file says no more than its numbers
        assert getattr(family.config_from_hf(numbers), field) == getattr(config, field)
