"""Lessons on gradients: what residual connections do by depth, and what gates do through time; from real backward passes."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from saccade.attention import CAUSAL, FULL, Sight
from saccade.parts.feedforward import FeedForward
from saccade.parts.layer import Layer, Scene, Sublayer
from saccade.parts.multihead import Attention
from saccade.parts.recurrent import Recurrent, gru_cell, lstm_cell
from saccade.studies.lessons.lesson import Control, Curves, Lesson, Picture, Shown, Table, counted, figure
from saccade.studies.lessons.sentences import drawn, noise

WIDTH, HEADS, WORDS = 16, 2, 8
TEXTS = 64  # random texts over which a gradient through time is averaged


class Bare(Sublayer):
    """A branch without its residual connection: what a layer would be if nothing led past it."""

    def forward(self, x: Tensor, *args: object, **options: object) -> Tensor:
        return self.branch(self.norm(x), *args, **options)


norm = lambda: nn.LayerNorm(WIDTH, dtype=torch.float64)
KINDS: dict[str, Callable[[nn.Module], Sublayer]] = {
    "residual and norm first": lambda branch: Sublayer(branch, norm(), norm_first=True),
    "residual and norm last": lambda branch: Sublayer(branch, norm(), norm_first=False),
    "residual alone": lambda branch: Sublayer(branch, nn.Identity(), norm_first=True),
    "norm alone": lambda branch: Bare(branch, norm(), norm_first=True),
    "neither": lambda branch: Bare(branch, nn.Identity(), norm_first=True),
}


def branches(depth: int, spread: float) -> list[nn.ModuleList]:
    """Attention and feed-forward for every layer, their matrices times `spread`."""
    make = lambda: nn.ModuleList([Attention(WIDTH, HEADS), FeedForward(WIDTH, 4 * WIDTH)])
    made = [drawn(make, seed).double() for seed in range(depth)]  # what grows with depth soon leaves single precision
    for weight in nn.ModuleList(made).parameters():
        weight.data *= spread
    return made


def passed(kind: str, parts: list[nn.ModuleList], x: Tensor) -> list[Tensor]:
    """What each layer is given, its branches wrapped as the kind says, and what comes out at the top."""
    scene, found = Scene(Sight(FULL)), [x]
    for attention, feedforward in parts:
        layer = Layer(KINDS[kind](attention), KINDS[kind](feedforward))
        found.append(layer(found[-1], scene))
    return found


def by_depth(kind: str, parts: list[nn.ModuleList]) -> list[float]:
    """The size of the gradient at the input of each layer, and at the top."""
    x, wish = noise(1, 1, WORDS, WIDTH).double(), noise(2, 1, WORDS, WIDTH).double()
    found = passed(kind, parts, x.requires_grad_())
    return [one.norm().item() for one in torch.autograd.grad((found[-1] * wish).sum(), found)]


def depth(given: dict[str, str]) -> Shown:
    """The gradient on its way down through five stacks."""
    count, spread = int(float(given["layers"])), float(given["spread"])
    parts = branches(count, spread)
    sizes = {kind: by_depth(kind, parts) for kind in KINDS}
    shares = {kind: size[0] / size[-1] for kind, size in sizes.items()}
    said = (
        f"The gradient at the bottom of {counted(count, 'layer')} is {figure(shares['residual and norm first'])} times that "
        f"at the top with residual connections and the norm before each branch, {figure(shares['residual and norm last'])} "
        f"times with the norm after the sum, {figure(shares['norm alone'])} times with norms alone, and "
        f"{figure(shares['neither'])} times with neither."
    )
    return Shown(said, compared("layers below", sizes, shares, "bottom against top"))


def compared(x: str, sizes: dict[str, list[float]], shares: dict[str, float], ends: str) -> list[Picture]:
    """Sizes of a gradient along its way as lines, and one end against the other as a table."""
    # where nothing arrives there is no point on a logarithmic axis
    lines = {name: [(float(at), one or math.nan) for at, one in enumerate(size)] for name, size in sizes.items()}
    rows = [[name, figure(one, 3)] for name, one in shares.items()]
    return [
        Curves("gradient on its way", x, "norm of the gradient", lines, log_y=True),
        Table(f"gradient, {ends}", ["", "times"], rows),
    ]


def opened(cell: str, bias: float) -> Recurrent:
    """A recurrent layer whose forget (or update) gate begins at this bias: the higher, the more is kept."""
    made = drawn(lambda: Recurrent(WIDTH, WIDTH, cell))
    made.fused.bias_ih_l0.data[WIDTH : 2 * WIDTH] = bias  # the second gate of both
    return made.double()


def readers(bias: float) -> dict[str, Callable[[Tensor], Tensor]]:
    """Four ways to read a text: x (B, L, W) to (B, L, W), in double precision, since what vanishes soon leaves the single one."""
    plain = drawn(lambda: nn.RNN(WIDTH, WIDTH, batch_first=True)).double()
    attention = drawn(lambda: Attention(WIDTH, HEADS)).double()
    return {
        "plain RNN": lambda x: plain(x)[0],
        "LSTM": opened("lstm", bias),
        "GRU": opened("gru", bias),
        "attention": lambda x: attention(x, Sight(CAUSAL)),
    }


def back(read: Callable[[Tensor], Tensor], length: int, texts: int = TEXTS) -> list[float]:
    """How much the last output depends on each word, by how far back it stands: the mean over random texts."""
    x = noise(1, texts, length, WIDTH).double().requires_grad_()
    (gradient,) = torch.autograd.grad((read(x)[:, -1] * noise(2, texts, WIDTH).double()).sum(), x)
    return gradient.norm(dim=-1).mean(0).flip(0).tolist()


def time(given: dict[str, str]) -> Shown:
    """The gradient on its way back through a text, in four readers."""
    length, bias = int(float(given["length"])), float(given["bias"])
    sizes = {name: back(read, length) for name, read in readers(bias).items()}
    shares = {name: size[-1] / size[0] for name, size in sizes.items()}
    said = (
        f"The gradient of the last output by the first of {length} words is {figure(shares['plain RNN'])} times that by the "
        f"last word in the plain RNN, {figure(shares['LSTM'])} times in the LSTM, {figure(shares['GRU'])} times in the GRU "
        f"and {figure(shares['attention'])} times in attention, where every word is one step away and shares the weights "
        f"with all the others; each is a mean over {TEXTS} random texts."
    )
    return Shown(said, compared("words back", sizes, shares, "first word against last"))


LESSONS = (
    Lesson(
        name="residuals",
        title="Why residual connections",
        said="Back-propagation multiplies by the derivative of every layer on the way. Where nothing leads past the layers, "
        "each product shrinks or grows what passes, by how widely the weights are spread, and after many of them the "
        "gradient has vanished before the first layer, or exploded. A residual connection adds the input to what the branch "
        "makes of it, so the derivative is the identity plus that of the branch: the gradient has a straight way down. A norm "
        "brings back to size what passes, and where it stands matters: before each branch it leaves that way open; after the "
        "sum it stands on it, and where the weights are widely spread most of the gradient is lost in a deep stack. With "
        "narrow weights the two hardly differ. The weights are drawn at random, as before training.",
        formula="y = x + f(x),   ∂y/∂x = I + ∂f/∂x",
        code=(Sublayer, Bare),
        controls=(
            Control("layers", "Layers of the stack", "range", "20", 1, 24, 1),
            Control("spread", "How widely the weights are spread", "range", "1", 0.25, 1.5, 0.25),
        ),
        draw=depth,
    ),
    Lesson(
        name="time",
        title="Gates, and the way back through time",
        said="A recurrent network is as deep as its text is long: what the first word does to the last output goes through "
        "every step between. A plain cell multiplies by the same matrix each time, and the gradient vanishes or explodes. "
        "A gated cell can leave its memory alone: the more its forget gate keeps, the straighter the way back. Attention "
        "looks at every word directly, one step away.",
        formula="c(t) = f ⊙ c(t-1) + i ⊙ g,   ∂c(t)/∂c(t-1) = f (and what goes through the gates)",
        code=(lstm_cell, gru_cell),
        controls=(
            Control("length", "Words of the text", "range", "40", 2, 100, 1),
            Control("bias", "Bias of the gate that keeps: how open it begins", "range", "3", -2, 6, 0.5),
        ),
        draw=time,
    ),
)
