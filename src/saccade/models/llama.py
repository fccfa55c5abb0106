"""LLaMA: a decoder with rotary positions, RMS norms and a gated feed-forward, in which several heads may share their keys
(Touvron et al. 2023, arXiv 2302.13971; Ainslie et al. 2023, arXiv 2305.13245)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from saccade.attention import CAUSAL, Pattern
from saccade.errors import ModelError
from saccade.models.capabilities import DECODER
from saccade.models.decoder_only import DecoderOnly
from saccade.models.family import Family
from saccade.models.fresh import spread
from saccade.models.weights import Names, Step
from saccade.parts.embed import Words
from saccade.parts.feedforward import FeedForward
from saccade.parts.layer import layer
from saccade.parts.multihead import Attention, Projections
from saccade.parts.position import Rotary, Sinusoidal
from saccade.parts.stack import Stack


@dataclass(frozen=True)
class Config:
    vocab: int = 32000
    width: int = 4096
    layers: int = 32
    heads: int = 32
    key_heads: int | None = None  # as many as heads, unless said otherwise
    head_width: int | None = None  # the width divided among the heads, unless said otherwise
    inner: int = 11008
    length: int = 2048  # of the texts it was trained on; rotary positions have no limit of their own
    base: float = 10_000.0
    stretch: float = 1.0  # how many times slower positions turn, for texts longer than those of the first training
    first_length: int | None = None  # with it only turns that are slow against this length are stretched (LLaMA 3.1)
    eps: float = 1e-6
    tied: bool = False
    dropout: float = 0.0


class Llama(DecoderOnly):
    """Nothing has a bias, and order is in the turning of queries and keys alone.

    Its relatives have another `attention` (a function of the config) or another `pattern`.
    """

    def __init__(
        self, config: Config, *, attention: Callable[[Any], Attention] | None = None, pattern: Pattern = CAUSAL
    ):
        width, norm = config.width, partial(nn.RMSNorm, eps=config.eps)
        layers = [
            layer(
                (attention or plain_attention)(config),
                FeedForward(width, config.inner, "silu", gated=True, bias=False),
                width=width,
                norm=norm,
                dropout=config.dropout,
            )
            for _ in range(config.layers)
        ]
        position = Rotary(head_width(config), base=config.base)
        if config.stretch != 1.0:
            position.waves = Stretched(position.waves, config.stretch, config.first_length)
        super().__init__(
            Words(config.vocab, width), Stack(layers, pattern, position, leave=norm(width)), tied=config.tied
        )


def head_width(config: Config) -> int:
    return config.head_width or config.width // config.heads


def plain_attention(config: Config) -> Attention:
    plain = Projections(head_width=head_width(config), bias=False)
    return Attention(config.width, config.heads, kv_heads=config.key_heads, projections=plain)


class Stretched(Sinusoidal):
    """Slower turns, so that a longer text covers the angles that a shorter one was trained on.

    All turns alike (Chen et al. 2023, arXiv 2306.15595), or, given the length of the first training, only those that made
    less than four turns in it: between four turns and one the stretch sets in (LLaMA 3.1, arXiv 2407.21783).
    """

    def __init__(self, plain: Sinusoidal, stretch: float, first_length: int | None = None):
        super().__init__(plain.width, base=plain.base, halves=True)
        self.stretch, self.first_length = stretch, first_length

    def frequencies(self, device: torch.device) -> Tensor:
        plain = super().frequencies(device)
        if self.first_length is None:
            return plain / self.stretch
        turns = self.first_length * plain / (2 * math.pi)
        kept = ((turns - FEW_TURNS) / (MANY_TURNS - FEW_TURNS)).clamp(0, 1)
        return plain * (kept + (1 - kept) / self.stretch)


FEW_TURNS, MANY_TURNS = 1.0, 4.0
ORIGINAL = "original_max_position_embeddings"
NEEDED: dict[str, dict[str, float | None]] = {  # what a kind of rotary positions must say; None: any number
    "default": {},
    "linear": {"factor": None},
    "llama3": {"factor": None, ORIGINAL: None, "low_freq_factor": FEW_TURNS, "high_freq_factor": MANY_TURNS},
}


def adapt(raw: dict[str, Any], family: str = "llama") -> dict[str, Any]:
    """Rotary settings stand in one table of the published config in newer files, in two keys in older ones."""
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    rope = read_rope(rope, family)
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise ModelError(f"{family}: heads that turn in part are not built here; got {rope}.")
    return raw | {
        "rope_theta": rope.get("rope_theta", raw.get("rope_theta", Config.base)),
        "rope.factor": rope.get("factor", 1.0),
        "rope.original": rope.get(ORIGINAL),
    }


def read_rope(rope: Any, family: str, kinds: Sequence[str] = tuple(NEEDED)) -> dict[str, Any]:
    """One table of rotary settings without what its kind does not read; what is not built here is refused by name."""
    if not isinstance(rope, dict):
        raise ModelError(f"{family}: the rotary settings are {rope!r}; a table with `rope_type` is needed.")
    kind = str(rope.get("rope_type", rope.get("type", "default")))
    if kind not in kinds:
        raise ModelError(f"{family}: rotary positions of kind {kind!r} are not built here; {', '.join(kinds)} are.")
    for key, value in NEEDED[kind].items():
        if type(rope.get(key)) not in (int, float) or value not in (None, rope[key]) or not rope[key] > 0:
            raise ModelError(
                f"{family}: rotary positions of kind {kind!r} need {key} = {value or 'a number above 0'}; got {rope}."
            )
    return {key: value for key, value in rope.items() if key not in ("factor", ORIGINAL) or key in NEEDED[kind]}


def also(config: Config) -> dict[str, Any]:
    """The same settings in the older published form, which newer packages read too."""
    rope: dict[str, Any] | None = None if config.stretch == 1.0 else {"rope_type": "linear"}
    if rope is not None and config.first_length is not None:
        rope = NEEDED["llama3"] | {"rope_type": "llama3", ORIGINAL: config.first_length}
    return {"rope_theta": config.base, "rope_scaling": rope and rope | {"factor": config.stretch}}


NAMES: Names = {
    "embed_tokens": "words.vectors",
    "layers.{}.input_layernorm": "stack.layers.{}.attention.norm",
    "layers.{}.self_attn.q_proj": "stack.layers.{}.attention.branch.query",
    "layers.{}.self_attn.k_proj": "stack.layers.{}.attention.branch.key",
    "layers.{}.self_attn.v_proj": "stack.layers.{}.attention.branch.value",
    "layers.{}.self_attn.o_proj": "stack.layers.{}.attention.branch.output",
    "layers.{}.post_attention_layernorm": "stack.layers.{}.feedforward.norm",
    "layers.{}.mlp.gate_proj": "stack.layers.{}.feedforward.branch.gate",
    "layers.{}.mlp.up_proj": "stack.layers.{}.feedforward.branch.up",
    "layers.{}.mlp.down_proj": "stack.layers.{}.feedforward.branch.down",
    "norm": "stack.leave",
}


def names(config: Config) -> dict[str, str | Step]:
    return dict(NAMES) if config.tied else {**NAMES, "lm_head": "head.score"}


FAMILY = Family(
    name="llama",
    said="decoder: rotary positions, RMS norm before, gated, keys shared by heads",
    config=Config,
    build=Llama,
    capabilities=lambda config: DECODER,
    names=names,
    keys={
        "vocab_size": "vocab",
        "hidden_size": "width",
        "num_hidden_layers": "layers",
        "num_attention_heads": "heads",
        "num_key_value_heads": "key_heads",
        "head_dim": "head_width",
        "intermediate_size": "inner",
        "max_position_embeddings": "length",
        "rope_theta": "base",
        "rope.factor": "stretch",
        "rope.original": "first_length",
        "rms_norm_eps": "eps",
        "tie_word_embeddings": "tied",
    },
    fixed={"hidden_act": "silu", "attention_bias": False, "mlp_bias": False},
    adapt=adapt,
    also=also,
    prefix="model.",
    beside=(r"lm_head\.weight",),
    ignored=(r"lm_head\.weight", r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq"),
    architecture="LlamaForCausalLM",
    fresh=spread,
)
