"""Longformer: RoBERTa for long texts; a token sees its neighbours and a few global tokens, and only these see all.

Beltagy et al. 2020, arXiv 2004.05150. Which tokens are global is data: those of the batch's `global_mask` (a question, say).
Where nothing is said it is the first token of each text, and under the heads for words and tags none, as published.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from saccade.attention import Layout, Pattern, ScaledDot, Sight, make_positions
from saccade.attention.sparse.windowed import WindowedWithGlobals
from saccade.data import Batch, Text
from saccade.errors import ModelError
from saccade.models.capabilities import ENCODER_WITHOUT_PACKING
from saccade.models.families import bert, roberta
from saccade.models.families.bert import Bert
from saccade.models.family import Family, HeadSpec
from saccade.models.init import init_normal
from saccade.models.weight_map import WeightMap
from saccade.parts.multihead_attention import Attention, Projections
from saccade.parts.position import Learned, Rotation
from saccade.parts.state import State


@dataclass(frozen=True)
class Config(roberta.Config):
    max_positions: int = 4096  # Maximum sequence length in tokens.
    attention_windows: tuple[int, ...] = (512,)
    """Attention window in tokens, both sides together: one for all layers, or one per layer."""


class Longformer(Bert):
    """RoBERTa's words and positions; in every layer two looks."""

    def __init__(self, config: Config):
        drop = config.attention_dropout if config.use_attention_dropout else 0.0
        reach = [window // 2 for window in layer_windows(config)]
        super().__init__(
            config,
            Learned(config.max_positions, config.width, offset=config.pad_id + 1),
            lambda number: LocalGlobalAttention(config.width, config.heads, reach[number], dropout=drop),
        )
        self.first_is_global = True  # whether the first token is global where the batch does not say; a head may decide

    def forward(self, batch: Batch) -> Tensor:
        text = batch.source
        assert isinstance(text, Text), "Longformer reads text"
        x = self.segments(self.words(text.tokens), text.segment_ids)
        return self.stack(
            x, Layout(text.keep, global_tokens=global_positions(text, first_is_global=self.first_is_global))
        )


class LocalGlobalAttention(nn.Module):
    """All tokens look near, the marked ones look far, each with projections of its own; one output joins them.

    A marked token sees nothing near, so what it sees far is simply added in its place.
    """

    def __init__(self, width: int, heads: int, reach: int, *, dropout: float = 0.0):
        super().__init__()
        joined = Projections(has_output_projection=False)
        self.near = Attention(width, heads, WindowedWithGlobals(reach, dropout=dropout), projections=joined)
        self.far = Attention(width, heads, ScaledDot(dropout=dropout), projections=joined)
        self.output = nn.Linear(width, width)

    def forward(
        self, x: Tensor, sight: Sight, *, rotation: Rotation | None = None, state: State | None = None
    ) -> Tensor:
        seen = self.near(x, sight, rotation=rotation, state=state)  # (B, L, W)
        if sight.global_tokens is not None:
            at = (
                sight.get_or_make("places", lambda: global_columns(sight)).unsqueeze(-1).expand(-1, -1, x.size(-1))
            )  # (B, G, W)
            far = sight.get_or_make(
                "far", lambda: Sight(RealPositions(), q_pos=sight.global_tokens, keep=sight.keep, cross=True)
            )
            looked = self.far(x.gather(1, at), far, memory=x)  # narrower than x where heads were cut off
            seen = seen.scatter_add(1, at[..., : looked.size(-1)], looked)
        return self.output(seen)


@dataclass(frozen=True)
class RealPositions(Pattern):
    """Whoever has a position sees all; a filler at -1 sees nothing."""

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return (q >= 0) & (k >= 0)


def global_positions(text: Text, *, first_is_global: bool = True) -> Tensor | None:
    """The positions of the global tokens in their texts, (B, G), -1 where a text has fewer; None if there is none at all."""
    if text.global_mask is None:
        return text.tokens.new_zeros(len(text.tokens), 1) if first_is_global else None  # the first of each
    real = torch.ones_like(text.global_mask) if text.keep is None else text.keep
    marked, beyond = text.global_mask & real, text.tokens.size(1)
    count = int(marked.sum(1).amax())
    at = make_positions(real).masked_fill(~marked, beyond).sort(1).values[:, :count]
    return at.masked_fill(at == beyond, -1) if count else None


def global_columns(sight: Sight) -> Tensor:
    """In which columns of the batch the marked positions stand, (B, G); a filler borrows the first."""
    assert sight.global_tokens is not None
    at = sight.global_tokens.clamp(min=0)
    return at if sight.keep is None else sight.keep.long().argsort(dim=1, descending=True, stable=True).gather(1, at)


def layer_windows(config: Config) -> list[int]:
    """The window of each layer."""
    each = list(config.attention_windows) * (config.layers if len(config.attention_windows) == 1 else 1)
    if len(each) != config.layers or any(window < 2 or window % 2 for window in each):
        raise ModelError(
            f"{config.layers} layers need one window for all or {config.layers} of them, each even (half of it lies on "
            f"either side); got {config.attention_windows}."
        )
    return each


ATTENTION_WEIGHT_MAP: WeightMap = {
    "encoder.layer.{}.attention.self.query": "stack.layers.{}.attention.branch.near.query",
    "encoder.layer.{}.attention.self.key": "stack.layers.{}.attention.branch.near.key",
    "encoder.layer.{}.attention.self.value": "stack.layers.{}.attention.branch.near.value",
    "encoder.layer.{}.attention.self.query_global": "stack.layers.{}.attention.branch.far.query",
    "encoder.layer.{}.attention.self.key_global": "stack.layers.{}.attention.branch.far.key",
    "encoder.layer.{}.attention.self.value_global": "stack.layers.{}.attention.branch.far.value",
}


def normalize_config(raw: dict[str, Any]) -> dict[str, Any]:
    """As RoBERTa's, with the window as one number for all layers or a list."""
    raw = roberta.normalize_config({"vocab_size": 30522, "attention_window": 512, "num_hidden_layers": 12} | raw)
    window = raw["attention_window"]
    each = list(window) if isinstance(window, list | tuple) else [window]
    if any(type(one) is not int for one in each):
        raise ModelError(f"longformer: attention_window is a whole number, or one for each layer; got {window!r}.")
    same = len(each) == raw["num_hidden_layers"] and len(set(each)) == 1
    raw["attention_window"] = tuple(each[:1] if same else each)
    return raw


def longformer_head(name: str, head: HeadSpec) -> HeadSpec:
    """RoBERTa's head on a Longformer; the published classes for words and tags make no token global by themselves."""

    def build(config: Config, body: Longformer, labels: int) -> nn.Module:
        body.first_is_global = name not in ("lm", "tag")
        return head.build(config, body, labels)

    return replace(head, build=build, architecture=head.architecture.replace("Roberta", "Longformer"))


FAMILY = Family(
    name="longformer",
    description="encoder: RoBERTa for long texts, sliding-window attention and a few global tokens",
    config_class=Config,
    build=Longformer,
    capabilities=lambda config: ENCODER_WITHOUT_PACKING,
    weight_map=lambda config: {**bert.EMBEDDING_WEIGHT_MAP, **bert.LAYER_WEIGHT_MAP, **ATTENTION_WEIGHT_MAP},
    config_keys={**roberta.FAMILY.config_keys, "attention_window": "attention_windows"},
    required_values={"tie_word_embeddings": True},
    derived_keys=lambda config: {**roberta.FAMILY.derived_keys(config), "attention_window": layer_windows(config)},
    normalize_config=normalize_config,
    heads={name: longformer_head(name, head) for name, head in roberta.FAMILY.heads.items()},
    prefix="longformer.",
    ignored_tensors=roberta.FAMILY.ignored_tensors,
    pooler_tensors=roberta.FAMILY.pooler_tensors,
    architecture="LongformerModel",
    extra_tensors=bert.unused_pooler,
    token_template="roberta",
    init_weights=init_normal,
)
