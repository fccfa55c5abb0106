"""An encoder as one native call: embeddings, all layers and pooling of a batch of texts, without padding and without Python code
in between.

program = EncoderProgram(layers, width=384, embedding=tables)
hidden = program.encode(lengths=[3, 2], tokens=torch.tensor([5, 6, 7, 5, 8]))     # (5, 384), text after text
vectors = program.encode(lengths=lengths, tokens=tokens, pool="mean")                            # (2, 384)
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from saccade.engine.int8_linear import ACTIVATION_CODES
from saccade.engine.kernels import library
from saccade.engine.kernels.matrix import (
    FORMAT_CODES,
    INT,
    PANEL_COLUMNS,
    POINTER,
    MatrixStruct,
    PackedMatrix,
    thread_count,
)
from saccade.engine.native.check_args import FLOAT, make_contiguous, to_native_input
from saccade.errors import ModelError, ResourceError

POOLS = ("none", "mean", "first")  # in the order of `Pool` in encoder.h
MAX_HEAD_WIDTH = 512
MAX_THREADS = 16


class NormStruct(ctypes.Structure):
    """`Norm` of kernels.h."""

    _fields_ = (("weight", POINTER), ("bias", POINTER), ("eps", ctypes.c_double), ("rms", INT))


class LayerStruct(ctypes.Structure):
    """`Layer` of encoder.h."""

    _fields_ = (
        *((name, MatrixStruct) for name in ("joint", "output", "up", "down")),
        *((name, NormStruct) for name in ("attention_norm", "feedforward_norm")),
        *((name, INT) for name in ("heads", "kv_heads", "head_width", "activation", "gated", "norm_first")),
        ("scale", ctypes.c_double),
        *((name, POINTER) for name in ("output_sums", "down_sums")),
    )


class EmbeddingStruct(ctypes.Structure):
    """`Embedding` of encoder.h."""

    _fields_ = (
        *((name, POINTER) for name in ("words", "positions", "segments")),
        *((name, INT) for name in ("vocab", "max_positions", "segment_types", "width")),
        ("scale", ctypes.c_double),
        ("norm", NormStruct),
        ("project", MatrixStruct),
    )


class EncoderStruct(ctypes.Structure):
    """`Encoder` of encoder.h."""

    _fields_ = (
        ("embedding", EmbeddingStruct),
        ("layers", POINTER),
        *((name, INT) for name in ("count", "width", "format")),
        ("leave", NormStruct),
        ("parts", INT),
    )


class TextsStruct(ctypes.Structure):
    """`Texts` of encoder.h."""

    _fields_ = (
        *((name, POINTER) for name in ("tokens", "segments", "rows", "lengths", "starts")),
        ("count", INT),
        ("out", POINTER),
        ("pool", INT),
    )


@dataclass(frozen=True)
class NormWeights:
    """Layer norm, or the root-mean-square norm."""

    weight: Tensor
    bias: Tensor | None
    eps: float
    is_rms: bool = False

    def to_struct(self) -> NormStruct:
        return NormStruct(
            self.weight.data_ptr(), None if self.bias is None else self.bias.data_ptr(), self.eps, self.is_rms
        )

    def check_width(self, width: int) -> None:
        tensors = (self.weight,) if self.bias is None else (self.weight, self.bias)
        if any(t.shape != (width,) or t.dtype is not FLOAT or not t.is_contiguous() for t in tensors):
            raise ValueError(
                f"A norm of width {width} needs contiguous float32 vectors of that width; got {tensors[0].shape}."
            )


@dataclass(frozen=True)
class EncoderLayer:
    """One encoder layer: self-attention of all rows of a text to all, and a feed-forward, each with its residual and norm."""

    joint: PackedMatrix  # queries, keys and values of all heads
    output: PackedMatrix
    up: PackedMatrix  # gated: the gates, then the values
    down: PackedMatrix
    attention_norm: NormWeights
    feedforward_norm: NormWeights
    heads: int
    kv_heads: int
    head_width: int
    scale: float
    activation: str
    is_gated: bool = False
    norm_first: bool = False

    def check(self, width: int, precision: str) -> None:
        """Check that all sizes fit together: compiled code does not."""
        check_precision((self.joint, self.output, self.up, self.down), precision)
        heads_width, hidden = self.heads * self.head_width, self.down.inputs
        joint_width = heads_width + 2 * self.kv_heads * self.head_width
        shapes = [(m.outputs, m.inputs) for m in (self.joint, self.output, self.up, self.down)]
        needed = [(joint_width, width), (width, heads_width), (hidden * (1 + self.is_gated), width), (width, hidden)]
        if shapes != needed:
            raise ValueError(f"A layer of width {width} needs matrices of the shapes {needed}; got {shapes}.")
        if min(self.heads, self.kv_heads, self.head_width) < 1 or self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} key-value heads evenly.")
        if self.head_width > MAX_HEAD_WIDTH or self.activation not in ACTIVATION_CODES:
            raise ValueError(
                f"An encoder layer takes heads of up to {MAX_HEAD_WIDTH} columns and an activation of "
                f"{', '.join(ACTIVATION_CODES)}; got {self.head_width} and {self.activation!r}."
            )
        for norm in (self.attention_norm, self.feedforward_norm):
            norm.check_width(width)

    def can_divide(self, parts: int) -> bool:
        """Whether `parts` threads can share a text, each with some of the heads and of the columns of the feed-forward."""
        whole_panels = not self.is_gated or self.down.inputs % PANEL_COLUMNS == 0
        group = self.heads // self.kv_heads
        enough = parts <= self.kv_heads and parts * PANEL_COLUMNS <= self.down.inputs
        return enough and whole_panels and group * self.head_width % 4 == 0

    def sum_parts(self, parts: int) -> tuple[Tensor | None, Tensor | None]:
        """The sums of the int8 weights of `output` and `down` over each thread's part of the inputs."""
        panels = -(-self.down.inputs // PANEL_COLUMNS)
        group = self.heads // self.kv_heads * self.head_width
        heads = [self.kv_heads * part // parts * group for part in range(parts + 1)]
        hidden = [min(panels * part // parts * PANEL_COLUMNS, self.down.inputs) for part in range(parts + 1)]
        return self.output.sum_parts(heads), self.down.sum_parts(hidden)


@dataclass(frozen=True)
class EmbeddingTables:
    """Token, segment and position embeddings, which are added up, normalized, and projected to the width of the layers."""

    words: Tensor  # (V, W)
    positions: Tensor | None = None  # (maximum length, W)
    segments: Tensor | None = None  # (segment types, W)
    scale: float = 1.0  # of the token embeddings
    norm: NormWeights | None = None
    project: PackedMatrix | None = None

    def check(self, width: int, precision: str) -> None:
        check_precision(() if self.project is None else (self.project,), precision)
        tables = [t for t in (self.words, self.positions, self.segments) if t is not None]
        columns = self.words.size(-1)
        if any(t.dim() != 2 or t.dtype is not FLOAT or not t.is_contiguous() or t.size(1) != columns for t in tables):
            raise ValueError(
                f"Embedding tables must be contiguous float32 matrices; got {[tuple(t.shape) for t in tables]}."
            )
        if self.norm is not None:
            self.norm.check_width(columns)
        if (columns if self.project is None else self.project.outputs) != width:
            raise ValueError(f"Embeddings of width {columns} do not fit layers of width {width}.")
        if self.project is not None and self.project.inputs != columns:
            raise ValueError(f"Embeddings of width {columns} need a projection of as many inputs.")

    def to_struct(self) -> EmbeddingStruct:
        tables = (self.words, self.positions, self.segments)
        return EmbeddingStruct(
            *(None if t is None else t.data_ptr() for t in tables),
            *(0 if t is None else len(t) for t in tables),
            self.words.size(1),
            self.scale,
            NormStruct() if self.norm is None else self.norm.to_struct(),
            MatrixStruct() if self.project is None else self.project.struct,
        )


class EncoderProgram:
    """All layers of an encoder, and what comes before and after them, for texts without padding."""

    def __init__(
        self,
        layers: Sequence[EncoderLayer],
        width: int,
        precision: str,
        *,
        leave: NormWeights | None = None,
        embedding: EmbeddingTables | None = None,
    ) -> None:
        for layer in layers:
            layer.check(width, precision)
        if any(layer.norm_first != layers[0].norm_first for layer in layers):
            raise ValueError("The layers of an encoder program are all pre-norm or all post-norm.")
        if leave is not None:
            leave.check_width(width)
        if embedding is not None:
            embedding.check(width, precision)
        self.layers, self.width, self.precision = tuple(layers), width, precision
        self.leave, self.embedding = leave, embedding
        self._bound: tuple[EncoderStruct, list[Any]] | None = None

    @property
    def max_tokens(self) -> int | None:
        """Maximum number of tokens of a text; None if there is no limit."""
        positions = None if self.embedding is None else self.embedding.positions
        return None if positions is None else len(positions)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_bound": None}  # a copy has other addresses

    def with_embedding(self, embedding: EmbeddingTables) -> "EncoderProgram":
        """The same program, starting from token ids instead of hidden states; the weights are shared."""
        return EncoderProgram(self.layers, self.width, self.precision, leave=self.leave, embedding=embedding)

    def encode(
        self,
        lengths: Sequence[int],
        *,
        tokens: Tensor | None = None,
        segments: Tensor | None = None,
        rows: Tensor | None = None,
        pool: str = "none",
    ) -> Tensor:
        """Encode texts that lie one behind the other: token ids (N,) or hidden states (N, W) to hidden states (N, W), or pooled
        to (texts, W), where the text i has lengths[i] tokens."""
        count, total, shortest, longest = len(lengths), sum(lengths), min(lengths, default=0), max(lengths, default=0)
        if shortest < 0 or (self.max_tokens is not None and longest > self.max_tokens):
            raise ModelError(f"A text of this model has 0 to {self.max_tokens} tokens; got {shortest} to {longest}.")
        starts = range(count) if pool != "none" else [0, *accumulate(lengths)][:count]
        out = torch.empty(count if pool != "none" else total, self.width)
        if pool != "none" and not shortest:
            out.zero_()  # nothing is written for an empty text
        c_lengths, c_starts = (INT * count)(*lengths), (INT * count)(*starts)
        texts = TextsStruct(count=count, out=out.data_ptr(), pool=POOLS.index(pool))
        texts.lengths, texts.starts = ctypes.addressof(c_lengths), ctypes.addressof(c_starts)
        kept = self._bind_input(texts, total, tokens, segments, rows)
        code = library.library().saccade_encode(
            library.kernels(), ctypes.addressof(self._bind()), ctypes.addressof(texts), thread_count()
        )
        if code < 0:
            raise ResourceError(f"Not enough memory to encode {total:,} tokens; use a smaller batch.")
        if code > 0:
            raise ModelError(self._describe_unknown(code - 1, *kept))
        return out

    def _bind_input(
        self, texts: TextsStruct, total: int, tokens: Tensor | None, segments: Tensor | None, rows: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Check the input and put its addresses into the structure; what is returned must be kept until the call has ended."""
        if (self.embedding is None) == (rows is None) or (rows is None) == (tokens is None):
            raise ValueError(
                "A program with embeddings encodes tokens, and one without encodes rows; pass one of them."
            )
        if rows is not None:
            rows = to_native_input(rows)
            if rows.shape != (total, self.width):
                raise ValueError(f"The lengths need rows of shape ({total}, {self.width}); got {tuple(rows.shape)}.")
            texts.rows = rows.data_ptr()
            return rows, None
        assert tokens is not None, "checked above"
        tokens = _check_vector("tokens", tokens, torch.int32)
        types = None if self.embedding is None else self.embedding.segments
        is_single = types is None or len(types) == 1  # RoBERTa has a single segment, also for pairs
        segments = None if segments is None or is_single else _check_vector("segments", segments, torch.int32)
        if len(tokens) != total or (segments is not None and len(segments) != total):
            raise ValueError(f"The lengths need {total} tokens and as many segments; got {len(tokens)} tokens.")
        texts.tokens = tokens.data_ptr()
        texts.segments = None if segments is None else segments.data_ptr()
        return tokens, segments

    def _describe_unknown(self, index: int, tokens: Tensor | None, segments: Tensor | None) -> str:
        assert tokens is not None, "only a token can be unknown"
        assert self.embedding is not None, "only a program with embeddings looks tokens up"
        vocab = len(self.embedding.words)
        if 0 <= int(tokens[index]) < vocab:
            assert segments is not None, "the token is known"
            return f"Token {index} has the segment {int(segments[index])}, which has no embedding."
        return f"Token {index} has the id {int(tokens[index])}; the ids of this model are 0 to {vocab - 1}."

    def _bind(self) -> EncoderStruct:
        """The C structure with all addresses; the objects that they point to are kept beside it."""
        if self._bound is None:
            parts = min(thread_count(), MAX_THREADS)
            if not all(layer.can_divide(parts) for layer in self.layers):
                parts = 1
            sums = [layer.sum_parts(parts) if parts > 1 else (None, None) for layer in self.layers]
            structs = [_layer_struct(layer, pair) for layer, pair in zip(self.layers, sums, strict=True)]
            array = (LayerStruct * max(len(structs), 1))(*structs)
            encoder = EncoderStruct(
                EmbeddingStruct() if self.embedding is None else self.embedding.to_struct(),
                ctypes.addressof(array),
                len(structs),
                self.width,
                FORMAT_CODES[self.precision],
                NormStruct() if self.leave is None else self.leave.to_struct(),
                parts,
            )
            self._bound = (encoder, [array, sums])
        return self._bound[0]


def check_precision(matrices: Sequence[PackedMatrix], precision: str) -> None:
    """Check that all matrices have the precision of the program."""
    found = {matrix.precision for matrix in matrices}
    if not found <= {precision}:
        raise ValueError(f"A program in {precision} needs matrices of that precision; got {', '.join(sorted(found))}.")


def _layer_struct(layer: EncoderLayer, sums: tuple[Tensor | None, Tensor | None]) -> LayerStruct:
    return LayerStruct(
        *(m.struct for m in (layer.joint, layer.output, layer.up, layer.down)),
        layer.attention_norm.to_struct(),
        layer.feedforward_norm.to_struct(),
        *(layer.heads, layer.kv_heads, layer.head_width, ACTIVATION_CODES[layer.activation]),
        *(layer.is_gated, layer.norm_first, layer.scale),
        *(None if t is None else t.data_ptr() for t in sums),
    )


def _check_vector(name: str, x: Tensor, dtype: torch.dtype) -> Tensor:
    if x.dim() != 1 or x.dtype is not dtype or not x.is_cpu:
        raise ValueError(
            f"{name} must be a vector of {dtype} on the CPU; got {x.dtype} {tuple(x.shape)} on {x.device}."
        )
    return make_contiguous(x)
