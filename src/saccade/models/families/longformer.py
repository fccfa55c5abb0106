"""Longformer: RoBERTa for long texts; a token attends to its neighbours and to a few global tokens, which attend to all tokens.

Beltagy et al. 2020, arXiv 2004.05150. The global tokens are those of the batch's `global_mask`, for example a question. Without
a mask it is the first token of each text, or none under the lm and tag heads, as published.
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
    """RoBERTa with local and global attention in every layer."""

    def __init__(self, config: Config):
        drop = config.attention_dropout if config.use_attention_dropout else 0.0
        radii = [window // 2 for window in layer_windows(config)]
        super().__init__(
            config,
            Learned(config.max_positions, config.width, offset=config.pad_id + 1),
            lambda index: LocalGlobalAttention(config.width, config.heads, radii[index], dropout=drop),
        )
        self.first_is_global = True  # without a `global_mask`, the first token is global; set by some heads

    def forward(self, batch: Batch) -> Tensor:
        text = batch.source
        assert isinstance(text, Text), "Longformer takes text"
        x = self.segments(self.words(text.tokens), text.segment_ids)
        return self.stack(
            x, Layout(text.keep, global_tokens=global_positions(text, first_is_global=self.first_is_global))
        )


class LocalGlobalAttention(nn.Module):
    """Sliding-window attention for all tokens, full attention for the global ones, with separate projections and one output.

    The local attention of a global token is zero, so its global attention is simply added.
    """

    def __init__(self, width: int, heads: int, reach: int, *, dropout: float = 0.0):
        super().__init__()
        projections = Projections(has_output_projection=False)
        self.near: Attention = Attention(
            width, heads, WindowedWithGlobals(reach, dropout=dropout), projections=projections
        )
        self.far: Attention = Attention(width, heads, ScaledDot(dropout=dropout), projections=projections)
        self.output: nn.Linear = nn.Linear(width, width)

    def forward(
        self, x: Tensor, sight: Sight, *, rotation: Rotation | None = None, state: State | None = None
    ) -> Tensor:
        out = self.near(x, sight, rotation=rotation, state=state)  # (B, L, W)
        if sight.global_tokens is not None:
            columns = sight.get_or_make("places", lambda: global_columns(sight))
            columns = columns.unsqueeze(-1).expand(-1, -1, x.size(-1))  # (B, G, W)
            global_sight = sight.get_or_make(
                "far", lambda: Sight(RealPositions(), q_pos=sight.global_tokens, keep=sight.keep, cross=True)
            )
            global_out = self.far(x.gather(1, columns), global_sight, memory=x)  # narrower than x if heads were pruned
            out = out.scatter_add(1, columns[..., : global_out.size(-1)], global_out)
        return self.output(out)


@dataclass(frozen=True)
class RealPositions(Pattern):
    """Real positions attend to all others; padding at -1 attends to nothing."""

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return (q >= 0) & (k >= 0)


def global_positions(text: Text, *, first_is_global: bool = True) -> Tensor | None:
    """The positions of the global tokens in their texts, (B, G), padded with -1; None if no text has any."""
    if text.global_mask is None:
        return text.tokens.new_zeros(len(text.tokens), 1) if first_is_global else None  # the first token of each text
    keep = torch.ones_like(text.global_mask) if text.keep is None else text.keep
    is_global, sentinel = text.global_mask & keep, text.tokens.size(1)
    count = int(is_global.sum(1).amax())
    positions = make_positions(keep).masked_fill(~is_global, sentinel).sort(1).values[:, :count]
    return positions.masked_fill(positions == sentinel, -1) if count else None


def global_columns(sight: Sight) -> Tensor:
    """The columns of the global tokens in the padded batch, (B, G); padding at -1 takes the first column."""
    assert sight.global_tokens is not None
    positions = sight.global_tokens.clamp(min=0)
    if sight.keep is None:
        return positions
    return sight.keep.long().argsort(dim=1, descending=True, stable=True).gather(1, positions)


def layer_windows(config: Config) -> list[int]:
    """The attention window of each layer."""
    windows = list(config.attention_windows) * (config.layers if len(config.attention_windows) == 1 else 1)
    if len(windows) != config.layers or any(window < 2 or window % 2 for window in windows):
        raise ModelError(
            f"longformer: attention_windows needs one even window for all layers, or {config.layers} even windows, half of "
            f"each on either side; got {config.attention_windows}."
        )
    return windows


ATTENTION_WEIGHT_MAP: WeightMap = {
    "encoder.layer.{}.attention.self.query": "stack.layers.{}.attention.branch.near.query",
    "encoder.layer.{}.attention.self.key": "stack.layers.{}.attention.branch.near.key",
    "encoder.layer.{}.attention.self.value": "stack.layers.{}.attention.branch.near.value",
    "encoder.layer.{}.attention.self.query_global": "stack.layers.{}.attention.branch.far.query",
    "encoder.layer.{}.attention.self.key_global": "stack.layers.{}.attention.branch.far.key",
    "encoder.layer.{}.attention.self.value_global": "stack.layers.{}.attention.branch.far.value",
}


def normalize_config(raw: dict[str, Any]) -> dict[str, Any]:
    """As in RoBERTa; the window is one number for all layers, or a list."""
    raw = roberta.normalize_config({"vocab_size": 30522, "attention_window": 512, "num_hidden_layers": 12} | raw)
    window = raw["attention_window"]
    windows = list(window) if isinstance(window, list | tuple) else [window]
    if any(type(size) is not int for size in windows):
        raise ModelError(f"longformer: attention_window must be a whole number, or one per layer; got {window!r}.")
    is_uniform = len(windows) == raw["num_hidden_layers"] and len(set(windows)) == 1
    raw["attention_window"] = tuple(windows[:1] if is_uniform else windows)
    return raw


def longformer_head(name: str, head: HeadSpec) -> HeadSpec:
    """RoBERTa's head on a Longformer; with the lm and tag heads, no token is global by default, as published."""

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
