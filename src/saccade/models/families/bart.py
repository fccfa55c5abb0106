"""BART: an encoder-decoder with learned positions and post-norm (Lewis et al. 2020, arXiv 1910.13461)."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from saccade.attention import CAUSAL, FULL, ScaledDot
from saccade.models.capabilities import ENCODER_DECODER
from saccade.models.encoder_decoder import BiasedLMHead, EncoderDecoder
from saccade.models.family import Family
from saccade.models.init import init_normal
from saccade.models.weight_map import AddedAxis, WeightMap
from saccade.parts.dropout import Dropout
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.feedforward import FeedForward
from saccade.parts.layer import Layer, make_layer
from saccade.parts.multihead_attention import Attention
from saccade.parts.position import Learned
from saccade.parts.stack import Stack


@dataclass(frozen=True)
class Config:
    vocab: int = 50265  # Vocabulary size: number of token ids.
    width: int = 1024  # Model width (hidden size) of every layer.
    layers: int = 12  # Number of encoder layers (transformer blocks).
    decoder_layers: int = 12  # Number of decoder layers (transformer blocks).
    heads: int = 16  # Number of attention heads per encoder layer.
    decoder_heads: int = 16  # Number of attention heads per decoder layer.
    ffn_width: int = 4096  # Width of the feed-forward hidden layer in the encoder.
    decoder_ffn_width: int = 4096  # Width of the feed-forward hidden layer in the decoder.
    max_positions: int = 1024  # Maximum sequence length in tokens.
    activation: str = "gelu"  # Activation function of the feed-forward layers.
    scale_embeddings: bool = False  # Scale token embeddings by the square root of the width.
    decoder_start_id: int = 2  # Id of the token that starts the decoder.
    dropout: float = 0.1  # Dropout rate in training; 0 disables it.
    ffn_dropout: float = 0.0  # Dropout rate inside the feed-forward layers; 0 disables it.
    attention_dropout: float = 0.0  # Dropout rate of attention weights; needs `use_attention_dropout`.
    use_attention_dropout: bool = False  # Apply attention dropout in training; off: attention weights get no dropout.


class Bart(EncoderDecoder):
    """One embedding matrix for encoder, decoder and output; LayerNorm and dropout follow the embeddings."""

    def __init__(self, config: Config):
        words = TokenEmbedding(config.vocab, config.width, scale_embeddings=config.scale_embeddings)

        def position() -> Learned:
            return Learned(config.max_positions, config.width, offset=2)

        def enter() -> nn.Module:
            return nn.Sequential(nn.LayerNorm(config.width), Dropout(config.dropout))

        super().__init__(
            words,
            Stack(encoder_layers(config), FULL, position(), enter=enter()),
            Stack(decoder_layers(config), CAUSAL, position(), enter=enter()),
            BiasedLMHead(config.width, config.vocab, tied_embedding=words.vectors),
            decoder_start_id=config.decoder_start_id,
        )


def encoder_layers(config: Config) -> list[Layer]:
    """Post-norm layers of self-attention and feed-forward."""

    def make_encoder_layer() -> Layer:
        feedforward = FeedForward(config.width, config.ffn_width, config.activation, dropout=config.ffn_dropout)
        attention = _make_attention(config, config.heads)
        return make_layer(attention, feedforward, width=config.width, norm_first=False, dropout=config.dropout)

    return [make_encoder_layer() for _ in range(config.layers)]


def decoder_layers(config: Config) -> list[Layer]:
    """Post-norm layers of causal self-attention, cross-attention and feed-forward."""

    def make_decoder_layer() -> Layer:
        feedforward = FeedForward(config.width, config.decoder_ffn_width, config.activation, dropout=config.ffn_dropout)
        attention, cross = _make_attention(config, config.decoder_heads), _make_attention(config, config.decoder_heads)
        return make_layer(attention, feedforward, cross, width=config.width, norm_first=False, dropout=config.dropout)

    return [make_decoder_layer() for _ in range(config.decoder_layers)]


def _make_attention(config: Config, heads: int) -> Attention:
    drop = config.attention_dropout if config.use_attention_dropout else 0.0
    return Attention(config.width, heads, ScaledDot(dropout=drop))


SHARED_EMBEDDING_WEIGHT_MAP: WeightMap = {
    "shared": "words.vectors",
    "encoder.embed_tokens": "words.vectors",
    "decoder.embed_tokens": "words.vectors",
    "lm_head": "words.vectors",
}
INPUT_WEIGHT_MAP: WeightMap = {
    "encoder.embed_positions": "encoder.position.vectors",
    "decoder.embed_positions": "decoder.position.vectors",
    "encoder.layernorm_embedding": "encoder.enter.0",
    "decoder.layernorm_embedding": "decoder.enter.0",
}
LAYER_WEIGHT_MAP: WeightMap = {
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
    "final_logits_bias": AddedAxis("head.shift"),
}
CONFIG_KEYS = {
    "vocab_size": "vocab",
    "d_model": "width",
    "encoder_layers": "layers",
    "decoder_layers": "decoder_layers",
    "encoder_attention_heads": "heads",
    "decoder_attention_heads": "decoder_heads",
    "encoder_ffn_dim": "ffn_width",
    "decoder_ffn_dim": "decoder_ffn_width",
    "max_position_embeddings": "max_positions",
    "activation_function": "activation",
    "scale_embedding": "scale_embeddings",
    "decoder_start_token_id": "decoder_start_id",
    "dropout": "dropout",
    "activation_dropout": "ffn_dropout",
    "attention_dropout": "attention_dropout",
}
REQUIRED_VALUES: dict[str, Any] = {
    "is_encoder_decoder": True,
    "tie_word_embeddings": True,
    "normalize_before": False,
    "add_final_layer_norm": False,
    "add_bias_logits": False,
}
FAMILY = Family(
    name="bart",
    description="encoder-decoder: learned positions, post-norm",
    config_class=Config,
    build=Bart,
    capabilities=lambda config: ENCODER_DECODER,
    weight_map=lambda config: {**SHARED_EMBEDDING_WEIGHT_MAP, **INPUT_WEIGHT_MAP, **LAYER_WEIGHT_MAP},
    config_keys=CONFIG_KEYS,
    required_values=REQUIRED_VALUES | {"normalize_embedding": True, "static_position_embeddings": False},
    derived_keys=lambda config: {"forced_eos_token_id": None},  # the default of the published class is 2
    prefix="model.",
    unprefixed=("final_logits_bias", r"lm_head\.weight"),
    optional_tensors=("head.shift",),
    ignored_tensors=(r"(encoder|decoder)\.version",),
    architecture="BartForConditionalGeneration",
    init_weights=init_normal,
)
