"""Marian's distilled student models (Bergamot, Firefox): a transformer encoder, and a small decoder with an SSRU instead of
self-attention, for fast translation on CPUs (Kim et al. 2019, aclanthology.org/D19-5632).
"""

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from saccade.attention import CAUSAL, FULL
from saccade.errors import ModelError
from saccade.models.capabilities import ENCODER_DECODER
from saccade.models.check_weights import check_fields
from saccade.models.encoder_decoder import EncoderDecoder
from saccade.models.family import Family
from saccade.models.foreign.marian_bin import Settings, read_marian_bin
from saccade.models.weight_map import AddedAxis, Transpose, WeightMap, to_ours
from saccade.parts.dropout import Dropout
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.feedforward import FeedForward
from saccade.parts.heads import LMHead
from saccade.parts.layer import Layer, make_layer
from saccade.parts.multihead_attention import Attention
from saccade.parts.position import Sinusoidal
from saccade.parts.ssru import SSRU
from saccade.parts.stack import Stack

make_norm = partial(nn.LayerNorm, eps=1e-9)


@dataclass(frozen=True)
class Config:
    vocab: int = 32000  # Vocabulary size: number of token ids.
    width: int = 256  # Model width (hidden size) of every layer.
    layers: int = 6  # Number of encoder layers (transformer blocks).
    decoder_layers: int = 2  # Number of decoder layers (SSRU blocks).
    heads: int = 8  # Number of attention heads per layer.
    ffn_width: int = 1536  # Width of the feed-forward hidden layer.
    activation: str = "relu"  # Activation function of the feed-forward layers.
    decoder_start_id: int = 0  # Id of the end-of-sequence token, which also starts the decoder.
    dropout: float = 0.1  # Dropout rate in training; 0 disables it.


class TargetEmbedding(TokenEmbedding):
    """The shared token embedding for the decoder input: the token that starts the decoder gets a zero vector."""

    vectors: nn.Embedding
    scale: float
    decoder_start_id: int

    def __init__(self, words: TokenEmbedding, decoder_start_id: int):
        nn.Module.__init__(self)  # skips TokenEmbedding.__init__, which would make another matrix
        self.vectors, self.scale, self.decoder_start_id = words.vectors, words.scale, decoder_start_id

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens).masked_fill((tokens == self.decoder_start_id).unsqueeze(-1), 0.0)


class MarianSSRU(EncoderDecoder):
    """One embedding matrix for source, target and output; post-norm layers."""

    def __init__(self, config: Config):
        words = TokenEmbedding(config.vocab, config.width, scale_embeddings=True)

        def stack(layers: list[Layer], pattern) -> Stack:
            return Stack(layers, pattern, make_position(config.width), enter=Dropout(config.dropout))

        super().__init__(
            words,
            stack([_make_encoder_layer(config) for _ in range(config.layers)], FULL),
            stack([_make_decoder_layer(config) for _ in range(config.decoder_layers)], CAUSAL),
            LMHead(config.width, config.vocab, tied_embedding=words.vectors, bias=True),
            decoder_start_id=config.decoder_start_id,
            target_words=TargetEmbedding(words, config.decoder_start_id),
        )


def make_position(width: int) -> Sinusoidal:
    """Marian's sinusoidal positions: all sines first, and a lowest frequency of exactly 1/10,000."""
    if width < 4:
        raise ModelError(f"Marian's sinusoidal positions need a width of 4 or more; got {width}.")
    return Sinusoidal(width, base=10_000.0 ** (width / (width - 2)), sines_first=True)


def _make_encoder_layer(config: Config) -> Layer:
    """Self-attention and feed-forward."""
    attention = Attention(config.width, config.heads)
    feedforward = FeedForward(config.width, config.ffn_width, config.activation)
    return make_layer(
        attention, feedforward, width=config.width, norm_first=False, norm=make_norm, dropout=config.dropout
    )


def _make_decoder_layer(config: Config) -> Layer:
    """SSRU, cross-attention and feed-forward."""
    cross, width = Attention(config.width, config.heads), config.width
    feedforward = FeedForward(width, config.ffn_width, config.activation)
    return make_layer(
        SSRU(width), feedforward, cross, width=width, norm_first=False, norm=make_norm, dropout=config.dropout
    )


def read_marian_ssru(path: str | Path) -> tuple[Config, dict[str, Tensor]]:
    """Read config and weights, renamed to saccade's names, from Marian's .bin file; raises ModelError for other architectures."""
    settings, tensors = read_marian_bin(path)
    config = _parse_config(settings, path)
    if config.layers + config.decoder_layers > len(tensors):
        raise ModelError(
            f"{path}: {len(tensors)} tensors are too few for {config.layers} + {config.decoder_layers} layers."
        )
    check_fields(config, f"{path}: ")  # before any layer is built, which takes time
    # the quantization scales of activations are not weights; Marian counts layers from 1
    weights = {_count_from_zero(name): x for name, x in tensors.items() if not name.endswith("_QuantMultA")}
    mapped = to_ours(weights, WEIGHT_MAP)
    try:
        with torch.device("meta"):
            expected = {name: tuple(p.shape) for name, p in MarianSSRU(config).named_parameters()}
    except RuntimeError as error:  # sizes that overflow in torch
        raise ModelError(f"{path}: no model can be built with {config}.") from error
    missing = [name for name in expected if name not in mapped.tensors]
    unexpected = mapped.unmapped + [name for name in mapped.tensors if name not in expected]
    if missing or unexpected:
        raise ModelError(
            f"{path}: not a Marian SSRU student of this size. Missing weights: {', '.join(missing[:6]) or 'none'}; "
            f"unexpected weights: {', '.join(unexpected[:6]) or 'none'}. Check the architecture and the number of layers."
        )
    for name, shape in expected.items():
        actual = tuple(mapped.tensors[name].shape)
        if actual != shape:
            raise ModelError(f"{path}: {name} has shape {actual}; its settings need {shape}.")
    return config, mapped.tensors


def _parse_config(settings: Settings, path: str | Path) -> Config:
    for key, values in ACCEPTED_VALUES.items():
        if key in settings and settings[key] not in values:
            raise ModelError(f"{path}: {key} = {settings[key]!r} is not supported; only {values[0]!r} is.")
    vocabs = settings.get("dim-vocabs", "").split()
    if len(set(vocabs)) != 1:
        raise ModelError(f"{path}: a shared vocabulary is needed; dim-vocabs has {', '.join(vocabs)}.")
    numbers = {ours: settings.get(theirs, "") for theirs, ours in CONFIG_KEYS.items()} | {"vocab": vocabs[0]}
    for name, value in numbers.items():
        if not re.fullmatch(r"[1-9][0-9]{0,8}", value):
            raise ModelError(f"{path}: {name} is {value[:40]!r} in the settings; a positive number is needed.")
    activation = ACTIVATION_ALIASES[settings.get("transformer-ffn-activation", "relu")]
    return Config(**{name: int(value) for name, value in numbers.items()}, activation=activation)


def _count_from_zero(name: str) -> str:
    return re.sub(r"(?<=_l)[1-9][0-9]{0,8}(?=_)", lambda match: str(int(match[0]) - 1), name, count=1)


CONFIG_KEYS = {
    "dim-emb": "width",
    "enc-depth": "layers",
    "dec-depth": "decoder_layers",
    "transformer-heads": "heads",
    "transformer-dim-ffn": "ffn_width",
}
ACTIVATION_ALIASES = {"relu": "relu", "swish": "silu"}  # Marian's gelu is a different formula
ACCEPTED_VALUES: dict[str, tuple[str, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("rnn",),
    "dec-cell": ("ssru",),
    "transformer-preprocess": ("",),
    "transformer-postprocess": ("dan",),  # dropout, add, norm
    "transformer-postprocess-emb": ("d", ""),
    "transformer-postprocess-top": ("",),
    "transformer-ffn-activation": tuple(ACTIVATION_ALIASES),
    "transformer-ffn-depth": ("2",),
    "transformer-decoder-dim-ffn": ("0",),
    "transformer-decoder-ffn-depth": ("0",),
    "transformer-no-projection": ("false",),
    "transformer-rnn-projection": ("false",),
    "transformer-tied-layers": ("",),
    "transformer-train-position-embeddings": ("false",),
    "tied-embeddings-all": ("true",),
    "output-omit-bias": ("false",),
    "lemma-dim-emb": ("0",),
    "right-left": ("false",),
    "ulr": ("false",),
}


def _norm_weight_map(theirs: str, ours: str) -> WeightMap:
    return {f"{theirs}_ln_scale": AddedAxis(f"{ours}.norm.weight"), f"{theirs}_ln_bias": AddedAxis(f"{ours}.norm.bias")}


def _dense_weight_map(theirs: str, ours: str, **projections: str) -> WeightMap:
    """Matrices, stored as (in, out), and biases, stored as one row."""
    weights: WeightMap = {f"{theirs}_W{a}": Transpose(f"{ours}.branch.{b}.weight") for a, b in projections.items()}
    biases: WeightMap = {f"{theirs}_b{a}": AddedAxis(f"{ours}.branch.{b}.bias") for a, b in projections.items()}
    return {**weights, **biases}


def _attention_weight_map(theirs: str, ours: str) -> WeightMap:
    return {
        **_dense_weight_map(theirs, ours, q="query", k="key", v="value", o="output"),
        **_norm_weight_map(f"{theirs}_Wo", ours),
    }


def _feedforward_weight_map(theirs: str, ours: str) -> WeightMap:
    return {**_dense_weight_map(theirs, ours, **{"1": "up", "2": "down"}), **_norm_weight_map(f"{theirs}_ffn", ours)}


WEIGHT_MAP: WeightMap = {
    "Wemb": "words.vectors.weight",
    **_attention_weight_map("encoder_l{}_self", "encoder.layers.{}.attention"),
    **_feedforward_weight_map("encoder_l{}_ffn", "encoder.layers.{}.feedforward"),
    "decoder_l{}_rnn_W": Transpose("decoder.layers.{}.attention.branch.write.weight"),
    **_dense_weight_map("decoder_l{}_rnn", "decoder.layers.{}.attention", f="forget"),
    **_norm_weight_map("decoder_l{}_rnn_ffn", "decoder.layers.{}.attention"),
    **_attention_weight_map("decoder_l{}_context", "decoder.layers.{}.across"),
    **_feedforward_weight_map("decoder_l{}_ffn", "decoder.layers.{}.feedforward"),
    "decoder_ff_logit_out_b": AddedAxis("head.score.bias"),
}
FAMILY = Family(
    name="marian_ssru",
    description="encoder and recurrent (SSRU) decoder with cross-attention; imported from Marian's .bin (Bergamot, Firefox)",
    config_class=Config,
    build=MarianSSRU,
    capabilities=lambda config: ENCODER_DECODER,
    import_only=True,
)
