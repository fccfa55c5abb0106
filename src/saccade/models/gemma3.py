"""Gemma 3, its text model: a decoder in which most layers see a sliding window and every sixth sees all, each kind with rotary
positions of its own, and with norms before and after every branch (Gemma Team 2025, arXiv 2503.19786)."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from saccade.attention import CAUSAL, ScaledDot, Window
from saccade.errors import ModelError
from saccade.models import llama
from saccade.models.capabilities import DECODER
from saccade.models.decoder_only import DecoderOnly
from saccade.models.family import Family
from saccade.models.fresh import spread
from saccade.models.weights import Names
from saccade.parts.embed import Words
from saccade.parts.feedforward import FeedForward
from saccade.parts.layer import Layer, Sublayer
from saccade.parts.multihead import Attention, Projections, QKNorm
from saccade.parts.norm import OffsetRMSNorm
from saccade.parts.position import Rotary
from saccade.parts.stack import Stack
from saccade.text.files import shown

SLIDING, WHOLE = "sliding_attention", "full_attention"


@dataclass(frozen=True)
class Config:
    vocab: int = 262_208
    width: int = 2_304
    layers: int = 26
    heads: int = 8
    key_heads: int = 4
    head_width: int = 256
    inner: int = 9_216
    length: int = 131_072  # of the texts it was trained on; rotary positions have no limit of their own
    window: int = 4_096  # tokens that a token of a windowed layer sees, itself among them
    full_every: int = 6  # every so many layers one sees all that came before
    base: float = 1_000_000.0  # of the rotary positions where a layer sees all
    local_base: float = 10_000.0  # and where it sees a window
    stretch: float = 1.0  # how many times slower positions turn where a layer sees all
    scale_width: int = 256  # scores are divided by its square root
    eps: float = 1e-6
    tied: bool = True
    dropout: float = 0.0


class Gemma3(DecoderOnly):
    """Scaled words in; a pattern and a rotary base for each layer."""

    def __init__(self, config: Config):
        near, far = Rotary(config.head_width, base=config.local_base), Rotary(config.head_width, base=config.base)
        if config.stretch != 1.0:
            far.waves = llama.Stretched(far.waves, config.stretch)
        whole = whole_layers(config)
        stack = Stack(
            [layer(config) for _ in range(config.layers)],
            [CAUSAL if sees_all else Window(config.window - 1, 0) for sees_all in whole],
            [far if sees_all else near for sees_all in whole],
            leave=OffsetRMSNorm(config.width, eps=config.eps),
        )
        super().__init__(Words(config.vocab, config.width, scaled=True), stack, tied=config.tied)


def whole_layers(config: Config) -> list[bool]:
    """Which layers see all that came before."""
    return [(number + 1) % config.full_every == 0 for number in range(config.layers)]


def layer(config: Config) -> Layer:
    """Each branch between two norms."""
    norm = partial(OffsetRMSNorm, eps=config.eps)
    attention = Attention(
        config.width,
        config.heads,
        ScaledDot(scale=config.scale_width**-0.5),
        kv_heads=config.key_heads,
        projections=Projections(head_width=config.head_width, bias=False),
        qk_norm=QKNorm(norm(config.head_width), norm(config.head_width)),
    )
    feedforward = FeedForward(config.width, config.inner, "gelu_tanh", gated=True, bias=False)

    def around(branch: nn.Module) -> Sublayer:
        before, after = norm(config.width), norm(config.width)
        return Sublayer(branch, before, norm_first=True, post_norm=after, dropout=config.dropout)

    return Layer(around(attention), around(feedforward))


def adapt(raw: dict[str, Any]) -> dict[str, Any]:
    """Rotary settings for both kinds of layers, and which layers are which, under their older and their newer names."""
    both = raw.get("rope_parameters") or {}
    if not isinstance(both, dict):
        raise ModelError(f"gemma3: the rotary settings are {shown(both)}; a table for each kind of layer is needed.")
    far = llama.read_rope(both.get(WHOLE) or raw.get("rope_scaling") or {}, "gemma3", ("default", "linear"))
    near = llama.read_rope(both.get(SLIDING) or {}, "gemma3", ("default",))
    return raw | {
        "use_bidirectional_attention": raw.get("use_bidirectional_attention") or False,
        "rope_theta": far.get("rope_theta", raw.get("rope_theta", Config.base)),
        "rope_local_base_freq": near.get("rope_theta", raw.get("rope_local_base_freq", Config.local_base)),
        "rope.factor": far.get("factor", 1.0),
        "layers.full_every": _full_every(raw),
    }


def _full_every(raw: dict[str, Any]) -> int:
    """After how many layers one sees all; the published config may list every layer."""
    kinds = raw.get("layer_types")
    if kinds is None:
        return raw.get("sliding_window_pattern", Config.full_every)
    count = raw.get("num_hidden_layers", Config.layers)
    if isinstance(kinds, list) and kinds and len(kinds) == count:
        every = kinds.index(WHOLE) + 1 if WHOLE in kinds else count + 1
        if kinds == [SLIDING if (number + 1) % every else WHOLE for number in range(count)]:
            return every
    raise ModelError(
        f"gemma3: layer_types = {shown(kinds)} for {shown(count)} layers; one {WHOLE!r} after every so many {SLIDING!r} "
        "is built here."
    )


def also(config: Config) -> dict[str, Any]:
    """The same settings under their older names, which newer packages read too."""
    scaling = None if config.stretch == 1.0 else {"rope_type": "linear", "factor": config.stretch}
    kinds = [WHOLE if sees_all else SLIDING for sees_all in whole_layers(config)]
    return {"rope_scaling": scaling, "layer_types": kinds}


NAMES: Names = {
    "embed_tokens": "words.vectors",
    "layers.{}.input_layernorm": "stack.layers.{}.attention.norm",
    "layers.{}.self_attn.q_proj": "stack.layers.{}.attention.branch.query",
    "layers.{}.self_attn.k_proj": "stack.layers.{}.attention.branch.key",
    "layers.{}.self_attn.v_proj": "stack.layers.{}.attention.branch.value",
    "layers.{}.self_attn.o_proj": "stack.layers.{}.attention.branch.output",
    "layers.{}.self_attn.q_norm": "stack.layers.{}.attention.branch.qk_norm.query",
    "layers.{}.self_attn.k_norm": "stack.layers.{}.attention.branch.qk_norm.key",
    "layers.{}.post_attention_layernorm": "stack.layers.{}.attention.post_norm",
    "layers.{}.pre_feedforward_layernorm": "stack.layers.{}.feedforward.norm",
    "layers.{}.mlp.gate_proj": "stack.layers.{}.feedforward.branch.gate",
    "layers.{}.mlp.up_proj": "stack.layers.{}.feedforward.branch.up",
    "layers.{}.mlp.down_proj": "stack.layers.{}.feedforward.branch.down",
    "layers.{}.post_feedforward_layernorm": "stack.layers.{}.feedforward.post_norm",
    "norm": "stack.leave",
}
FAMILY = Family(
    name="gemma3",
    said="decoder: windows in most layers, norms around each branch and of queries and keys, gated",
    config=Config,
    build=Gemma3,
    capabilities=lambda config: DECODER,
    names=lambda config: NAMES if config.tied else {**NAMES, "lm_head": "head.score"},
    keys={
        "vocab_size": "vocab",
        "hidden_size": "width",
        "num_hidden_layers": "layers",
        "num_attention_heads": "heads",
        "num_key_value_heads": "key_heads",
        "head_dim": "head_width",
        "intermediate_size": "inner",
        "max_position_embeddings": "length",
        "sliding_window": "window",
        "layers.full_every": "full_every",
        "rope_theta": "base",
        "rope_local_base_freq": "local_base",
        "rope.factor": "stretch",
        "query_pre_attn_scalar": "scale_width",
        "rms_norm_eps": "eps",
        "tie_word_embeddings": "tied",
    },
    fixed={
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "use_bidirectional_attention": False,
    },
    adapt=adapt,
    also=also,
    prefix="model.",
    beside=(r"lm_head\.weight",),
    ignored=(r"lm_head\.weight",),
    architecture="Gemma3ForCausalLM",
    fresh=spread,
)
