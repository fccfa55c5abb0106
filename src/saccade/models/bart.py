"""BART: an encoder and a decoder with learned positions, norm after each branch (Lewis et al. 2020, arXiv 1910.13461)."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from saccade.attention import CAUSAL, FULL, ScaledDot
from saccade.models.capabilities import ENCODER_DECODER
from saccade.models.encoder_decoder import EncoderDecoder, ShiftedWordHead
from saccade.models.family import Family
from saccade.models.fresh import spread
from saccade.models.weights import Names, Row
from saccade.parts.dropout import Dropout
from saccade.parts.embed import Words
from saccade.parts.feedforward import FeedForward
from saccade.parts.layer import Layer, layer
from saccade.parts.multihead import Attention
from saccade.parts.position import Learned
from saccade.parts.stack import Stack


@dataclass(frozen=True)
class Config:
    vocab: int = 50265
    width: int = 1024
    layers: int = 12
    decoder_layers: int = 12
    heads: int = 16
    decoder_heads: int = 16
    inner: int = 4096
    decoder_inner: int = 4096
    length: int = 1024
    activation: str = "gelu"
    scaled: bool = False  # whether words are multiplied by √width
    begin: int = 2
    dropout: float = 0.1
    inner_dropout: float = 0.0
    weight_dropout: float = 0.0  # as published; applies when `drop_weights` asks for it
    drop_weights: bool = False


class Bart(EncoderDecoder):
    """One table of words for both sides and the output; what enters a stack is normalised and dropped."""

    def __init__(self, config: Config):
        words = Words(config.vocab, config.width, scaled=config.scaled)

        def position() -> Learned:
            return Learned(config.length, config.width, offset=2)

        def enter() -> nn.Module:
            return nn.Sequential(nn.LayerNorm(config.width), Dropout(config.dropout))

        super().__init__(
            words,
            Stack(encoder_layers(config), FULL, position(), enter=enter()),
            Stack(decoder_layers(config), CAUSAL, position(), enter=enter()),
            ShiftedWordHead(config.width, config.vocab, tied=words.vectors),
            begin=config.begin,
        )


def encoder_layers(config: Config) -> list[Layer]:
    """Look around, think; norm after each."""

    def one() -> Layer:
        think = FeedForward(config.width, config.inner, config.activation, dropout=config.inner_dropout)
        look = _attention(config, config.heads)
        return layer(look, think, width=config.width, norm_first=False, dropout=config.dropout)

    return [one() for _ in range(config.layers)]


def decoder_layers(config: Config) -> list[Layer]:
    """Look back, look across, think; norm after each."""

    def one() -> Layer:
        think = FeedForward(config.width, config.decoder_inner, config.activation, dropout=config.inner_dropout)
        back, across = _attention(config, config.decoder_heads), _attention(config, config.decoder_heads)
        return layer(back, think, across, width=config.width, norm_first=False, dropout=config.dropout)

    return [one() for _ in range(config.decoder_layers)]


def _attention(config: Config, heads: int) -> Attention:
    drop = config.weight_dropout if config.drop_weights else 0.0
    return Attention(config.width, heads, ScaledDot(dropout=drop))


WORDS: Names = {
    "shared": "words.vectors",
    "encoder.embed_tokens": "words.vectors",
    "decoder.embed_tokens": "words.vectors",
    "lm_head": "words.vectors",
}
ENDS: Names = {
    "encoder.embed_positions": "encoder.position.vectors",
    "decoder.embed_positions": "decoder.position.vectors",
    "encoder.layernorm_embedding": "encoder.enter.0",
    "decoder.layernorm_embedding": "decoder.enter.0",
}
LAYERS: Names = {
    "encoder.layers.{}.self_attn.q_proj": "encoder.layers.{}.attention.branch.query",
    "encoder.layers.{}.self_attn.k_proj": "encoder.layers.{}.attention.branch.key",
    "encoder.layers.{}.self_attn.v_proj": "encoder.layers.{}.attention.branch.value",
    "encoder.layers.{}.self_attn.out_proj": "encoder.layers.{}.attention.branch.output",
    "encoder.layers.{}.self_attn_layer_norm": "encoder.layers.{}.attention.norm",
    "encoder.layers.{}.fc1": "encoder.layers.{}.feedforward.branch.up",
    "encoder.layers.{}.fc2": "encoder.layers.{}.feedforward.branch.down",
    "encoder.layers.{}.final_layer_norm": "encoder.layers.{}.feedforward.norm",
    "decoder.layers.{}.self_attn.q_proj": "decoder.layers.{}.attention.branch.query",
    "decoder.layers.{}.self_attn.k_proj": "decoder.layers.{}.attention.branch.key",
    "decoder.layers.{}.self_attn.v_proj": "decoder.layers.{}.attention.branch.value",
    "decoder.layers.{}.self_attn.out_proj": "decoder.layers.{}.attention.branch.output",
    "decoder.layers.{}.self_attn_layer_norm": "decoder.layers.{}.attention.norm",
    "decoder.layers.{}.encoder_attn.q_proj": "decoder.layers.{}.across.branch.query",
    "decoder.layers.{}.encoder_attn.k_proj": "decoder.layers.{}.across.branch.key",
    "decoder.layers.{}.encoder_attn.v_proj": "decoder.layers.{}.across.branch.value",
    "decoder.layers.{}.encoder_attn.out_proj": "decoder.layers.{}.across.branch.output",
    "decoder.layers.{}.encoder_attn_layer_norm": "decoder.layers.{}.across.norm",
    "decoder.layers.{}.fc1": "decoder.layers.{}.feedforward.branch.up",
    "decoder.layers.{}.fc2": "decoder.layers.{}.feedforward.branch.down",
    "decoder.layers.{}.final_layer_norm": "decoder.layers.{}.feedforward.norm",
    "final_logits_bias": Row("head.shift"),
}
KEYS = {
    "vocab_size": "vocab",
    "d_model": "width",
    "encoder_layers": "layers",
    "decoder_layers": "decoder_layers",
    "encoder_attention_heads": "heads",
    "decoder_attention_heads": "decoder_heads",
    "encoder_ffn_dim": "inner",
    "decoder_ffn_dim": "decoder_inner",
    "max_position_embeddings": "length",
    "activation_function": "activation",
    "scale_embedding": "scaled",
    "decoder_start_token_id": "begin",
    "dropout": "dropout",
    "activation_dropout": "inner_dropout",
    "attention_dropout": "weight_dropout",
}
FIXED: dict[str, Any] = {
    "is_encoder_decoder": True,
    "tie_word_embeddings": True,
    "normalize_before": False,
    "add_final_layer_norm": False,
    "add_bias_logits": False,
}
FAMILY = Family(
    name="bart",
    said="encoder and decoder: learned positions, norm after",
    config=Config,
    build=Bart,
    capabilities=lambda config: ENCODER_DECODER,
    names=lambda config: {**WORDS, **ENDS, **LAYERS},
    keys=KEYS,
    fixed=FIXED | {"normalize_embedding": True, "static_position_embeddings": False},
    also=lambda config: {"forced_eos_token_id": None},  # the published class would take 2
    prefix="model.",
    beside=("final_logits_bias", r"lm_head\.weight"),
    optional=("head.shift",),
    ignored=(r"(encoder|decoder)\.version",),
    architecture="BartForConditionalGeneration",
    fresh=spread,
)
