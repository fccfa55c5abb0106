"""Tiny models of `transformers` with random weights, one for each architecture, and inputs for them."""

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn

VOCAB, LENGTH = 40, 11
WIDTHS = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 20}
GROUPED = {**WIDTHS, "vocab_size": VOCAB, "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 64}
BART = {
    "vocab_size": VOCAB, "d_model": 24, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "forced_eos_token_id": None,
}  # fmt: skip
Inputs = dict[str, Tensor]


def _ids(rows: int = 2, length: int = LENGTH, seed: int = 0) -> Tensor:
    return torch.randint(3, VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))


def text(length: int = LENGTH) -> Inputs:
    """Two texts, the second of which is shorter and padded."""
    mask = torch.ones(2, length, dtype=torch.long)
    mask[1, length - 3 :] = 0
    return {"input_ids": _ids(length=length), "attention_mask": mask}


def pair() -> Inputs:
    """Two source texts for an encoder, and the decoder input, without padding."""
    return text() | {"decoder_input_ids": _ids(length=5, seed=1)}


def image(size: int = 12) -> Inputs:
    return {"pixel_values": torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))}


def sound() -> Inputs:
    features = torch.randn(2, 8, 32, generator=torch.Generator().manual_seed(0))
    return {"input_features": features, "decoder_input_ids": _ids(length=5)}


def wave() -> Inputs:
    return {"input_values": torch.randn(2, 400, generator=torch.Generator().manual_seed(0))}


def image_and_text() -> Inputs:
    return text(8) | image()


def _wav2vec2() -> hf.Wav2Vec2Config:
    small = {"conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2}
    return hf.Wav2Vec2Config(
        vocab_size=VOCAB, **WIDTHS, **small, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2
    )


def _clip() -> hf.CLIPConfig:
    words = {**WIDTHS, "vocab_size": VOCAB, "max_position_embeddings": 16, "projection_dim": 8, "eos_token_id": 2}
    cells = {**WIDTHS, "num_hidden_layers": 2, "image_size": 12, "patch_size": 4, "projection_dim": 8}
    return hf.CLIPConfig(text_config=words, vision_config=cells, projection_dim=8)


ARCHITECTURES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Inputs]]] = {
    "bert": (lambda: hf.BertModel(hf.BertConfig(vocab_size=VOCAB, **WIDTHS)), text),
    "roberta": (lambda: hf.RobertaModel(hf.RobertaConfig(vocab_size=VOCAB, pad_token_id=1, **WIDTHS)), text),
    "xlm_roberta": (lambda: hf.XLMRobertaModel(hf.XLMRobertaConfig(vocab_size=VOCAB, pad_token_id=1, **WIDTHS)), text),
    "distilbert": (
        lambda: hf.DistilBertModel(hf.DistilBertConfig(vocab_size=VOCAB, dim=24, n_layers=3, n_heads=4, hidden_dim=20)),
        text,
    ),
    "electra": (lambda: hf.ElectraModel(hf.ElectraConfig(vocab_size=VOCAB, embedding_size=12, **WIDTHS)), text),
    "albert": (lambda: hf.AlbertModel(hf.AlbertConfig(vocab_size=VOCAB, embedding_size=12, **WIDTHS)), text),
    "modernbert": (
        lambda: hf.ModernBertModel(
            hf.ModernBertConfig(
                vocab_size=VOCAB,
                **WIDTHS,
                local_attention=6,
                global_attn_every_n_layers=2,
                pad_token_id=0,
                bos_token_id=1,
                eos_token_id=2,
                cls_token_id=1,
                sep_token_id=2,
            )
        ),
        text,
    ),
    "gpt2": (
        lambda: hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=VOCAB, n_embd=24, n_layer=3, n_head=4, n_positions=64)),
        text,
    ),
    "gpt_neox": (lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(vocab_size=VOCAB, **WIDTHS)), text),
    "opt": (
        lambda: hf.OPTForCausalLM(
            hf.OPTConfig(
                vocab_size=VOCAB,
                hidden_size=24,
                num_hidden_layers=3,
                num_attention_heads=4,
                ffn_dim=20,
                word_embed_proj_dim=24,
            )
        ),
        text,
    ),
    "gpt_bigcode": (
        lambda: hf.GPTBigCodeForCausalLM(
            hf.GPTBigCodeConfig(vocab_size=VOCAB, n_embd=24, n_layer=3, n_head=4, n_positions=64)
        ),
        text,
    ),
    "llama": (lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**GROUPED)), text),
    "mistral": (lambda: hf.MistralForCausalLM(hf.MistralConfig(**GROUPED, sliding_window=4)), text),
    "qwen2": (
        lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**{k: v for k, v in GROUPED.items() if k != "head_dim"})),
        text,
    ),
    "qwen3": (lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**GROUPED)), text),
    "gemma3": (
        lambda: hf.Gemma3ForCausalLM(
            hf.Gemma3TextConfig(
                **GROUPED, sliding_window=4, layer_types=["sliding_attention", "full_attention", "sliding_attention"]
            )
        ),
        text,
    ),
    "phi3": (
        lambda: hf.Phi3ForCausalLM(
            hf.Phi3Config(**{k: v for k, v in GROUPED.items() if k != "head_dim"}, pad_token_id=0)
        ),
        text,
    ),
    "t5": (
        lambda: hf.T5ForConditionalGeneration(
            hf.T5Config(
                vocab_size=VOCAB,
                d_model=24,
                d_kv=6,
                d_ff=20,
                num_layers=2,
                num_decoder_layers=3,
                num_heads=4,
                decoder_start_token_id=0,
                relative_attention_num_buckets=8,
                relative_attention_max_distance=12,
            )
        ),
        pair,
    ),
    "bart": (lambda: hf.BartForConditionalGeneration(hf.BartConfig(**BART)), pair),
    "marian": (lambda: hf.MarianMTModel(hf.MarianConfig(**BART)), pair),
    "whisper": (
        lambda: hf.WhisperForConditionalGeneration(
            hf.WhisperConfig(**BART, num_mel_bins=8, max_source_positions=16, max_target_positions=20)
        ),
        sound,
    ),
    "vit": (lambda: hf.ViTModel(hf.ViTConfig(**WIDTHS, image_size=12, patch_size=4)), image),
    "wav2vec2": (lambda: hf.Wav2Vec2Model(_wav2vec2()), wave),
    "clip": (lambda: hf.CLIPModel(_clip()), image_and_text),
}


def make_model(architecture: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    """A model with random weights, large enough that attention is far from uniform."""
    torch.manual_seed(3)
    model = ARCHITECTURES[architecture][0]()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2)
            elif "bias" in name:
                parameter.normal_(std=0.1)
    return model.to(dtype).eval()


def make_inputs(architecture: str, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    inputs = ARCHITECTURES[architecture][1]()
    return {name: x.to(dtype) if x.is_floating_point() else x for name, x in inputs.items()}
