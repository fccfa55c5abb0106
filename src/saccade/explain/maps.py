"""Where a model looked, as data: maps with the names of both their sides, to choose from, join, save, load and draw."""

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

ATTENTION_KINDS = ("self", "cross", "image")  # the kinds of maps that have heads and weigh keys
HTML_SUFFIXES = (".html", ".htm")
TEXT_AXIS_KINDS = ("input", "decoder_input", "output")  # the kinds of axes whose tokens are those of a text
MAX_DENSE_WEIGHTS = 2**28  # numbers that a map of the largest weights may become when all are asked for: 1 GB


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The weights of one module for one input, (H, Q, K), with names for queries and keys.

    `kind` is self, cross, image (words look at the cells of a picture), gate or channel. Of gates, a head is one gate, a
    query a moment and a key a unit. Where only the largest weights are kept, `key_index` (H, Q, kept) has their keys. `value_norms`
    (H, K) are the lengths of the value vectors that the weights multiply; `pooled` says that neighbours share a row or a column.
    """

    name: str
    kind: str
    side: str  # encoder, decoder, or nothing where there is one stack
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
        from saccade.explain.html_report import render_notebook_html  # which knows what looks are

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
        """Over all heads, (Q, K)."""
        return self.to_dense().mean(0)

    @property
    def title(self) -> str:
        """Where it stands, in words."""
        return f"{self.side} layer {self.layer}, {self.kind}".strip()

    def head_name(self, head_index: int) -> str:
        """What the head at this place of the weights is called."""
        return f"{self.gates[head_index]} gate" if self.gates else f"head {self.heads[head_index]}"

    def to_dense(self) -> Tensor:
        """All weights, (H, Q, K); of a map that kept the largest, the others are zero."""
        if self.key_index is None:
            return self.weights
        shape = (*self.weights.shape[:2], len(self.key))
        if torch.Size(shape).numel() > MAX_DENSE_WEIGHTS:
            raise UsageError(
                f"{self.title}: all weights would be {torch.Size(shape).numel() * 4 / 2**30:.1f} GB; choose heads or rows."
            )
        return self.weights.new_zeros(shape).scatter_(-1, self.key_index, self.weights)

    @property
    def sums_to_one(self) -> bool:
        """Whether every row is a share of one whole, as after softmax; a row that may see nothing is all zero."""
        sums = self.weights.sum(-1)
        whole = ((sums - 1).abs() < 2e-3) | (self.weights == 0).all(-1)
        return (
            self.kind not in ("gate", "channel")
            and self.key_index is None
            and bool(whole.all() and (self.weights >= 0).all())
        )

    @property
    def vmax(self) -> float:
        """Where a scale of color ends: at 1 for shares of a whole, so that maps can be compared, else at the largest weight."""
        return 1.0 if self.sums_to_one else float(self.weights.abs().max()) or 1.0

    def find_sharpest_head(self) -> int:
        """The head whose rows are spread the least (the lowest entropy)."""
        spread = -(self.weights * self.weights.clamp(min=1e-12).log()).sum(-1).mean(-1)
        return int(spread.argmin())

    def select(self, *, heads: Sequence[int] | None = None, queries: Sequence[int] | None = None) -> "AttentionMap":
        """Some heads, by their numbers, and some queries."""
        out = self
        if heads is not None and not self.gates:
            missing = [head for head in heads if head not in self.heads]
            if missing:
                raise UsageError(f"{self.title} has the heads {list(self.heads)}; asked for {missing[0]}.")
            places = [self.heads.index(head) for head in heads]
            at = None if out.key_index is None else out.key_index[places]
            norms = None if out.value_norms is None else out.value_norms[places]
            out = replace(out, heads=tuple(heads), weights=out.weights[places], key_index=at, value_norms=norms)
        if queries is not None:
            kept = [row for row in queries if row < len(out.query)]
            at = None if out.key_index is None else out.key_index[:, kept]
            out = replace(out, weights=out.weights[:, kept], key_index=at, query=out.query.select(kept))
        return out

    def weight_by_value_norm(self) -> "AttentionMap":
        """The map with every weight multiplied by the norm of its value vector: how much of a token a head passes on.

        Kobayashi et al. 2020 (arXiv 2004.10102). A head that needs to look nowhere puts its weight on a token whose value is
        close to zero, often a special token, and the weights alone do not show that. The norm is taken before the output
        projection.
        """
        if self.value_norms is None:
            raise UsageError(f"{self.title} has no value norms: {self._explain_no_norms()}.")
        return replace(self, weights=self.to_dense() * self.value_norms[:, None], key_index=None, value_norms=None)

    def drop_special_tokens(self) -> "AttentionMap":
        """The map without the tokens that stand for no text, such as [CLS] and [SEP], among queries and keys.

        Heads put much of their weight on such tokens, and tables of the largest weights show little else. The other weights
        stay as they are, so a row no longer sums to one. Cells of an image and units of a gate are kept.
        """
        if self.pooled:
            raise UsageError(
                f"{self.title} is pooled, so single tokens cannot be dropped; choose rows or reduce=KeepAll()."
            )
        query, key = (
            [at for at, special in enumerate(_special_tokens(axis)) if not special] for axis in (self.query, self.key)
        )
        if len(query) == len(self.query) and len(key) == len(self.key):
            return self
        weights = self.weights[:, query] if len(key) == len(self.key) else self.to_dense()[:, query][:, :, key]
        index = self.key_index[:, query] if self.key_index is not None and len(key) == len(self.key) else None
        norms = None if self.value_norms is None else self.value_norms[:, key]
        axes = {"query": self.query.select(query), "key": self.key.select(key)}
        return replace(self, weights=weights, key_index=index, value_norms=norms, **axes)

    def plot(self) -> "Figure":
        """A matplotlib figure: a heat map with the names of all tokens for one head, else all heads side by side."""
        return self._as_maps().plot()

    def save(self, path: str | Path) -> Path:
        """Write the map by the suffix of the file, as `AttentionMaps.save` does: `head.png`, `head.html`, `head.safetensors`."""
        return self._as_maps().save(path)

    def to_pandas(self) -> "pd.DataFrame":
        """A table with a row for each weight, as `AttentionMaps.to_pandas`."""
        return self._as_maps().to_pandas()

    def _as_maps(self) -> "AttentionMaps":
        return AttentionMaps(self.title, (self,), ())

    def _explain_no_norms(self) -> str:
        if self.kind in ("gate", "channel"):
            return f"a {self.kind} multiplies no value vectors"
        if self.pooled:
            return "it is pooled, and the weights of single tokens are gone; choose rows"
        return "its values are not known"

    def merge_subwords(self, texts: Sequence[str]) -> "AttentionMap":
        """Sub-words joined: a word is looked at by as much as all its parts are, and looks as they do in the mean."""
        query, looking = self.query.group_words(texts)
        key, seen = self.key.group_words(texts)
        if len(query) == len(self.query) and len(key) == len(self.key):
            return replace(self, query=query, key=key)
        weights = _sum_groups(self.to_dense(), seen).transpose(1, 2)
        counts = torch.tensor([len(group) for group in looking], dtype=weights.dtype)
        joined = (_sum_groups(weights, looking) / counts).transpose(1, 2)
        return replace(self, query=query, key=key, weights=joined, key_index=None, value_norms=None)


def _special_tokens(axis: Axis) -> list[bool]:
    return axis.special_tokens_mask if axis.kind in TEXT_AXIS_KINDS else [False] * len(axis)


def _sum_groups(x: Tensor, groups: Sequence[Sequence[int]]) -> Tensor:
    """The sums of x (..., n) over groups of its last axis, (..., groups)."""
    number = torch.empty(x.size(-1), dtype=torch.long)
    for group, members in enumerate(groups):
        number[list(members)] = group
    return x.new_zeros(*x.shape[:-1], len(groups)).index_add_(-1, number, x)


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """Every map of a model for one input, what was read, what was answered, and what was written."""

    model: str  # the family
    maps: tuple[AttentionMap, ...]
    texts: tuple[str, ...]  # what was read, then what was written: tokens say which of them they are of
    answer: str = ""
    generated_text: str = ""
    image: np.ndarray | None = None  # (rows, columns, channels), bytes
    no_answer_reason: str = ""  # why there is no answer, where there is none
    truncated_at: int | None = None  # the number of tokens after which writing was stopped, if it did not end by itself
    max_output_tokens: int | None = (
        None  # the most tokens that could be written after what was read; None: no limit, or nothing is written
    )
    truncated_input_tokens: int = 0  # tokens at the end of the text that the model did not read

    def __len__(self) -> int:
        return len(self.maps)

    def __iter__(self) -> Iterator[AttentionMap]:
        return iter(self.maps)

    def __getitem__(self, number: int) -> AttentionMap:
        return self.maps[number]

    def __repr__(self) -> str:
        said = f", answer {self.answer!r}" if self.answer else ""
        return f"AttentionMaps({self.model}, {len(self)} maps{said})"

    def select(
        self,
        kind: str | None = None,
        side: str | None = None,
        *,
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        queries: Sequence[int] | None = None,
    ) -> "AttentionMaps":
        """Some of the maps; layers count from 0 on each side, and -1 is the last."""
        found = [m for m in self.maps if kind in (None, m.kind) and side in (None, m.side)]
        if layers is not None:
            found = [m for m in found if m.layer in _resolve_layers(layers, found, m)]
        if not found:
            had = ", ".join(dict.fromkeys(m.title for m in self.maps))
            raise UsageError(
                f"No map is of kind {kind or 'any'}, side {side or 'any'}, layers {layers}; there are {had}."
            )
        return replace(self, maps=tuple(m.select(heads=heads, queries=queries) for m in found))

    def most_informative(self) -> AttentionMap:
        """The map that says most to a person: the last look at what was read, or the last of all."""
        for kind in ("image", "cross", "self", "gate"):
            found = [m for m in self.maps if m.kind == kind]
            if found:
                return found[-1]
        if not self.maps:
            raise UsageError("There are no maps here: every layer was left out.")
        return self.maps[-1]

    def merge_subwords(self) -> "AttentionMaps":
        """Sub-words joined to words in every map."""
        return replace(self, maps=tuple(m.merge_subwords(self.texts) for m in self.maps))

    def drop_special_tokens(self) -> "AttentionMaps":
        """Every map without tokens that stand for no text, such as [CLS], which win most tables of the largest weights."""
        return replace(self, maps=tuple(m.drop_special_tokens() for m in self.maps))

    def plot(self) -> "Figure":
        """A matplotlib figure of all maps: one head with all names, all heads side by side, or an image under each row."""
        from saccade.explain.plots import plot_attention  # which knows what looks are

        return plot_attention(self)

    def save(self, path: str | Path) -> Path:
        """Write one file by its suffix: an image (.png, .svg, .pdf), a page (.html), else data that `AttentionMaps.load` reads.

        The data are safetensors with weights in half precision.
        """
        from saccade.explain.plots import IMAGE_SUFFIXES, save_attention_plot
        from saccade.explain.serialize import save_maps

        path = Path(path)
        if path.suffix.lower() in HTML_SUFFIXES:
            return self.to_html(path)
        return save_attention_plot(self, path) if path.suffix.lower() in IMAGE_SUFFIXES else save_maps(self, path)

    def to_html(self, path: str | Path, *, title: str = "") -> Path:
        """Write everything as one HTML page, which loads nothing from elsewhere."""
        from saccade.explain.html_report import write_html_report

        write_html_report(self, Path(path), title=title)
        return Path(path)

    def to_pandas(self) -> "pd.DataFrame":
        """A table with a row for each weight: side, layer, kind, head, query and key with their positions, and the weight.

        Of maps that kept the largest weights alone (`TopK`), those are the rows. Needs the package pandas.
        """
        from saccade.explain.serialize import make_data_frame

        return make_data_frame(self)

    def summary(self) -> str:
        """The prediction, and a line for each head: what it does, and its three strongest links."""
        from saccade.explain.text_summary import format_summary

        return "\n".join(format_summary(self))

    @staticmethod
    def load(path: str | Path) -> "AttentionMaps":
        from saccade.explain.serialize import load_maps

        return load_maps(Path(path))

    def _repr_html_(self) -> str:
        from saccade.explain.html_report import render_notebook_html

        return render_notebook_html(self)


def _resolve_layers(layers: Sequence[int], maps: Sequence[AttentionMap], reference: AttentionMap) -> list[int]:
    """Numbers of layers among maps of one kind and side; negative ones count from the last."""
    count = 1 + max(m.layer for m in maps if (m.kind, m.side) == (reference.kind, reference.side))
    return [layer + count if layer < 0 else layer for layer in layers]
