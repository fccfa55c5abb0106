"""Lessons on vanishing and exploding gradients: residual connections in deep stacks, and gates through time."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from saccade.attention import CAUSAL, FULL, Sight
from saccade.lessons.base import Control, Figure, Lesson, LessonResult, LineChart, Table, format_significant, pluralize
from saccade.lessons.common import build_seeded, draw_normal
from saccade.parts.feedforward import FeedForward
from saccade.parts.layer import Layer, LayerContext, Sublayer
from saccade.parts.multihead_attention import Attention
from saccade.parts.recurrent import Recurrent, gru_cell, lstm_cell

WIDTH, HEADS, WORD_COUNT = 16, 2, 8
TEXT_COUNT = 64  # random texts over which gradient norms through time are averaged


class NoResidual(Sublayer):
    """A sublayer without its residual connection, for comparison."""

    def forward(self, x: Tensor, *args: object, **options: object) -> Tensor:
        return self.branch(self.norm(x), *args, **options)


make_norm = lambda: nn.LayerNorm(WIDTH, dtype=torch.float64)
SUBLAYER_KINDS: dict[str, Callable[[nn.Module], Sublayer]] = {
    "residual, pre-norm": lambda branch: Sublayer(branch, make_norm(), norm_first=True),
    "residual, post-norm": lambda branch: Sublayer(branch, make_norm(), norm_first=False),
    "residual only": lambda branch: Sublayer(branch, nn.Identity(), norm_first=True),
    "norm only": lambda branch: NoResidual(branch, make_norm(), norm_first=True),
    "neither": lambda branch: NoResidual(branch, nn.Identity(), norm_first=True),
}


def make_branches(depth: int, weight_scale: float) -> list[nn.ModuleList]:
    """Attention and feed-forward of each layer, with random weights multiplied by `weight_scale`, in double precision."""
    make = lambda: nn.ModuleList([Attention(WIDTH, HEADS), FeedForward(WIDTH, 4 * WIDTH)])
    branches = [build_seeded(make, seed).double() for seed in range(depth)]
    for weight in nn.ModuleList(branches).parameters():
        weight.data *= weight_scale
    return branches


def run_layers(kind: str, branches: list[nn.ModuleList], x: Tensor) -> list[Tensor]:
    """The input of each layer, with sublayers of this kind, and the output of the last layer."""
    context, activations = LayerContext(Sight(FULL)), [x]
    for attention, feedforward in branches:
        layer = Layer(SUBLAYER_KINDS[kind](attention), SUBLAYER_KINDS[kind](feedforward))
        activations.append(layer(activations[-1], context))
    return activations


def gradient_norms_by_depth(kind: str, branches: list[nn.ModuleList]) -> list[float]:
    """The norm of the gradient at the input of each layer, and at the output of the last layer."""
    x, direction = draw_normal(1, 1, WORD_COUNT, WIDTH).double(), draw_normal(2, 1, WORD_COUNT, WIDTH).double()
    activations = run_layers(kind, branches, x.requires_grad_())
    gradients = torch.autograd.grad((activations[-1] * direction).sum(), activations)
    return [gradient.norm().item() for gradient in gradients]


def compute_residuals(settings: dict[str, str]) -> LessonResult:
    """Gradient norms by depth in five kinds of stacks."""
    depth, weight_scale = int(float(settings["layers"])), float(settings["spread"])
    branches = make_branches(depth, weight_scale)
    norms = {kind: gradient_norms_by_depth(kind, branches) for kind in SUBLAYER_KINDS}
    ratios = {kind: line[0] / line[-1] for kind, line in norms.items()}
    pre_norm, post_norm, _, norm_only, neither = (format_significant(ratio) for ratio in ratios.values())
    summary = (
        f"The gradient at the input of {pluralize(depth, 'layer')} is {pre_norm} times as large as at the output with residual "
        f"connections and pre-norm, {post_norm} times with post-norm, {norm_only} times with norms only, and {neither} times "
        "with neither."
    )
    return LessonResult(summary, make_comparison("number of layers below", norms, ratios, "input relative to output"))


def make_comparison(x_label: str, norms: dict[str, list[float]], ratios: dict[str, float], ends: str) -> list[Figure]:
    """A line chart of gradient norms, and a table of their ratios."""
    # a logarithmic axis has no point for a norm of zero
    lines = {name: [(float(i), norm or math.nan) for i, norm in enumerate(line)] for name, line in norms.items()}
    rows = [[name, format_significant(ratio, 3)] for name, ratio in ratios.items()]
    return [
        LineChart("norm of the backpropagated gradient", x_label, "gradient norm", lines, log_y=True),
        Table(f"gradient norm, {ends}", ["", "ratio"], rows),
    ]


def make_gated_rnn(cell: str, gate_bias: float) -> Recurrent:
    """A recurrent layer with this bias of its forget gate, or update gate: the higher it is, the more is kept."""
    layer = build_seeded(lambda: Recurrent(WIDTH, WIDTH, cell))
    layer.fused.bias_ih_l0.data[WIDTH : 2 * WIDTH] = gate_bias  # the second gate of either cell
    return layer.double()


def make_encoders(gate_bias: float) -> dict[str, Callable[[Tensor], Tensor]]:
    """Four encoders, x (B, L, W) to (B, L, W), in double precision, because vanishing gradients underflow in single precision."""
    plain = build_seeded(lambda: nn.RNN(WIDTH, WIDTH, batch_first=True)).double()
    attention = build_seeded(lambda: Attention(WIDTH, HEADS)).double()
    return {
        "plain RNN": lambda x: plain(x)[0],
        "LSTM": make_gated_rnn("lstm", gate_bias),
        "GRU": make_gated_rnn("gru", gate_bias),
        "attention": lambda x: attention(x, Sight(CAUSAL)),
    }


def gradient_norms_back(encode: Callable[[Tensor], Tensor], length: int, texts: int = TEXT_COUNT) -> list[float]:
    """Gradient norms of the last output with respect to each word, the last word first: means over random texts."""
    x = draw_normal(1, texts, length, WIDTH).double().requires_grad_()
    (gradient,) = torch.autograd.grad((encode(x)[:, -1] * draw_normal(2, texts, WIDTH).double()).sum(), x)
    return gradient.norm(dim=-1).mean(0).flip(0).tolist()


def compute_time(settings: dict[str, str]) -> LessonResult:
    """Gradient norms through time in four encoders."""
    length, bias = int(float(settings["length"])), float(settings["bias"])
    norms = {name: gradient_norms_back(encode, length) for name, encode in make_encoders(bias).items()}
    ratios = {name: line[-1] / line[0] for name, line in norms.items()}
    rnn, lstm, gru, attention = (format_significant(ratio) for ratio in ratios.values())
    summary = (
        f"The gradient of the last output with respect to the first of {length} words is {rnn} times as large as with respect to "
        f"the last word in the plain RNN, {lstm} times in the LSTM, {gru} times in the GRU and {attention} times in attention, "
        f"where every word is one step away. Each gradient is a mean over {TEXT_COUNT} random texts."
    )
    return LessonResult(
        summary, make_comparison("words back from the last", norms, ratios, "first word relative to last")
    )


LESSONS = (
    Lesson(
        name="residuals",
        title="Why residual connections",
        description="Backpropagation multiplies the gradient by the Jacobian of every layer. Without residual connections each "
        "product shrinks or enlarges the gradient, depending on the scale of the weights, and after many layers the gradient "
        "has vanished or exploded. A residual connection adds the input of a branch to its output, so the Jacobian is the "
        "identity plus that of the branch: the gradient has a direct path to the first layer. Layer normalization rescales "
        "the activations, and its position matters. Before each branch (pre-norm) it leaves the direct path open; after the "
        "sum (post-norm) it is on that path, and with a large weight scale most of the gradient is lost in a deep stack. With "
        "a small weight scale the two hardly differ. The weights are random, as at initialization.",
        formula="y = x + f(x),   ∂y/∂x = I + ∂f/∂x",
        code=(Sublayer, NoResidual),
        controls=(
            Control("layers", "Number of layers", "range", "20", 1, 24, 1),
            Control("spread", "Scale of the weights", "range", "1", 0.25, 1.5, 0.25),
        ),
        compute=compute_residuals,
    ),
    Lesson(
        name="time",
        title="Gates and backpropagation through time",
        description="A recurrent network is as deep as its text is long: the effect of the first word on the last output passes "
        "through every step in between. Backpropagation through a plain cell multiplies the gradient by the same weight "
        "matrix at every step, so it vanishes or explodes. A gated cell can leave its state unchanged: the closer its forget "
        "gate (in a GRU, its update gate) is to one, the more of the gradient is preserved. Attention connects the output to "
        "every word directly, in one step.",
        formula="c(t) = f ⊙ c(t-1) + i ⊙ g,   ∂c(t)/∂c(t-1) = diag(f) + terms through the gates",
        code=(lstm_cell, gru_cell),
        controls=(
            Control("length", "Text length in words", "range", "40", 2, 100, 1),
            Control("bias", "Bias of the forget gate (LSTM) or update gate (GRU)", "range", "3", -2, 6, 0.5),
        ),
        compute=compute_time,
    ),
)
