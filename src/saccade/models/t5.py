"""T5: an encoder and a decoder that know order by learned tilts of the scores, shared by the layers of a stack
(Raffel et al. 2020, arXiv 1910.10683); version 1.1 gates the feed-forward and unties the output (Shazeer 2020)."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from saccade.attention import CAUSAL, FULL, Buckets, ScaledDot
from saccade.models.capabilities import ENCODER_DECODER
from saccade.models.encoder_decoder import EncoderDecoder
from saccade.models.family import Family
from saccade.models.weights import Names
from saccade.parts.dropout import Dropout
from saccade.parts.embed import Words
from saccade.parts.feedforward import FeedForward
from saccade.parts.heads import WordHead
from saccade.parts.layer import layer
from saccade.parts.multihead import Attention, Projections
from saccade.parts.position import Tilted
from saccade.parts.stack import Stack


@dataclass(frozen=True)
class Config:
    vocab: int = 32128
    width: int = 512
    layers: int = 6
    decoder_layers: int | None = None  # as many as the encoder has, unless said otherwise
    heads: int = 8
    head_width: int = 64
    inner: int = 2048
    buckets: int = 32
    distance: int = 128
    activation: str = "relu"
    gated: bool = False
    tied: bool = True  # the output is the words' own table, made small; untied it is neither
    eps: float = 1e-6
    dropout: float = 0.1
    begin: int = 0


class T5(EncoderDecoder):
    """Norm before each branch and at the end of a stack; scores are not scaled, and nothing has a bias."""

    def __init__(self, config: Config):
        words = Words(config.vocab, config.width)
        if config.tied:
            head = WordHead(config.width, config.vocab, tied=words.vectors, between=Shrink(config.width))
        else:
            head = WordHead(config.width, config.vocab)
        decoder = stack(config, config.decoder_layers or config.layers, writes=True)
        super().__init__(words, stack(config, config.layers, writes=False), decoder, head, begin=config.begin)


class Shrink(nn.Module):
    """x/√width: keeps scores near one when words with entries of variance one do the scoring."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        return x * self.width**-0.5


def stack(config: Config, layers: int, *, writes: bool) -> Stack:
    """The encoder sees both directions; the decoder, which `writes`, sees the past and looks across."""
    norm = partial(nn.RMSNorm, eps=config.eps)

    def attention() -> Attention:
        plain = Projections(head_width=config.head_width, bias=False)
        return Attention(config.width, config.heads, ScaledDot(scale=1.0), projections=plain)

    def feedforward() -> FeedForward:
        options: dict[str, Any] = {"gated": config.gated, "bias": False, "dropout": config.dropout}
        return FeedForward(config.width, config.inner, config.activation, **options)

    tilt = Buckets(config.heads, buckets=config.buckets, distance=config.distance, ahead=not writes)
    return Stack(
        [
            layer(
                attention(),
                feedforward(),
                attention() if writes else None,
                width=config.width,
                norm=norm,
                dropout=config.dropout,
            )
            for _ in range(layers)
        ],
        CAUSAL if writes else FULL,
        Tilted(tilt),
        enter=Dropout(config.dropout),
        leave=nn.Sequential(norm(config.width), Dropout(config.dropout)),
    )


def names(config: Config) -> Names:
    """A published block is a list of sublayers: self-attention, in the decoder attention across, feed-forward."""
    lines: dict[str, str] = {
        "shared": "words.vectors",
        "encoder.embed_tokens": "words.vectors",
        "decoder.embed_tokens": "words.vectors",
    }
    if not config.tied:
        lines["lm_head"] = "head.score"
    inner = {"wi_0": "gate", "wi_1": "up", "wo": "down"} if config.gated else {"wi": "up", "wo": "down"}
    for side, feedforward in (("encoder", 1), ("decoder", 2)):
        theirs, ours = f"{side}.block.{{}}.layer", f"{side}.layers.{{}}"
        lines[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"] = f"{side}.position.tilt.table"
        looks = [(0, "SelfAttention", "attention"), (1, "EncDecAttention", "across")][:feedforward]
        for number, published, name in looks:
            for letter, word in {"q": "query", "k": "key", "v": "value", "o": "output"}.items():
                lines[f"{theirs}.{number}.{published}.{letter}"] = f"{ours}.{name}.branch.{word}"
            lines[f"{theirs}.{number}.layer_norm"] = f"{ours}.{name}.norm"
        for published, name in inner.items():
            lines[f"{theirs}.{feedforward}.DenseReluDense.{published}"] = f"{ours}.feedforward.branch.{name}"
        lines[f"{theirs}.{feedforward}.layer_norm"] = f"{ours}.feedforward.norm"
        lines[f"{side}.final_layer_norm"] = f"{side}.leave.0"
    return lines


BEGINS = ("decoder_start_token_id", "pad_token_id")  # where a published config says what a target begins with


def adapt(raw: dict[str, Any]) -> dict[str, Any]:
    """One published word says activation and gate; in newer files the output's scaling tells whether it is tied."""
    kind = str(raw.get("feed_forward_proj", "relu"))
    bend = kind.removeprefix("gated-")
    return raw | {
        "dense_act_fn": "gelu_new" if kind == "gated-gelu" else bend,
        "is_gated_act": kind != bend,
        "tie_word_embeddings": raw.get("scale_decoder_outputs", raw.get("tie_word_embeddings", True)),
        "decoder_start_token_id": next((raw[key] for key in BEGINS if raw.get(key) is not None), Config.begin),
    }


def also(config: Config) -> dict[str, Any]:
    """The published word for activation and gate: there "gated-gelu" means the approximation by tanh."""
    bend = {"gelu_tanh": "gelu_new", "gelu": "gelu_python"}.get(config.activation, config.activation)
    return {
        "feed_forward_proj": f"gated-{bend}" if config.gated else bend,
        "dense_act_fn": bend,
        "decoder_start_token_id": config.begin,
        "pad_token_id": config.begin,  # unless a tokenizer says otherwise
    }


def fresh(model: nn.Module, config: Config) -> None:
    """Words of variance one, and every matrix by what enters it; queries make up for scores that are not scaled."""
    for name, module in model.named_modules():
        if isinstance(module, Words):
            nn.init.normal_(module.vectors.weight)
        elif isinstance(module, Buckets):
            nn.init.normal_(module.table.weight, std=config.width**-0.5)
        elif isinstance(module, nn.Linear) and not (config.tied and name.endswith("head.score")):
            scale = config.head_width if name.endswith("query") else 1
            nn.init.normal_(module.weight, std=(module.in_features * scale) ** -0.5)


FAMILY = Family(
    name="t5",
    said="encoder and decoder: tilts by distance, RMS norm before, text in and text out",
    config=Config,
    build=T5,
    capabilities=lambda config: ENCODER_DECODER,
    names=names,
    keys={
        "vocab_size": "vocab",
        "d_model": "width",
        "num_layers": "layers",
        "num_decoder_layers": "decoder_layers",
        "num_heads": "heads",
        "d_kv": "head_width",
        "d_ff": "inner",
        "relative_attention_num_buckets": "buckets",
        "relative_attention_max_distance": "distance",
        "dense_act_fn": "activation",
        "is_gated_act": "gated",
        "tie_word_embeddings": "tied",
        "layer_norm_epsilon": "eps",
        "dropout_rate": "dropout",
        "decoder_start_token_id": "begin",
    },
    fixed={"is_encoder_decoder": True},
    adapt=adapt,
    also=also,
    ignored=(r"lm_head\.weight", r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"),
    architecture="T5ForConditionalGeneration",
    fresh=fresh,
)
