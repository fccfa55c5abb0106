"""Linear layers for inference with packed weights: int8, bfloat16, float16 or float32.

int8 weights have one scale per row, and inputs are quantized dynamically. Without VNNI the int8 kernel adds pairs of products in
16 bits, which 8-bit inputs could overflow, so inputs are quantized to 7 bits. PyTorch has deprecated its quantized tensors and
warns about them; their use, and the handling of that warning, is confined to this file.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.engine.kernels.matrix import PackedMatrix
from saccade.engine.native import ops, reference_ops
from saccade.errors import ModelError
from saccade.parts.feedforward import ACTIVATIONS

MIN_ONEDNN_WEIGHTS = 2**17  # below this number of weights the call overhead of oneDNN outweighs its speed
ONEDNN_ACTIVATIONS: dict[str, tuple[str, str]] = {  # our names -> oneDNN's
    "none": ("none", ""),
    "relu": ("relu", ""),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "silu": ("swish", ""),
    "tanh": ("tanh", ""),
}


class PackedLinear(nn.Module):
    """A linear layer for inference with packed weights: activation(xWᵀ + b) + add."""

    precision: str
    kv_dtype = torch.float32  # dtype of keys and values that this layer computes, in the KV cache

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bias = None if bias is None else bias.detach().to(torch.float32, copy=True)

    def multiply(self, x: Tensor) -> Tensor:
        """xWᵀ + b, for x (..., in) to (..., out)."""
        raise NotImplementedError(f"{type(self).__name__} must implement multiply()")

    def forward(self, x: Tensor, activation: str = "none", add: Tensor | None = None) -> Tensor:
        y = self.multiply(x)
        y = y if activation == "none" else ACTIVATIONS[activation](y)
        return y if add is None else y + add

    def extra_repr(self) -> str:
        return f"{self.in_features} to {self.out_features}, {self.precision}"


class Int8Linear(PackedLinear):
    """int8 weights, one byte each, multiplied by PyTorch's dynamic quantization kernel."""

    precision = "int8"

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__(weight, bias)
        codes, scales = reference_ops.quantize(weight.detach().float())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zero_points = torch.zeros(len(scales), dtype=torch.long)
            scales = scales.double().clamp(min=torch.finfo(torch.float32).tiny)
            tensor = torch._make_per_channel_quantized_tensor(codes, scales, zero_points, 0)
            self.weights = torch.ops.quantized.linear_prepack(tensor, self.bias)

    def multiply(self, x: Tensor) -> Tensor:
        # True: reduce_range, which quantizes inputs to 7 bits
        return call_kernel(
            lambda rows: torch.ops.quantized.linear_dynamic(rows, self.weights, True), x, self.out_features
        )


class Float16Linear(PackedLinear):
    """float16 weights; products and sums are float32."""

    precision = "float16"

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__(weight, bias)
        largest = float(weight.detach().abs().amax()) if weight.numel() else 0.0
        if largest > torch.finfo(torch.float16).max:
            raise ModelError(
                f"The largest float16 number is 65,504 and these weights reach {largest:,.0f}; use precision='float32'."
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.weights = torch.ops.quantized.linear_prepack_fp16(weight.detach().float().contiguous(), self.bias)

    def multiply(self, x: Tensor) -> Tensor:
        return call_kernel(
            lambda rows: torch.ops.quantized.linear_dynamic_fp16(rows, self.weights), x, self.out_features
        )


class Float32Linear(PackedLinear):
    """float32 weights in oneDNN's blocked layout."""

    precision = "float32"

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__(weight, bias)
        self.weights = torch.ops.mkldnn._reorder_linear_weight(weight.detach().float().contiguous(), 1)

    def multiply(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weights, self.bias, "none", [], "")

    def forward(self, x: Tensor, activation: str = "none", add: Tensor | None = None) -> Tensor:
        if not x.numel():
            return x.new_zeros(*x.shape[:-1], self.out_features)
        name, algorithm = ONEDNN_ACTIVATIONS[activation]
        y = torch.ops.mkldnn._linear_pointwise(x, self.weights, self.bias, name, [], algorithm)
        return y if add is None else y + add


class SharedWeightLinear(PackedLinear):
    """float32 weights that are used in place, such as those tied to a token embedding."""

    precision = "float32"

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__(weight, bias)
        self.weights = weight  # the parameter itself, so that it stays tied

    def multiply(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weights, self.bias)


class Int8TiledLinear(PackedLinear):
    """int8 weights multiplied by the native operator, which quantizes inputs to 128 levels in groups of 64 columns.

    A result therefore does not depend on the other rows of the batch, and the quantization error is a third smaller than with
    `Int8Linear`, which has one input scale for the whole batch. It is faster for one or two tokens, and as fast for hundreds.
    """

    precision = "int8"
    kv_dtype = torch.float16  # much finer than the 128 levels of quantized inputs

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__(weight, bias)
        self.bias, self.weights = None, ops.Int8Tiles(weight, bias)

    def multiply(self, x: Tensor) -> Tensor:
        return self.weights(x)

    def forward(self, x: Tensor, activation: str = "none", add: Tensor | None = None) -> Tensor:
        if activation in ops.ACTIVATION_CODES:
            return self.weights(x, activation, add)
        return super().forward(x, activation, add)


class PanelLinear(PackedLinear):
    """Weights in int8, bfloat16 or float32, multiplied by the encoder kernels; an input row is quantized by itself."""

    def __init__(self, weight: Tensor, bias: Tensor | None, precision: str):
        super().__init__(weight, None)
        self.precision, self.matrix = precision, PackedMatrix(weight, bias, precision)

    def multiply(self, x: Tensor) -> Tensor:
        return self.matrix(x)

    def forward(self, x: Tensor, activation: str = "none", add: Tensor | None = None) -> Tensor:
        if activation in ops.ACTIVATION_CODES:
            return self.matrix(x, activation, add)
        return super().forward(x, activation, add)


class Int8Embedding(nn.Module):
    """A token embedding tied to an int8 output layer: rows are read from its tiles, so that the table is stored once."""

    def __init__(self, packed: ops.Int8Tiles):
        super().__init__()
        self.packed = packed
        self.num_embeddings, self.embedding_dim = packed.rows, packed.columns

    def forward(self, tokens: Tensor) -> Tensor:
        packed, rows = self.packed, ops.TILE_ROWS
        codes = packed.tiles[tokens // rows, :, tokens % rows].flatten(-2)[..., : packed.columns]  # (..., W)
        return codes * packed.row_scales[tokens].unsqueeze(-1)

    @property
    def weight(self) -> Tensor:
        """The whole embedding table (V, W), dequantized."""
        codes, scales = self.packed.unpack()
        return codes * scales[:, None]


LinearPacker = Callable[[Tensor, Tensor | None], PackedLinear]  # weight (out, in) and bias to a layer


def choose_packer(precision: str) -> LinearPacker:
    """The function that packs linear layers at a precision."""
    if precision == "int8":
        return Int8TiledLinear if ops.is_available() else Int8Linear
    if precision == "bfloat16":
        return partial(PanelLinear, precision=precision)
    if precision == "float16":
        return Float16Linear
    return pack_float32


def pack_float32(weight: Tensor, bias: Tensor | None) -> PackedLinear:
    """Pack a float32 layer in oneDNN's layout if it is large enough to be faster that way."""
    use_onednn = torch.backends.mkldnn.is_available() and weight.numel() >= MIN_ONEDNN_WEIGHTS
    return (Float32Linear if use_onednn else SharedWeightLinear)(weight, bias)


def call_kernel(multiply: Callable[[Tensor], Tensor], x: Tensor, width: int) -> Tensor:
    """Call a kernel that needs at least one row and at least two axes."""
    if not x.numel():
        return x.new_zeros(*x.shape[:-1], width)
    return multiply(x) if x.dim() > 1 else multiply(x[None])[0]


def fuse_linears(layers: Sequence[nn.Linear], pack: LinearPacker) -> PackedLinear:
    """Fuse linear layers with the same input into one, whose output concatenates theirs."""
    weight = torch.cat([layer.weight.detach() for layer in layers])
    biases = [layer.bias for layer in layers]
    if all(bias is None for bias in biases):
        return pack(weight, None)
    zeros = [weight.new_zeros(layer.out_features) for layer in layers]
    return pack(weight, torch.cat([zero if b is None else b.detach() for b, zero in zip(biases, zeros, strict=True)]))
