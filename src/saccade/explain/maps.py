"""Attention maps as data: weights with the names of their queries and keys, to select, merge, plot, save and load."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from saccade.errors import UsageError
from saccade.explain.axis import Axis

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-not-found]  # an optional package
    from matplotlib.figure import Figure

ATTENTION_KINDS = ("self", "cross", "image")  # kinds of maps with heads and keys
HTML_SUFFIXES = (".html", ".htm")
TEXT_AXIS_KINDS = ("input", "decoder_input", "output")  # kinds of axes whose tokens belong to a text
MAX_MAPS_SHOWN = 12
MAX_DENSE_WEIGHTS = 2**28  # most weights that to_dense makes of a sparse map: 1 GB


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The weights of one module for one input, (H, Q, K), with names for queries and keys.

    `kind` is self, cross, image (words attend to the cells of an image), gate or channel. In a gate map, a head is a gate, a
    query a time step and a key a unit. If only the largest weights are kept, `key_index` (H, Q, kept) has the indices of their
    keys. `value_norms` (H, K) are the norms of the value vectors; `pooled` says that neighbors share a row or a column.
    """

    name: str
    kind: str
    side: str  # encoder, decoder, or "" if the model has a single stack
    layer: int
    heads: tuple[int, ...]
    weights: Tensor
    query: Axis
    key: Axis
    key_index: Tensor | None = None
    gates: tuple[str, ...] = ()
    value_norms: Tensor | None = None
    pooled: bool = False

    def __repr__(self) -> str:
        count = len(self.gates) or len(self.heads)
        what = "gates" if self.gates else "heads"
        return f"AttentionMap({self.title}: {count} {what}, {len(self.query)} queries, {len(self.key)} keys)"

    def _repr_html_(self) -> str:
        from saccade.explain.html_report import render_notebook_html  # it imports this module

        return render_notebook_html(self._as_maps())

    @property
    def query_names(self) -> list[str]:
        """The names of the queries."""
        return self.query.names

    @property
    def key_names(self) -> list[str]:
        """The names of the keys."""
        return self.key.names

    @property
    def mean(self) -> Tensor:
        """The mean over all heads, (Q, K)."""
        return self.to_dense().mean(0)

    @property
    def title(self) -> str:
        """Side, layer and kind in words, such as "decoder layer 2, cross"."""
        return f"{self.side} layer {self.layer}, {self.kind}".strip()

    def head_name(self, head_index: int) -> str:
        """The name of the head at this index of the weights, such as "head 5" or "forget gate"."""
        return f"{self.gates[head_index]} gate" if self.gates else f"head {self.heads[head_index]}"

    def to_dense(self) -> Tensor:
        """All weights, (H, Q, K); in a map that kept only the largest, the others are zero."""
        if self.key_index is None:
            return self.weights
        shape = (*self.weights.shape[:2], len(self.key))
        if torch.Size(shape).numel() > MAX_DENSE_WEIGHTS:
            raise UsageError(
                f"{self.title}: all weights would need {torch.Size(shape).numel() * 4 / 2**30:.1f} GB; select heads or rows."
            )
        return self.weights.new_zeros(shape).scatter_(-1, self.key_index, self.weights)

    @property
    def sums_to_one(self) -> bool:
        """Whether every row sums to one, as after softmax; a row that may attend to nothing is all zero."""
        sums = self.weights.sum(-1)
        sums_to_one = ((sums - 1).abs() < 2e-3) | (self.weights == 0).all(-1)
        return (
            self.kind not in ("gate", "channel")
            and self.key_index is None
            and bool(sums_to_one.all() and (self.weights >= 0).all())
        )

    @property
    def vmax(self) -> float:
        """The upper end of the color scale: 1 if rows sum to one, so that maps can be compared, else the largest weight."""
        return 1.0 if self.sums_to_one else float(self.weights.abs().max()) or 1.0

    def find_sharpest_head(self) -> int:
        """The index of the head with the lowest mean entropy of its rows."""
        entropy = -(self.weights * self.weights.clamp(min=1e-12).log()).sum(-1).mean(-1)
        return int(entropy.argmin())

    def select(self, *, heads: Sequence[int] | None = None, queries: Sequence[int] | None = None) -> "AttentionMap":
        """Select heads and queries by their numbers."""
        out = self
        if heads is not None and not self.gates:
            missing = [head for head in heads if head not in self.heads]
            if missing:
                raise UsageError(f"Head {missing[0]} does not exist; {self.title} has the heads {list(self.heads)}.")
            rows = [self.heads.index(head) for head in heads]
            index = None if out.key_index is None else out.key_index[rows]
            norms = None if out.value_norms is None else out.value_norms[rows]
            out = replace(out, heads=tuple(heads), weights=out.weights[rows], key_index=index, value_norms=norms)
        if queries is not None:
            kept = [row for row in queries if row < len(out.query)]
            index = None if out.key_index is None else out.key_index[:, kept]
            out = replace(out, weights=out.weights[:, kept], key_index=index, query=out.query.select(kept))
        return out

    def weight_by_value_norm(self) -> "AttentionMap":
        """Multiply every weight by the norm of its value vector: how much a token contributes to the output of a head.

        Kobayashi et al. 2020 (arXiv 2004.10102). A head that has nothing to attend to puts its weight on a token whose value
        vector is close to zero, often a special token, and the weights alone do not show that. The norm is taken before the
        output projection.
        """
        if self.value_norms is None:
            raise UsageError(f"{self.title} has no value norms: {self._explain_no_norms()}.")
        return replace(self, weights=self.to_dense() * self.value_norms[:, None], key_index=None, value_norms=None)

    def drop_special_tokens(self) -> "AttentionMap":
        """Drop special tokens such as [CLS] and [SEP] from queries and keys.

        Heads put much of their weight on special tokens, and tables of the largest weights show little else. The other weights
        do not change, so rows no longer sum to one. Cells of an image and units of a gate are kept.
        """
        if self.pooled:
            raise UsageError(
                f"{self.title} is downsampled, so single tokens cannot be dropped; select rows (`queries`) or look with "
                "reduce=KeepAll()."
            )
        query, key = (
            [i for i, special in enumerate(_special_tokens(axis)) if not special] for axis in (self.query, self.key)
        )
        if len(query) == len(self.query) and len(key) == len(self.key):
            return self
        weights = self.weights[:, query] if len(key) == len(self.key) else self.to_dense()[:, query][:, :, key]
        index = self.key_index[:, query] if self.key_index is not None and len(key) == len(self.key) else None
        norms = None if self.value_norms is None else self.value_norms[:, key]
        axes = {"query": self.query.select(query), "key": self.key.select(key)}
        return replace(self, weights=weights, key_index=index, value_norms=norms, **axes)

    def plot(self) -> "Figure":
        """Return a matplotlib figure: a heat map with the names of all tokens for one head, else all heads side by side."""
        return self._as_maps().plot()

    def save(self, path: str | Path) -> Path:
        """Save the map in the format of the file suffix, as `AttentionMaps.save`: `head.png`, `head.html`, `head.safetensors`."""
        return self._as_maps().save(path)

    def to_pandas(self) -> "pd.DataFrame":
        """Return a table with a row for each weight, as `AttentionMaps.to_pandas`."""
        return self._as_maps().to_pandas()

    def _as_maps(self) -> "AttentionMaps":
        return AttentionMaps(self.title, (self,), ())

    def _explain_no_norms(self) -> str:
        if self.kind in ("gate", "channel"):
            return f"a {self.kind} map has no value vectors"
        if self.pooled:
            return "it is downsampled, so the weights of single tokens are lost; select rows (`queries`)"
        return "its value vectors are not known"

    def merge_subwords(self, texts: Sequence[str]) -> "AttentionMap":
        """Merge subwords into words: the sum over the subwords of a key, the mean over the subwords of a query."""
        query, query_groups = self.query.group_words(texts)
        key, key_groups = self.key.group_words(texts)
        if len(query) == len(self.query) and len(key) == len(self.key):
            return replace(self, query=query, key=key)
        weights = _sum_groups(self.to_dense(), key_groups).transpose(1, 2)
        counts = torch.tensor([len(group) for group in query_groups], dtype=weights.dtype)
        merged = (_sum_groups(weights, query_groups) / counts).transpose(1, 2)
        return replace(self, query=query, key=key, weights=merged, key_index=None, value_norms=None)


def _special_tokens(axis: Axis) -> list[bool]:
    return axis.special_tokens_mask if axis.kind in TEXT_AXIS_KINDS else [False] * len(axis)


def _sum_groups(x: Tensor, groups: Sequence[Sequence[int]]) -> Tensor:
    """The sums of x (..., n) over groups of its last axis, (..., groups)."""
    group_index = torch.empty(x.size(-1), dtype=torch.long)
    for index, members in enumerate(groups):
        group_index[list(members)] = index
    return x.new_zeros(*x.shape[:-1], len(groups)).index_add_(-1, group_index, x)


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """All attention maps of a model for one input, with the input, the prediction and the generated text."""

    model: str  # name of the model family
    maps: tuple[AttentionMap, ...]
    texts: tuple[str, ...]  # the input texts, then the generated text; `Token.text_index` is an index into them
    answer: str = ""
    generated_text: str = ""
    image: np.ndarray | None = None  # (rows, columns, channels), uint8
    no_answer_reason: str = ""  # why there is no answer, if there is none
    truncated_at: int | None = (
        None  # number of generated tokens at the length limit; None if generation ended by itself
    )
    max_output_tokens: int | None = (
        None  # most tokens the model can generate for this input; None: no limit or no generation
    )
    truncated_input_tokens: int = 0  # tokens cut off at the end of the input, beyond the longest input of the model

    def __len__(self) -> int:
        return len(self.maps)

    def __iter__(self) -> Iterator[AttentionMap]:
        return iter(self.maps)

    def __getitem__(self, index: int) -> AttentionMap:
        return self.maps[index]

    def __repr__(self) -> str:
        answer = f", answer {self.answer!r}" if self.answer else ""
        lines = [f"  {number}  {one!r}" for number, one in enumerate(self.maps[:MAX_MAPS_SHOWN])]
        more = [f"  ... and {len(self) - MAX_MAPS_SHOWN:,} more"] if len(self) > MAX_MAPS_SHOWN else []
        return "\n".join([f"AttentionMaps({self.model}, {len(self)} maps{answer})", *lines, *more])

    def select(
        self,
        kind: str | None = None,
        side: str | None = None,
        *,
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        queries: Sequence[int] | None = None,
    ) -> "AttentionMaps":
        """Select maps by kind, side and layer, and heads and queries of them; layers are numbered from 0 on each side."""
        selected = [m for m in self.maps if kind in (None, m.kind) and side in (None, m.side)]
        if layers is not None:
            selected = [m for m in selected if m.layer in _resolve_layers(layers, selected, m)]
        if not selected:
            available = ", ".join(dict.fromkeys(m.title for m in self.maps))
            raise UsageError(
                f"No map of kind {kind or 'any'}, side {side or 'any'}, layers {layers}; available are: {available}."
            )
        return replace(self, maps=tuple(m.select(heads=heads, queries=queries) for m in selected))

    def most_informative(self) -> AttentionMap:
        """The map to show first: the last layer of attention to the input, of self-attention, or of gates, in this order."""
        for kind in ("image", "cross", "self", "gate"):
            of_kind = [m for m in self.maps if m.kind == kind]
            if of_kind:
                return of_kind[-1]
        if not self.maps:
            raise UsageError("There are no maps: the selection left out every layer.")
        return self.maps[-1]

    def merge_subwords(self) -> "AttentionMaps":
        """Merge subwords into words in every map."""
        return replace(self, maps=tuple(m.merge_subwords(self.texts) for m in self.maps))

    def drop_special_tokens(self) -> "AttentionMaps":
        """Leave out special tokens such as [CLS], which often have the largest weights, from every map."""
        return replace(self, maps=tuple(m.drop_special_tokens() for m in self.maps))

    def plot(self) -> "Figure":
        """Return a matplotlib figure: one head with token names, all heads side by side, or weights overlaid on the image."""
        from saccade.explain.plots import plot_attention  # it imports this module

        return plot_attention(self)

    def save(self, path: str | Path) -> Path:
        """Write one file: an image (.png, .svg, .pdf), a page (.html), else data that `AttentionMaps.load` reads.

        The data are a safetensors file with weights in half precision.
        """
        from saccade.explain.plots import IMAGE_SUFFIXES, save_attention_plot
        from saccade.explain.serialize import save_maps

        path = Path(path)
        if path.suffix.lower() in HTML_SUFFIXES:
            return self.to_html(path)
        return save_attention_plot(self, path) if path.suffix.lower() in IMAGE_SUFFIXES else save_maps(self, path)

    def to_html(self, path: str | Path, *, title: str = "") -> Path:
        """Write all maps as one self-contained HTML page."""
        from saccade.explain.html_report import write_html_report

        write_html_report(self, Path(path), title=title)
        return Path(path)

    def to_pandas(self) -> "pd.DataFrame":
        """Return a table with a row for each weight: side, layer, kind, head, query and key with positions, and the weight.

        Maps that kept only the largest weights (`TopK`) have only those as rows. Needs the package pandas.
        """
        from saccade.explain.serialize import make_data_frame

        return make_data_frame(self)

    def summary(self) -> str:
        """Return the prediction as text, with a line for each head: its label, and its three largest weights."""
        from saccade.explain.text_summary import format_summary

        return "\n".join(format_summary(self))

    @staticmethod
    def load(path: str | Path) -> "AttentionMaps":
        """Read the data that `save` wrote."""
        from saccade.explain.serialize import load_maps

        return load_maps(Path(path))

    def _repr_html_(self) -> str:
        from saccade.explain.html_report import render_notebook_html

        return render_notebook_html(self)


def _resolve_layers(layers: Sequence[int], maps: Sequence[AttentionMap], reference: AttentionMap) -> list[int]:
    """Layer numbers from 0 for maps of the kind and side of `reference`; negative numbers count from the last layer."""
    count = 1 + max(m.layer for m in maps if (m.kind, m.side) == (reference.kind, reference.side))
    return [layer + count if layer < 0 else layer for layer in layers]
