"""T5: an encoder-decoder with a relative position bias that the layers of a stack share (Raffel et al. 2020, arXiv 1910.10683);
version 1.1 has gated feed-forward layers and untied output embeddings (Shazeer 2020)."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from saccade.attention import CAUSAL, FULL, ScaledDot, T5Bias
from saccade.models.capabilities import ENCODER_DECODER
from saccade.models.encoder_decoder import EncoderDecoder
from saccade.models.family import Family
from saccade.models.weight_map import WeightMap
from saccade.parts.dropout import Dropout
from saccade.parts.embeddings import TokenEmbedding
from saccade.parts.feedforward import FeedForward
from saccade.parts.heads import LMHead
from saccade.parts.layer import make_layer
from saccade.parts.multihead_attention import Attention, Projections
from saccade.parts.position import BiasPosition
from saccade.parts.stack import Stack


@dataclass(frozen=True)
class Config:
    vocab: int = 32128  # Vocabulary size: number of token ids.
    width: int = 512  # Model width (hidden size) of every layer.
    layers: int = 6  # Number of encoder layers (transformer blocks).
    decoder_layers: int | None = None  # Number of decoder layers; default: as many as encoder layers.
    heads: int = 8  # Number of attention heads per layer.
    head_width: int = 64  # Width of one attention head.
    ffn_width: int = 2048  # Width of the feed-forward hidden layer.
    relative_buckets: int = 32  # Number of buckets of the relative position bias.
    max_relative_distance: int = 128  # Largest distance with a bucket of its own in the relative position bias.
    activation: str = "relu"  # Activation function of the feed-forward layers.
    gated_ffn: bool = False  # Gated feed-forward layers, as in T5 1.1.
    tie_embeddings: bool = True  # Tie input and output embeddings; tied outputs are scaled by 1/√width.
    eps: float = 1e-6  # Epsilon of RMS normalization.
    dropout: float = 0.1  # Dropout rate in training; 0 disables it.
    decoder_start_id: int = 0  # Id of the token that starts the decoder.


class T5(EncoderDecoder):
    """Pre-norm layers without biases; attention scores are not scaled."""

    def __init__(self, config: Config):
        words = TokenEmbedding(config.vocab, config.width)
        if config.tie_embeddings:
            head = LMHead(config.width, config.vocab, tied_embedding=words.vectors, between=ScaleByWidth(config.width))
        else:
            head = LMHead(config.width, config.vocab)
        decoder = make_stack(config, config.decoder_layers or config.layers, is_decoder=True)
        super().__init__(
            words,
            make_stack(config, config.layers, is_decoder=False),
            decoder,
            head,
            decoder_start_id=config.decoder_start_id,
        )


class ScaleByWidth(nn.Module):
    """x/√width: keeps the logits near unit variance with tied embeddings, whose entries have unit variance."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        return x * self.width**-0.5


def make_stack(config: Config, layers: int, *, is_decoder: bool) -> Stack:
    """The encoder stack, or with `is_decoder` the decoder stack, with causal self-attention and cross-attention."""
    norm = partial(nn.RMSNorm, eps=config.eps)

    def attention() -> Attention:
        projections = Projections(head_width=config.head_width, bias=False)
        return Attention(config.width, config.heads, ScaledDot(scale=1.0), projections=projections)

    def feedforward() -> FeedForward:
        options: dict[str, Any] = {"gated": config.gated_ffn, "bias": False, "dropout": config.dropout}
        return FeedForward(config.width, config.ffn_width, config.activation, **options)

    bias = T5Bias(
        config.heads,
        buckets=config.relative_buckets,
        max_relative_distance=config.max_relative_distance,
        bidirectional=not is_decoder,
    )
    return Stack(
        [
            make_layer(
                attention(),
                feedforward(),
                attention() if is_decoder else None,
                width=config.width,
                norm=norm,
                dropout=config.dropout,
            )
            for _ in range(layers)
        ],
        CAUSAL if is_decoder else FULL,
        BiasPosition(bias),
        enter=Dropout(config.dropout),
        leave=nn.Sequential(norm(config.width), Dropout(config.dropout)),
    )


def weight_map(config: Config) -> WeightMap:
    """A published block is a list of sublayers: self-attention, cross-attention in the decoder, feed-forward."""
    mapping: dict[str, str] = {
        "shared": "words.vectors",
        "encoder.embed_tokens": "words.vectors",
        "decoder.embed_tokens": "words.vectors",
    }
    if not config.tie_embeddings:
        mapping["lm_head"] = "head.score"
    dense = {"wi_0": "gate", "wi_1": "up", "wo": "down"} if config.gated_ffn else {"wi": "up", "wo": "down"}
    for side, feedforward in (("encoder", 1), ("decoder", 2)):
        theirs, ours = f"{side}.block.{{}}.layer", f"{side}.layers.{{}}"
        mapping[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"] = f"{side}.position.tilt.table"
        attentions = [(0, "SelfAttention", "attention"), (1, "EncDecAttention", "across")][:feedforward]
        for index, published, name in attentions:
            for letter, projection in {"q": "query", "k": "key", "v": "value", "o": "output"}.items():
                mapping[f"{theirs}.{index}.{published}.{letter}"] = f"{ours}.{name}.branch.{projection}"
            mapping[f"{theirs}.{index}.layer_norm"] = f"{ours}.{name}.norm"
        for published, name in dense.items():
            mapping[f"{theirs}.{feedforward}.DenseReluDense.{published}"] = f"{ours}.feedforward.branch.{name}"
        mapping[f"{theirs}.{feedforward}.layer_norm"] = f"{ours}.feedforward.norm"
        mapping[f"{side}.final_layer_norm"] = f"{side}.leave.0"
    return mapping


DECODER_START_KEYS = ("decoder_start_token_id", "pad_token_id")  # published keys, in order of precedence


def normalize_config(raw: dict[str, Any]) -> dict[str, Any]:
    """Split `feed_forward_proj` into activation and gating; in newer files `scale_decoder_outputs` implies weight tying."""
    kind = str(raw.get("feed_forward_proj", "relu"))
    activation = kind.removeprefix("gated-")
    return raw | {
        "dense_act_fn": "gelu_new" if kind == "gated-gelu" else activation,
        "is_gated_act": kind != activation,
        "tie_word_embeddings": raw.get("scale_decoder_outputs", raw.get("tie_word_embeddings", True)),
        "decoder_start_token_id": next(
            (raw[key] for key in DECODER_START_KEYS if raw.get(key) is not None), Config.decoder_start_id
        ),
    }


def derived_keys(config: Config) -> dict[str, Any]:
    """The published name of activation and gating, in which "gated-gelu" is the tanh approximation."""
    activation = {"gelu_tanh": "gelu_new", "gelu": "gelu_python"}.get(config.activation, config.activation)
    return {
        "feed_forward_proj": f"gated-{activation}" if config.gated_ffn else activation,
        "dense_act_fn": activation,
        "decoder_start_token_id": config.decoder_start_id,
        "pad_token_id": config.decoder_start_id,  # overridden by a tokenizer
    }


def init_weights(model: nn.Module, config: Config) -> None:
    """Unit variance for embeddings, 1/fan_in for matrices; queries also divided by √head_width, since scores are unscaled."""
    for name, module in model.named_modules():
        if isinstance(module, TokenEmbedding):
            nn.init.normal_(module.vectors.weight)
        elif isinstance(module, T5Bias):
            nn.init.normal_(module.table.weight, std=config.width**-0.5)
        elif isinstance(module, nn.Linear) and not (config.tie_embeddings and name.endswith("head.score")):
            scale = config.head_width if name.endswith("query") else 1
            nn.init.normal_(module.weight, std=(module.in_features * scale) ** -0.5)


FAMILY = Family(
    name="t5",
    description="encoder-decoder: relative position bias, RMS pre-norm, text to text",
    config_class=Config,
    build=T5,
    capabilities=lambda config: ENCODER_DECODER,
    weight_map=weight_map,
    config_keys={
        "vocab_size": "vocab",
        "d_model": "width",
        "num_layers": "layers",
        "num_decoder_layers": "decoder_layers",
        "num_heads": "heads",
        "d_kv": "head_width",
        "d_ff": "ffn_width",
        "relative_attention_num_buckets": "relative_buckets",
        "relative_attention_max_distance": "max_relative_distance",
        "dense_act_fn": "activation",
        "is_gated_act": "gated_ffn",
        "tie_word_embeddings": "tie_embeddings",
        "layer_norm_epsilon": "eps",
        "dropout_rate": "dropout",
        "decoder_start_token_id": "decoder_start_id",
    },
    required_values={"is_encoder_decoder": True},
    normalize_config=normalize_config,
    derived_keys=derived_keys,
    ignored_tensors=(
        r"lm_head\.weight",
        r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
    ),
    architecture="T5ForConditionalGeneration",
    init_weights=init_weights,
)
