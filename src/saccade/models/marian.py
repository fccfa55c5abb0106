"""Marian as Hugging Face lays it out: BART's layers on fixed sinusoidal positions, with words scaled and not normalised
(Junczys-Dowmunt et al. 2018, arXiv 1804.00344; the models of OPUS-MT)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.attention import CAUSAL, FULL
from saccade.models import bart
from saccade.models.capabilities import ENCODER_DECODER
from saccade.models.encoder_decoder import EncoderDecoder, ShiftedWordHead
from saccade.models.family import Family, Spares
from saccade.models.fresh import spread
from saccade.models.weights import Names
from saccade.parts.dropout import Dropout
from saccade.parts.embed import Words
from saccade.parts.position import Sinusoidal
from saccade.parts.stack import Stack


@dataclass(frozen=True)
class Config(bart.Config):
    vocab: int = 58101
    width: int = 512
    layers: int = 6
    decoder_layers: int = 6
    heads: int = 8
    decoder_heads: int = 8
    inner: int = 2048
    decoder_inner: int = 2048
    length: int = 512
    activation: str = "silu"
    scaled: bool = True
    begin: int = 58100  # the token that also pads
    target_vocab: int | None = None  # as large as the source's, unless said otherwise
    shared: bool = True  # one table of words for both sides


class Marian(EncoderDecoder):
    """Words are scaled and placed by sines and cosines, all sines first; a target begins with the padding token."""

    def __init__(self, config: Config):
        words = Words(config.vocab, config.width, scaled=config.scaled)
        vocab = config.vocab if config.shared else config.target_vocab or config.vocab
        target = None if config.shared else Words(vocab, config.width, scaled=config.scaled)

        def position() -> Sinusoidal:
            return Sinusoidal(config.width, halves=True)

        super().__init__(
            words,
            Stack(bart.encoder_layers(config), FULL, position(), enter=Dropout(config.dropout)),
            Stack(bart.decoder_layers(config), CAUSAL, position(), enter=Dropout(config.dropout)),
            ShiftedWordHead(config.width, vocab, tied=(target or words).vectors),
            begin=config.begin,
            target_words=target,
        )


APART: Names = {
    "encoder.embed_tokens": "words.vectors",
    "decoder.embed_tokens": "target_words.vectors",
    "lm_head": "target_words.vectors",
}


def places(config: Config) -> Spares:
    """The published form stores what `Sinusoidal` computes, once for each side."""

    def table() -> Tensor:
        return Sinusoidal(config.width, halves=True).table(torch.arange(config.length)[None], torch.float32)[0]

    return {f"{side}.embed_positions.weight": table for side in ("encoder", "decoder")}


UNSAID = {  # what a published config means when it says nothing: the sizes of a larger model than most
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
    said="encoder and decoder: sinusoidal positions, norm after, for translation",
    config=Config,
    build=Marian,
    capabilities=lambda config: ENCODER_DECODER,
    names=lambda config: {**(bart.WORDS if config.shared else APART), **bart.LAYERS},
    keys=bart.KEYS | {"decoder_vocab_size": "target_vocab", "share_encoder_decoder_embeddings": "shared"},
    fixed=bart.FIXED | {"normalize_embedding": False, "static_position_embeddings": True},
    adapt=lambda raw: UNSAID | raw,
    # unless a tokenizer pads otherwise
    also=lambda config: {"pad_token_id": config.begin, "forced_eos_token_id": None},
    prefix="model.",
    beside=("final_logits_bias", r"lm_head\.weight"),
    optional=("head.shift",),
    ignored=(r"(encoder|decoder)\.embed_positions\.weight",),  # the published table is what `Sinusoidal` computes
    architecture="MarianMTModel",
    spare=places,
    fresh=spread,
)
