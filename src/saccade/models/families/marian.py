"""Marian in its Hugging Face form: BART's layers with sinusoidal positions and scaled embeddings, without embedding LayerNorm
(Junczys-Dowmunt et al. 2018, arXiv 1804.00344; the models of OPUS-MT)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.attention import CAUSAL, FULL
from saccade.models.capabilities import ENCODER_DECODER
from saccade.models.encoder_decoder import BiasedLMHead, EncoderDecoder
from saccade.models.families import bart
from saccade.models.family import ExtraTensors, Family
from saccade.models.init import init_normal
from saccade.models.weight_map import WeightMap
from saccade.parts.dropout import Dropout
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.position import Sinusoidal
from saccade.parts.stack import Stack


@dataclass(frozen=True)
class Config(bart.Config):
    vocab: int = 58101  # Vocabulary size: number of token ids.
    width: int = 512  # Model width (hidden size) of every layer.
    layers: int = 6  # Number of encoder layers (transformer blocks).
    decoder_layers: int = 6  # Number of decoder layers (transformer blocks).
    heads: int = 8  # Number of attention heads per encoder layer.
    decoder_heads: int = 8  # Number of attention heads per decoder layer.
    ffn_width: int = 2048  # Width of the feed-forward hidden layer in the encoder.
    decoder_ffn_width: int = 2048  # Width of the feed-forward hidden layer in the decoder.
    max_positions: int = 512  # Maximum sequence length in tokens.
    activation: str = "silu"  # Activation function of the feed-forward layers.
    scale_embeddings: bool = True  # Scale token embeddings by the square root of the width.
    decoder_start_id: int = 58100  # Id of the token that starts the decoder; it is also the padding token.
    target_vocab: int | None = None  # Target vocabulary size; default: as large as the source vocabulary.
    share_embeddings: bool = True  # Share one token embedding between source and target.


class Marian(EncoderDecoder):
    """Scaled embeddings and sinusoidal positions, all sines first; the padding token starts the decoder."""

    def __init__(self, config: Config):
        words = TokenEmbedding(config.vocab, config.width, scale_embeddings=config.scale_embeddings)
        vocab = config.vocab if config.share_embeddings else config.target_vocab or config.vocab
        target = None
        if not config.share_embeddings:
            target = TokenEmbedding(vocab, config.width, scale_embeddings=config.scale_embeddings)

        def position() -> Sinusoidal:
            return Sinusoidal(config.width, sines_first=True)

        super().__init__(
            words,
            Stack(bart.encoder_layers(config), FULL, position(), enter=Dropout(config.dropout)),
            Stack(bart.decoder_layers(config), CAUSAL, position(), enter=Dropout(config.dropout)),
            BiasedLMHead(config.width, vocab, tied_embedding=(target or words).vectors),
            decoder_start_id=config.decoder_start_id,
            target_words=target,
        )


SEPARATE_EMBEDDING_WEIGHT_MAP: WeightMap = {
    "encoder.embed_tokens": "words.vectors",
    "decoder.embed_tokens": "target_words.vectors",
    "lm_head": "target_words.vectors",
}


def position_tables(config: Config) -> ExtraTensors:
    """The sinusoidal position tables that the published form stores for encoder and decoder."""

    def table() -> Tensor:
        return Sinusoidal(config.width, sines_first=True).encode(
            torch.arange(config.max_positions)[None], torch.float32
        )[0]

    return {f"{side}.embed_positions.weight": table for side in ("encoder", "decoder")}


PUBLISHED_DEFAULTS = {  # of keys that are missing in a published config
    "d_model": 1024,
    "encoder_layers": 12,
    "decoder_layers": 12,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096,
    "max_position_embeddings": 1024,
    "activation_function": "gelu",
    "scale_embedding": False,
}
FAMILY = Family(
    name="marian",
    description="encoder-decoder for translation: sinusoidal positions, post-norm",
    config_class=Config,
    build=Marian,
    capabilities=lambda config: ENCODER_DECODER,
    weight_map=lambda config: {
        **(bart.SHARED_EMBEDDING_WEIGHT_MAP if config.share_embeddings else SEPARATE_EMBEDDING_WEIGHT_MAP),
        **bart.LAYER_WEIGHT_MAP,
    },
    config_keys=bart.CONFIG_KEYS
    | {"decoder_vocab_size": "target_vocab", "share_encoder_decoder_embeddings": "share_embeddings"},
    required_values=bart.REQUIRED_VALUES | {"normalize_embedding": False, "static_position_embeddings": True},
    normalize_config=lambda raw: PUBLISHED_DEFAULTS | raw,
    # overridden by the padding token of a tokenizer
    derived_keys=lambda config: {"pad_token_id": config.decoder_start_id, "forced_eos_token_id": None},
    prefix="model.",
    unprefixed=("final_logits_bias", r"lm_head\.weight"),
    optional_tensors=("head.shift",),
    ignored_tensors=(r"(encoder|decoder)\.embed_positions\.weight",),  # `Sinusoidal` computes them
    architecture="MarianMTModel",
    extra_tensors=position_tables,
    init_weights=init_normal,
)
