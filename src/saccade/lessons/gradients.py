"""Lessons on gradients: what residual connections do by depth, and what gates do through time; from real backward passes."""

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
TEXT_COUNT = 64  # random texts over which a gradient through time is averaged


class NoResidual(Sublayer):
    """A branch without its residual connection: what a layer would be if nothing led past it."""

    def forward(self, x: Tensor, *args: object, **options: object) -> Tensor:
        return self.branch(self.norm(x), *args, **options)


make_norm = lambda: nn.LayerNorm(WIDTH, dtype=torch.float64)
SUBLAYER_KINDS: dict[str, Callable[[nn.Module], Sublayer]] = {
    "residual and norm first": lambda branch: Sublayer(branch, make_norm(), norm_first=True),
    "residual and norm last": lambda branch: Sublayer(branch, make_norm(), norm_first=False),
    "residual alone": lambda branch: Sublayer(branch, nn.Identity(), norm_first=True),
    "norm alone": lambda branch: NoResidual(branch, make_norm(), norm_first=True),
    "neither": lambda branch: NoResidual(branch, nn.Identity(), norm_first=True),
}


def make_branches(depth: int, weight_scale: float) -> list[nn.ModuleList]:
    """Attention and feed-forward for every layer, their matrices times `spread`."""
    make = lambda: nn.ModuleList([Attention(WIDTH, HEADS), FeedForward(WIDTH, 4 * WIDTH)])
    made = [
        build_seeded(make, seed).double() for seed in range(depth)
    ]  # what grows with depth soon leaves single precision
    for weight in nn.ModuleList(made).parameters():
        weight.data *= weight_scale
    return made


def run_layers(kind: str, branches: list[nn.ModuleList], x: Tensor) -> list[Tensor]:
    """What each layer is given, its branches wrapped as the kind says, and what comes out at the top."""
    scene, found = LayerContext(Sight(FULL)), [x]
    for attention, feedforward in branches:
        layer = Layer(SUBLAYER_KINDS[kind](attention), SUBLAYER_KINDS[kind](feedforward))
        found.append(layer(found[-1], scene))
    return found


def gradient_norms_by_depth(kind: str, branches: list[nn.ModuleList]) -> list[float]:
    """The size of the gradient at the input of each layer, and at the top."""
    x, wish = draw_normal(1, 1, WORD_COUNT, WIDTH).double(), draw_normal(2, 1, WORD_COUNT, WIDTH).double()
    found = run_layers(kind, branches, x.requires_grad_())
    return [one.norm().item() for one in torch.autograd.grad((found[-1] * wish).sum(), found)]


def compute_residuals(settings: dict[str, str]) -> LessonResult:
    """The gradient on its way down through five stacks."""
    count, spread = int(float(settings["layers"])), float(settings["spread"])
    parts = make_branches(count, spread)
    sizes = {kind: gradient_norms_by_depth(kind, parts) for kind in SUBLAYER_KINDS}
    shares = {kind: size[0] / size[-1] for kind, size in sizes.items()}
    said = (
        f"The gradient at the bottom of {pluralize(count, 'layer')} is {format_significant(shares['residual and norm first'])} times that "
        f"at the top with residual connections and the norm before each branch, {format_significant(shares['residual and norm last'])} "
        f"times with the norm after the sum, {format_significant(shares['norm alone'])} times with norms alone, and "
        f"{format_significant(shares['neither'])} times with neither."
    )
    return LessonResult(said, make_comparison("layers below", sizes, shares, "bottom against top"))


def make_comparison(x_label: str, sizes: dict[str, list[float]], ratios: dict[str, float], ends: str) -> list[Figure]:
    """Sizes of a gradient along its way as lines, and one end against the other as a table."""
    # where nothing arrives there is no point on a logarithmic axis
    lines = {name: [(float(at), one or math.nan) for at, one in enumerate(size)] for name, size in sizes.items()}
    rows = [[name, format_significant(one, 3)] for name, one in ratios.items()]
    return [
        LineChart("gradient on its way", x_label, "norm of the gradient", lines, log_y=True),
        Table(f"gradient, {ends}", ["", "times"], rows),
    ]


def make_gated_rnn(cell: str, gate_bias: float) -> Recurrent:
    """A recurrent layer whose forget (or update) gate begins at this bias: the higher, the more is kept."""
    made = build_seeded(lambda: Recurrent(WIDTH, WIDTH, cell))
    made.fused.bias_ih_l0.data[WIDTH : 2 * WIDTH] = gate_bias  # the second gate of both
    return made.double()


def make_encoders(gate_bias: float) -> dict[str, Callable[[Tensor], Tensor]]:
    """Four ways to read a text: x (B, L, W) to (B, L, W), in double precision, since what vanishes soon leaves the single one."""
    plain = build_seeded(lambda: nn.RNN(WIDTH, WIDTH, batch_first=True)).double()
    attention = build_seeded(lambda: Attention(WIDTH, HEADS)).double()
    return {
        "plain RNN": lambda x: plain(x)[0],
        "LSTM": make_gated_rnn("lstm", gate_bias),
        "GRU": make_gated_rnn("gru", gate_bias),
        "attention": lambda x: attention(x, Sight(CAUSAL)),
    }


def gradient_norms_back(encode: Callable[[Tensor], Tensor], length: int, texts: int = TEXT_COUNT) -> list[float]:
    """How much the last output depends on each word, by how far back it stands: the mean over random texts."""
    x = draw_normal(1, texts, length, WIDTH).double().requires_grad_()
    (gradient,) = torch.autograd.grad((encode(x)[:, -1] * draw_normal(2, texts, WIDTH).double()).sum(), x)
    return gradient.norm(dim=-1).mean(0).flip(0).tolist()


def compute_time(settings: dict[str, str]) -> LessonResult:
    """The gradient on its way back through a text, in four readers."""
    length, bias = int(float(settings["length"])), float(settings["bias"])
    sizes = {name: gradient_norms_back(read, length) for name, read in make_encoders(bias).items()}
    shares = {name: size[-1] / size[0] for name, size in sizes.items()}
    said = (
        f"The gradient of the last output by the first of {length} words is {format_significant(shares['plain RNN'])} times that by the "
        f"last word in the plain RNN, {format_significant(shares['LSTM'])} times in the LSTM, {format_significant(shares['GRU'])} times in the GRU "
        f"and {format_significant(shares['attention'])} times in attention, where every word is one step away and shares the weights "
        f"with all the others; each is a mean over {TEXT_COUNT} random texts."
    )
    return LessonResult(said, make_comparison("words back", sizes, shares, "first word against last"))


LESSONS = (
    Lesson(
        name="residuals",
        title="Why residual connections",
        description="Back-propagation multiplies by the derivative of every layer on the way. Where nothing leads past the layers, "
        "each product shrinks or grows what passes, by how widely the weights are spread, and after many of them the "
        "gradient has vanished before the first layer, or exploded. A residual connection adds the input to what the branch "
        "makes of it, so the derivative is the identity plus that of the branch: the gradient has a straight way down. A norm "
        "brings back to size what passes, and where it stands matters: before each branch it leaves that way open; after the "
        "sum it stands on it, and where the weights are widely spread most of the gradient is lost in a deep stack. With "
        "narrow weights the two hardly differ. The weights are drawn at random, as before training.",
        formula="y = x + f(x),   ∂y/∂x = I + ∂f/∂x",
        code=(Sublayer, NoResidual),
        controls=(
            Control("layers", "Layers of the stack", "range", "20", 1, 24, 1),
            Control("spread", "How widely the weights are spread", "range", "1", 0.25, 1.5, 0.25),
        ),
        compute=compute_residuals,
    ),
    Lesson(
        name="time",
        title="Gates and backpropagation through time",
        description="A recurrent network is as deep as its text is long: what the first word does to the last output goes through "
        "every step between. A plain cell multiplies by the same matrix each time, and the gradient vanishes or explodes. "
        "A gated cell can leave its memory alone: the more its forget gate keeps, the straighter the way back. Attention "
        "looks at every word directly, one step away.",
        formula="c(t) = f ⊙ c(t-1) + i ⊙ g,   ∂c(t)/∂c(t-1) = f (and what goes through the gates)",
        code=(lstm_cell, gru_cell),
        controls=(
            Control("length", "Words of the text", "range", "40", 2, 100, 1),
            Control("bias", "Bias of the gate that keeps: how open it begins", "range", "3", -2, 6, 0.5),
        ),
        compute=compute_time,
    ),
)
