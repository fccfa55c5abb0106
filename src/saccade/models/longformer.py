"""Longformer: RoBERTa for long texts; a token sees its neighbours and a few global tokens, and only these see all.

Beltagy et al. 2020, arXiv 2004.05150. Which tokens are global is data: those that the batch has `marked` (a question, say).
Where nothing is said it is the first token of each text, and under the heads for words and tags none, as published.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from saccade.attention import Layout, Pattern, ScaledDot, Sight, positions
from saccade.attention.windowed import Local
from saccade.data import Batch, Text
from saccade.errors import ModelError
from saccade.models import bert, roberta
from saccade.models.bert import Bert
from saccade.models.capabilities import UNPACKED_ENCODER
from saccade.models.family import Family, Head
from saccade.models.fresh import spread
from saccade.models.weights import Names
from saccade.parts.multihead import Attention, Projections
from saccade.parts.position import Learned, Turn
from saccade.parts.state import State


@dataclass(frozen=True)
class Config(roberta.Config):
    length: int = 4096
    windows: tuple[int, ...] = (
        512,
    )  # neighbours that a token sees, both sides together; one for all layers or one each


class Longformer(Bert):
    """RoBERTa's words and positions; in every layer two looks."""

    def __init__(self, config: Config):
        drop = config.weight_dropout if config.drop_weights else 0.0
        reach = [window // 2 for window in windows(config)]
        super().__init__(
            config,
            Learned(config.length, config.width, offset=config.padding + 1),
            lambda number: TwoLooks(config.width, config.heads, reach[number], dropout=drop),
        )
        self.marks_first = True  # whether the first token is global where the batch does not say; a head may decide

    def forward(self, batch: Batch) -> Tensor:
        text = batch.source
        assert isinstance(text, Text), "Longformer reads text"
        x = self.segments(self.words(text.tokens), text.segment)
        return self.stack(x, Layout(text.keep, global_tokens=marks(text, first=self.marks_first)))


class TwoLooks(nn.Module):
    """All tokens look near, the marked ones look far, each with projections of its own; one output joins them.

    A marked token sees nothing near, so what it sees far is simply added in its place.
    """

    def __init__(self, width: int, heads: int, reach: int, *, dropout: float = 0.0):
        super().__init__()
        joined = Projections(output=False)
        self.near = Attention(width, heads, Local(reach, dropout=dropout), projections=joined)
        self.far = Attention(width, heads, ScaledDot(dropout=dropout), projections=joined)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, sight: Sight, *, turn: Turn | None = None, state: State | None = None) -> Tensor:
        seen = self.near(x, sight, turn=turn, state=state)  # (B, L, W)
        if sight.marked is not None:
            at = sight.once("places", lambda: places(sight)).unsqueeze(-1).expand(-1, -1, x.size(-1))  # (B, G, W)
            far = sight.once("far", lambda: Sight(Counted(), q_pos=sight.marked, keep=sight.keep, cross=True))
            looked = self.far(x.gather(1, at), far, memory=x)  # narrower than x where heads were cut off
            seen = seen.scatter_add(1, at[..., : looked.size(-1)], looked)
        return self.output(seen)


@dataclass(frozen=True)
class Counted(Pattern):
    """Whoever has a position sees all; a filler at -1 sees nothing."""

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return (q >= 0) & (k >= 0)


def marks(text: Text, *, first: bool = True) -> Tensor | None:
    """The positions of the global tokens in their texts, (B, G), -1 where a text has fewer; None if there is none at all."""
    if text.marked is None:
        return text.tokens.new_zeros(len(text.tokens), 1) if first else None  # the first of each
    real = torch.ones_like(text.marked) if text.keep is None else text.keep
    marked, beyond = text.marked & real, text.tokens.size(1)
    count = int(marked.sum(1).amax())
    at = positions(real).masked_fill(~marked, beyond).sort(1).values[:, :count]
    return at.masked_fill(at == beyond, -1) if count else None


def places(sight: Sight) -> Tensor:
    """In which columns of the batch the marked positions stand, (B, G); a filler borrows the first."""
    assert sight.marked is not None
    at = sight.marked.clamp(min=0)
    return at if sight.keep is None else sight.keep.long().argsort(dim=1, descending=True, stable=True).gather(1, at)


def windows(config: Config) -> list[int]:
    """The window of each layer."""
    each = list(config.windows) * (config.layers if len(config.windows) == 1 else 1)
    if len(each) != config.layers or any(window < 2 or window % 2 for window in each):
        raise ModelError(
            f"{config.layers} layers need one window for all or {config.layers} of them, each even (half of it lies on "
            f"either side); got {config.windows}."
        )
    return each


LOOKS: Names = {
    "encoder.layer.{}.attention.self.query": "stack.layers.{}.attention.branch.near.query",
    "encoder.layer.{}.attention.self.key": "stack.layers.{}.attention.branch.near.key",
    "encoder.layer.{}.attention.self.value": "stack.layers.{}.attention.branch.near.value",
    "encoder.layer.{}.attention.self.query_global": "stack.layers.{}.attention.branch.far.query",
    "encoder.layer.{}.attention.self.key_global": "stack.layers.{}.attention.branch.far.key",
    "encoder.layer.{}.attention.self.value_global": "stack.layers.{}.attention.branch.far.value",
}


def adapt(raw: dict[str, Any]) -> dict[str, Any]:
    """As RoBERTa's, with the window as one number for all layers or a list."""
    raw = roberta.adapt({"vocab_size": 30522, "attention_window": 512, "num_hidden_layers": 12} | raw)
    window = raw["attention_window"]
    each = list(window) if isinstance(window, list | tuple) else [window]
    if any(type(one) is not int for one in each):
        raise ModelError(f"longformer: attention_window is a whole number, or one for each layer; got {window!r}.")
    same = len(each) == raw["num_hidden_layers"] and len(set(each)) == 1
    raw["attention_window"] = tuple(each[:1] if same else each)
    return raw


def longer(name: str, head: Head) -> Head:
    """RoBERTa's head on a Longformer; the published classes for words and tags make no token global by themselves."""

    def build(config: Config, body: Longformer, labels: int) -> nn.Module:
        body.marks_first = name not in ("words", "tag")
        return head.build(config, body, labels)

    return replace(head, build=build, architecture=head.architecture.replace("Roberta", "Longformer"))


FAMILY = Family(
    name="longformer",
    said="encoder: RoBERTa for long texts, neighbours and a few global tokens",
    config=Config,
    build=Longformer,
    capabilities=lambda config: UNPACKED_ENCODER,
    names=lambda config: {**bert.EMBEDDINGS, **bert.LAYERS, **LOOKS},
    keys={**roberta.FAMILY.keys, "attention_window": "windows"},
    fixed={"tie_word_embeddings": True},
    also=lambda config: {**roberta.FAMILY.also(config), "attention_window": windows(config)},
    adapt=adapt,
    heads={name: longer(name, head) for name, head in roberta.FAMILY.heads.items()},
    prefix="longformer.",
    ignored=roberta.FAMILY.ignored,
    pooler=roberta.FAMILY.pooler,
    architecture="LongformerModel",
    spare=bert.pooler,
    frame="roberta",
    fresh=spread,
)
