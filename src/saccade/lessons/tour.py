"""A tour of attention, a minute or less: each chapter computes something, says what it shows, and saves a picture."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saccade.attention import (
    CAUSAL,
    FULL,
    KERNELS,
    MECHANISMS,
    AttentionPool,
    Hard,
    Kernel,
    NadarayaWatson,
    Pattern,
    ScaledDot,
    Sight,
    record_draws,
    reinforce_loss,
    watch,
)
from saccade.explain.mechanism_demo import run_mechanism_demo
from saccade.parts.feedforward import FeedForward
from saccade.parts.layer import make_layer
from saccade.parts.multihead_attention import Attention
from saccade.parts.position import POSITIONS, Position, Sinusoidal
from saccade.parts.recurrent import Recurrent
from saccade.parts.stack import Stack
from saccade.render.plot import Heatmap, LineChart, save_panels

Panels = list[Heatmap | LineChart]
TIMING_ROUNDS = 9  # of what is timed


@dataclass
class Chapter:
    """One stop of the tour: what was found, in a few lines, and the panels of its picture."""

    title: str
    lines: list[str]
    panels: Panels
    columns: int = 3


def soft_lookup() -> Chapter:
    """A dictionary, exact and fuzzy."""
    ages, pay = torch.tensor([[20.0], [30.0], [40.0], [60.0]]), torch.tensor([[2.0], [3.0], [5.0], [4.0]])
    said, lines = [], {}
    ask = torch.linspace(15, 65, 101)[:, None]
    for width in (0.5, 4.0, 20.0):
        answers, weights = AttentionPool(Kernel(bandwidth=width).requires_grad_(False))(ask, ages, pay)
        at = weights[34].tolist()  # the question 32
        said.append(
            f"width {width:4}: asked for 32, it takes {'  '.join(f'{w:.2f}' for w in at)} and says {answers[34, 0]:.2f}"
        )
        lines[f"width {width}"] = answers[:, 0]
    said.append("a narrow kernel takes the nearest entry; a wide one averages them all: attention is a soft dictionary")
    labels = ("age, the key", "pay, the value")
    curves = LineChart("asking a store of four entries", ask[:, 0], lines, (ages[:, 0], pay[:, 0]), labels)
    return Chapter("attention as a soft dictionary lookup", said, [curves])


def regression() -> Chapter:
    """Nadaraya-Watson, four kernels, the width learned by leaving one out."""
    torch.manual_seed(1)
    x = torch.rand(60, 1).sort(0).values * 5
    truth = lambda x: 2 * x.sin() + x**0.8
    y = truth(x) + torch.randn_like(x) * 0.4
    ask = torch.linspace(0, 5, 200)[:, None]
    said, lines, maps = [], {"truth": truth(ask)[:, 0]}, []
    for shape in KERNELS:
        model = NadarayaWatson(shape).fit(x, y)
        answer, weights = model.predict_with_weights(ask)
        lines[shape] = answer[:, 0]
        error = (answer - truth(ask)).square().mean().sqrt().item()
        width = f"{model.kernel.bandwidth:5.2f}" if shape != "constant" else "  all"
        said.append(f"{shape:13} width {width}   error against the truth {error:.2f}")
        if shape in ("gaussian", "epanechnikov"):
            maps.append(Heatmap(f"weights, {shape}", weights, "question", "remembered item"))
    for one in maps:
        one.vmax = max(other.matrix.max().item() for other in maps)  # they are compared
    curves = LineChart(
        "regression by attention", ask[:, 0], lines, (x[:, 0], y[:, 0]), ("x", "y"), dashed_lines=frozenset({"truth"})
    )
    return Chapter("kernel regression: attention without training", said, [curves, *maps])


def mechanisms() -> Chapter:
    """All mechanisms on one scene."""
    panels: Panels = []
    for entry in MECHANISMS:
        weights = run_mechanism_demo(entry.name, 32).weights["everything"]
        panels.append(Heatmap(f"{entry.name}\n{entry.formula}", weights, signed=bool((weights < 0).any())))
    said = [f"{len(MECHANISMS)} mechanisms on the same 32 tokens; saccade mechanisms NAME draws one with its pattern"]
    return Chapter("every mechanism on the same tokens", said, panels, columns=5)


def saturation() -> Chapter:
    """Why scores are divided by the root of the width."""
    torch.manual_seed(0)
    widths = [2**i for i in range(1, 11)]
    spread: dict[str, list[float]] = {"plain": [], "divided by √d": []}
    for width in widths:
        for name, scale in (("plain", 1.0), ("divided by √d", 1 / math.sqrt(width))):
            q, k = torch.randn(256, width), torch.randn(16, width)
            scores = (q @ k.T * scale).requires_grad_()
            weights = scores.softmax(-1)
            weights[:, 0].sum().backward()
            assert scores.grad is not None
            spread[name].append(scores.grad.abs().mean().item())
    lines = {name: torch.tensor(values) for name, values in spread.items()}
    said = [
        f"at width {widths[-1]} the gradient is {spread['plain'][-1]:.1e}, with √d {spread['divided by √d'][-1]:.1e}",
        "softmax of large scores is flat: that is why scaled dot products are scaled",
    ]
    x = torch.tensor(widths).float().log2()
    panel = LineChart(
        "gradient through softmax", x, lines, axis_labels=("log2 of the width d", "mean |gradient|"), log_y=True
    )
    return Chapter("why scores are divided by √d", said, [panel])


def order() -> Chapter:
    """Attention does not see order; positions let it."""
    torch.manual_seed(0)
    words = {w: torch.randn(16) for w in ("all", "dogs", "are", "smart", "and", "some", "dumb")}
    one, other = "all dogs are smart and some are dumb", "all dogs are dumb and some are smart"
    said = []
    for name, position in (("without positions", Position()), ("with positions", Sinusoidal(16))):
        stack = _make_stack(16, 2, 1, position=position)
        read = lambda text, stack=stack: stack(torch.stack([words[w] for w in text.split()])[None]).mean(1)
        with torch.no_grad():
            apart = (read(one) - read(other)).abs().max().item()
            said.append(
                f"{name:18} the two readings differ by {apart:.1e}{', which is rounding' if apart < 1e-5 else ''}"
            )
    said.insert(0, f"'{one}' and '{other}' have the same words")
    panels: Panels = []
    for entry in POSITIONS[1:]:
        code = entry.make(32, 4, 48).to_matrix(48)
        panels.append(
            Heatmap(f"{entry.name}: {entry.where}", code, "position", "column", signed=bool((code < 0).any()))
        )
    return Chapter("position encoding in eight ways", said, panels, columns=4)


def residuals() -> Chapter:
    """Why residual connections: how much gradient arrives at the first layer."""
    depths = [2, 4, 8, 16, 32]
    lines: dict[str, Tensor] = {}
    for name, residual in (("with residual connections", True), ("without", False)):
        sizes = []
        for depth in depths:
            torch.manual_seed(0)
            stack = _make_stack(32, 4, depth)
            if not residual:
                for block in stack.layers:
                    for part in (block.attention, block.feedforward):  # type: ignore[union-attr]
                        part.forward = lambda x, *a, part=part, **o: part.branch(part.norm(x), *a, **o)  # type: ignore
            x = torch.randn(2, 12, 32, requires_grad=True)
            (stack(x) * torch.randn(2, 12, 32)).mean().backward()
            assert x.grad is not None
            sizes.append(x.grad.norm().item())
        lines[name] = torch.tensor(sizes)
    with_, without = (line[-1].item() for line in lines.values())
    said = [
        f"after 32 layers the input's gradient is {with_:.1e} with residual connections and {without:.1e} without them",
        "each layer adds to its input, so a gradient has a straight way down past every branch",
    ]
    x = torch.tensor(depths).float()
    panel = LineChart("gradient at the input", x, lines, axis_labels=("layers", "norm of the gradient"), log_y=True)
    return Chapter("why residual connections", said, [panel])


def hard_attention() -> Chapter:
    """Hard attention learns where to look from reward alone."""
    torch.manual_seed(0)
    look = ScaledDot(normalizer=Hard())
    query = nn.Parameter(torch.zeros(8))
    keys = torch.randn(64, 1, 6, 8)
    keys[:, :, :, 0] = 0
    where = torch.randint(6, (64,))
    keys[torch.arange(64), 0, where, 0] = 3.0  # the mark that says: the answer is here
    values = torch.zeros(64, 1, 6, 1)
    values[torch.arange(64), 0, where] = 1.0
    optimizer = torch.optim.Adam([query], lr=0.1)
    rewards, baseline = [], 0.0
    for _ in range(150):
        with record_draws(look) as log:
            reward = look(query.expand(64, 1, 1, 8), keys, values, Sight(FULL, cross=True))[:, 0, 0, 0]
        optimizer.zero_grad()
        reinforce_loss(log, reward.detach(), baseline).backward()
        optimizer.step()
        rewards.append(reward.mean().item())
        baseline = 0.9 * baseline + 0.1 * rewards[-1]
    look.eval()
    best = look(query.expand(64, 1, 1, 8), keys, values, Sight(FULL, cross=True)).mean().item()
    late = sum(rewards[-10:]) / 10
    said = [
        f"one key of six is looked at: the right one at first in {rewards[0]:.0%} of the draws, after 150 steps in {late:.0%}",
        f"in evaluation the best key is taken: right in {best:.0%}",
        "a draw has no gradient: the reward, less a baseline, moves its log-probability (REINFORCE)",
    ]
    x = torch.arange(len(rewards)).float()
    panel = LineChart(
        "learning where to look", x, {"reward": torch.tensor(rewards)}, axis_labels=("step", "share of right looks")
    )
    return Chapter("hard attention, trained by reward", said, [panel])


def recurrence() -> Chapter:
    """A recurrent layer and attention side by side: time, and how far back a gradient reaches."""
    torch.manual_seed(0)
    width, lengths = 64, [64, 128, 256, 512, 1024]
    lstm, attention = Recurrent(width, width), Attention(width, 4)
    looks: dict[str, Callable[[Tensor], Tensor]] = {
        "LSTM": lambda x: lstm(x),
        "attention": lambda x: attention(x, Sight(CAUSAL)),
    }
    texts = [torch.randn(1, n, width) for n in lengths]
    with torch.no_grad():
        best = time_calls(
            {(name, len(x[0])): lambda x=x, look=look: look(x) for x in texts for name, look in looks.items()}
        )
    times = {name: [best[name, n] * 1e3 for n in lengths] for name in looks}
    # in double precision: a gradient over a hundred steps is smaller than single precision can hold
    lstm.double()
    attention.double()
    reach = {
        name: gradient_reach(look, torch.randn(1, 128, width, dtype=torch.float64)) for name, look in looks.items()
    }
    ratio = {name: (r[:8].mean() / r[100:108].mean()).item() for name, r in reach.items()}
    first, last = ({name: t[i] for name, t in times.items()} for i in (0, -1))
    said = [
        f"64 to 1,024 tokens, the best of {TIMING_ROUNDS} rounds: LSTM {first['LSTM']:.1f} to {last['LSTM']:.1f} ms, step after step",
        f"    attention {first['attention']:.1f} to {last['attention']:.1f} ms, all pairs at once",
        f"100 tokens back a gradient is {ratio['LSTM']:.0e} times weaker in the LSTM, {ratio['attention']:.1f} in attention",
        "path between two tokens: as long as their distance, or one step; work: n d² in order, or n² d in parallel",
        "the LSTM reads any length; attention with learned positions only as many tokens as it has positions",
    ]
    panels: Panels = [
        LineChart(
            "time for a text of n tokens",
            torch.tensor(lengths).float(),
            {name: torch.tensor(t) for name, t in times.items()},
            axis_labels=("n", "milliseconds"),
            log_y=True,
        ),
        LineChart(
            "how far back a gradient reaches",
            torch.arange(128.0),
            reach,
            axis_labels=("tokens back", "gradient"),
            log_y=True,
        ),
    ]
    return Chapter("recurrence and attention", said, panels)


def gradient_reach(look: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """How much the last output moves with each token, by how far back it stands, (L,)."""
    (gradient,) = torch.autograd.grad(look(x.requires_grad_())[0, -1].sum(), x)
    return gradient[0].norm(dim=-1).flip(0)


def time_calls(calls: dict[Any, Callable[[], object]], rounds: int = TIMING_ROUNDS) -> dict[Any, float]:
    """The shortest time of each call, in seconds. They take turns, so that other work on the machine hits all alike."""
    best = dict.fromkeys(calls, math.inf)
    for number in range(rounds + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if number:  # the first round warms up
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def gates() -> Chapter:
    """An LSTM's gates are attention over its own units."""
    torch.manual_seed(0)
    cell = Recurrent(2, 12)
    x = torch.zeros(1, 40, 2)
    x[0, 5, 0] = x[0, 25, 0] = 4.0
    with watch(cell) as looks:
        cell(x)
    weights = looks[0].weights
    assert weights is not None
    panels: Panels = [
        Heatmap(f"{name} gate", weights[0, :, i].T, "unit", "time", vmax=1.0) for i, name in enumerate(cell.gates)
    ]
    return Chapter(
        "gates are attention too", ["an LSTM met a signal at times 5 and 25; its gates open and close"], panels
    )


def watched_weights() -> Chapter:
    """Exact weights beside the fused kernel, and what that costs."""
    torch.manual_seed(0)
    stack = _make_stack(256, 8, 12, pattern=CAUSAL).eval()
    x = torch.randn(1, 256, 256)

    def watched() -> None:
        with watch(stack, "layers.6.*"):
            stack(x)

    with torch.no_grad():
        plain = stack(x)
        best = time_calls({"unwatched": lambda: stack(x), "watched": watched})
        with watch(stack, "layers.6.*") as looks:
            seen = stack(x)
    weights = looks[-1].weights
    assert weights is not None
    said = [
        f"12 layers, 256 tokens: {best['unwatched'] * 1e3:.0f} ms unwatched, {best['watched'] * 1e3:.0f} ms with layer 6 watched",
        f"the answers are {'equal bit for bit' if torch.equal(plain, seen) else 'NOT equal'}",
    ]
    shown = weights[0, :3, :64, :64]
    panels: Panels = [Heatmap(f"layer 6, head {head}", one, vmax=shown.max().item()) for head, one in enumerate(shown)]
    return Chapter("see every weight, with the fused kernel on", said, panels)


def _make_stack(
    width: int, heads: int, depth: int, *, pattern: Pattern = FULL, position: Position | None = None
) -> Stack:
    layers = [make_layer(Attention(width, heads), FeedForward(width, 4 * width), width=width) for _ in range(depth)]
    return Stack(layers, pattern, position, leave=nn.LayerNorm(width))


CHAPTERS = [
    soft_lookup,
    regression,
    mechanisms,
    saturation,
    order,
    residuals,
    hard_attention,
    recurrence,
    gates,
    watched_weights,
]


def run_tour(out: Path) -> Iterator[tuple[Chapter, Path]]:
    """Go through the chapters; each is handed over when its picture is saved in `out`."""
    for number, chapter in enumerate(CHAPTERS, start=1):
        found = chapter()
        path = out / f"{number}-{chapter.__name__}.png"
        yield found, save_panels(path, found.panels, title=found.title, columns=found.columns)
