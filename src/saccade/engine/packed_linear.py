"""Linear layers with their weights laid out for the kernel: int8, float16 or float32.

int8 has one scale for each row of the weights; what enters is rounded as it comes. Without VNNI the kernel adds pairs of
products in 16 bits, which 8-bit inputs can overflow, so they are rounded to 7 bits there. PyTorch has announced the end of its
quantised tensors and warns of it: they, and the warning, stay in this file.
"""

import warnings
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.engine.native import ops, reference_ops
from saccade.errors import ModelError
from saccade.parts.feedforward import ACTIVATIONS

MIN_ONEDNN_WEIGHTS = 2**17  # weights; fewer are multiplied before oneDNN has begun
ONEDNN_ACTIVATIONS: dict[str, tuple[str, str]] = {  # what oneDNN calls our activations
    "none": ("none", ""),
    "relu": ("relu", ""),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "silu": ("swish", ""),
    "tanh": ("tanh", ""),
}


class PackedLinear(nn.Module):
    """A linear layer that answers and no longer learns: act(xWᵀ + b) + add."""

    precision: str
    kv_dtype = torch.float32  # what the keys and values that it makes are remembered in

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bias = None if bias is None else bias.detach().to(torch.float32, copy=True)

    def multiply(self, x: Tensor) -> Tensor:
        """xWᵀ + b, for x (..., in) to (..., out)."""
        raise NotImplementedError(f"{type(self).__name__} must say how it multiplies")

    def forward(self, x: Tensor, activation: str = "none", add: Tensor | None = None) -> Tensor:
        y = self.multiply(x)
        y = y if activation == "none" else ACTIVATIONS[activation](y)
        return y if add is None else y + add

    def extra_repr(self) -> str:
        return f"{self.in_features} to {self.out_features}, {self.precision}"


class Int8Linear(PackedLinear):
    """One byte a weight, multiplied by PyTorch's kernel."""

    precision = "int8"

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__(weight, bias)
        codes, scales = reference_ops.quantize(weight.detach().float())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole = torch.zeros(len(scales), dtype=torch.long)
            scales = scales.double().clamp(min=torch.finfo(torch.float32).tiny)
            tensor = torch._make_per_channel_quantized_tensor(codes, scales, whole, 0)
            self.weights = torch.ops.quantized.linear_prepack(tensor, self.bias)

    def multiply(self, x: Tensor) -> Tensor:
        # True: seven bits, so nothing overflows
        return call_kernel(
            lambda rows: torch.ops.quantized.linear_dynamic(rows, self.weights, True), x, self.out_features
        )


class Float16Linear(PackedLinear):
    """Two bytes a weight; products and sums are float32."""

    precision = "float16"

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__(weight, bias)
        largest = float(weight.detach().abs().amax()) if weight.numel() else 0.0
        if largest > torch.finfo(torch.float16).max:
            raise ModelError(f"float16 ends at 65,504 and these weights reach {largest:,.0f}; use precision='float32'.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.weights = torch.ops.quantized.linear_prepack_fp16(weight.detach().float().contiguous(), self.bias)

    def multiply(self, x: Tensor) -> Tensor:
        return call_kernel(
            lambda rows: torch.ops.quantized.linear_dynamic_fp16(rows, self.weights), x, self.out_features
        )


class Float32Linear(PackedLinear):
    """The weights as they are, in the blocks that oneDNN multiplies."""

    precision = "float32"

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__(weight, bias)
        self.weights = torch.ops.mkldnn._reorder_linear_weight(weight.detach().float().contiguous(), 1)

    def multiply(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weights, self.bias, "none", [], "")

    def forward(self, x: Tensor, activation: str = "none", add: Tensor | None = None) -> Tensor:
        if not x.numel():
            return x.new_zeros(*x.shape[:-1], self.out_features)
        bend, how = ONEDNN_ACTIVATIONS[activation]
        y = torch.ops.mkldnn._linear_pointwise(x, self.weights, self.bias, bend, [], how)
        return y if add is None else y + add


class SharedWeightLinear(PackedLinear):
    """float32 weights that somebody else needs as they are, such as the table of words: used in place, not copied."""

    precision = "float32"

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__(weight, bias)
        self.weights = weight  # the parameter itself, so that it stays one with theirs

    def multiply(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weights, self.bias)


class Int8TiledLinear(PackedLinear):
    """One byte a weight, multiplied by our own operator, which rounds every 64 numbers of a row of the input to 128 levels of
    their own.

    So an answer does not depend on who else is in the batch, and a third less is lost than with `Int8`, which has one scale for
    all rows. It is quicker for a token or two, and as quick for hundreds.
    """

    precision = "int8"
    kv_dtype = torch.float16  # finer by far than the 128 levels of what enters a product

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__(weight, bias)
        self.bias, self.weights = None, ops.Int8Tiles(weight, bias)

    def multiply(self, x: Tensor) -> Tensor:
        return self.weights(x)

    def forward(self, x: Tensor, activation: str = "none", add: Tensor | None = None) -> Tensor:
        if activation in ops.ACTIVATION_CODES:
            return self.weights(x, activation, add)
        return super().forward(x, activation, add)


class Int8Embedding(nn.Module):
    """The words of a model whose output scores by the same table: read from its tiles, so that there is one table, in int8."""

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
        """The whole table, (V, W), for whoever must have it."""
        codes, scales = self.packed.unpack()
        return codes * scales[:, None]


LinearPacker = Callable[[Tensor, Tensor | None], PackedLinear]  # weight (out, in) and bias to a layer


def choose_packer(precision: str) -> LinearPacker:
    """How linear layers are packed."""
    if precision == "int8":
        return Int8TiledLinear if ops.is_available() else Int8Linear
    if precision == "float16":
        return Float16Linear
    return pack_float32


def pack_float32(weight: Tensor, bias: Tensor | None) -> PackedLinear:
    """The weights in oneDNN's blocks, where they are many enough to pay for its longer way in."""
    worth = torch.backends.mkldnn.is_available() and weight.numel() >= MIN_ONEDNN_WEIGHTS
    return (Float32Linear if worth else SharedWeightLinear)(weight, bias)


def call_kernel(multiply: Callable[[Tensor], Tensor], x: Tensor, width: int) -> Tensor:
    """Call a kernel that wants at least one row and at least two axes."""
    if not x.numel():
        return x.new_zeros(*x.shape[:-1], width)
    return multiply(x) if x.dim() > 1 else multiply(x[None])[0]


def fuse_linears(layers: Sequence[nn.Linear], pack: LinearPacker) -> PackedLinear:
    """Several layers with the same input as one product, their outputs side by side."""
    weight = torch.cat([layer.weight.detach() for layer in layers])
    biases = [layer.bias for layer in layers]
    if all(bias is None for bias in biases):
        return pack(weight, None)
    zeros = [weight.new_zeros(layer.out_features) for layer in layers]
    return pack(weight, torch.cat([zero if b is None else b.detach() for b, zero in zip(biases, zeros, strict=True)]))
