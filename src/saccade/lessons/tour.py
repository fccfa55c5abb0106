"""The tour of `saccade demo tour`: short experiments with attention, each with a few lines of results and a figure."""

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
TIMING_ROUNDS = 9


@dataclass
class Chapter:
    """A chapter of the tour: its results in a few lines, and the panels of its figure."""

    title: str
    lines: list[str]
    panels: Panels
    columns: int = 3


def soft_lookup() -> Chapter:
    """Attention as a soft dictionary lookup, with three kernel widths."""
    ages, pay = torch.tensor([[20.0], [30.0], [40.0], [60.0]]), torch.tensor([[2.0], [3.0], [5.0], [4.0]])
    results, lines = [], {}
    queries = torch.linspace(15, 65, 101)[:, None]
    for width in (0.5, 4.0, 20.0):
        outputs, weights = AttentionPool(Kernel(bandwidth=width).requires_grad_(False))(queries, ages, pay)
        shares = "  ".join(f"{weight:.2f}" for weight in weights[34].tolist())  # of the query 32
        results.append(f"width {width:4}: the query 32 has the weights {shares} and the output {outputs[34, 0]:.2f}")
        lines[f"width {width}"] = outputs[:, 0]
    results.append(
        "a narrow kernel selects the nearest entry; a wide one averages all of them: a soft dictionary lookup"
    )
    labels = ("age (key)", "salary (value)")
    chart = LineChart("queries to a dictionary of four entries", queries[:, 0], lines, (ages[:, 0], pay[:, 0]), labels)
    return Chapter("attention as a soft dictionary lookup", results, [chart])


def regression() -> Chapter:
    """Nadaraya-Watson regression with four kernels, the width chosen by leave-one-out cross-validation."""
    torch.manual_seed(1)
    x = torch.rand(60, 1).sort(0).values * 5
    truth = lambda x: 2 * x.sin() + x**0.8
    y = truth(x) + torch.randn_like(x) * 0.4
    queries = torch.linspace(0, 5, 200)[:, None]
    results, lines, maps = [], {"true curve": truth(queries)[:, 0]}, []
    for shape in KERNELS:
        model = NadarayaWatson(shape).fit(x, y)
        output, weights = model.predict_with_weights(queries)
        lines[shape] = output[:, 0]
        error = (output - truth(queries)).square().mean().sqrt().item()
        width = f"{model.kernel.bandwidth:5.2f}" if shape != "constant" else "  all"
        results.append(f"{shape:13} width {width}   root mean squared error {error:.2f}")
        if shape in ("gaussian", "epanechnikov"):
            maps.append(Heatmap(f"weights, {shape}", weights, "query", "data point"))
    vmax = max(panel.matrix.max().item() for panel in maps)
    for panel in maps:
        panel.vmax = vmax  # one color scale for all heat maps
    data, dashed = (x[:, 0], y[:, 0]), frozenset({"true curve"})
    chart = LineChart("kernel regression", queries[:, 0], lines, data, ("x", "y"), dashed_lines=dashed)
    return Chapter("kernel regression: attention without training", results, [chart, *maps])


def mechanisms() -> Chapter:
    """All mechanisms on the same queries, keys and values."""
    panels: Panels = []
    for entry in MECHANISMS:
        weights = run_mechanism_demo(entry.name, 32).weights["everything"]
        panels.append(Heatmap(f"{entry.name}\n{entry.formula}", weights, signed=bool((weights < 0).any())))
    results = [
        f"{len(MECHANISMS)} mechanisms on the same 32 tokens; saccade mechanisms NAME shows one with its pattern"
    ]
    return Chapter("every mechanism on the same tokens", results, panels, columns=5)


def saturation() -> Chapter:
    """Why scores are divided by √d: softmax saturates on large scores."""
    torch.manual_seed(0)
    widths = [2**i for i in range(1, 11)]
    gradients: dict[str, list[float]] = {"unscaled": [], "divided by √d": []}
    for width in widths:
        for name, scale in (("unscaled", 1.0), ("divided by √d", 1 / math.sqrt(width))):
            q, k = torch.randn(256, width), torch.randn(16, width)
            scores = (q @ k.T * scale).requires_grad_()
            weights = scores.softmax(-1)
            weights[:, 0].sum().backward()
            assert scores.grad is not None
            gradients[name].append(scores.grad.abs().mean().item())
    lines = {name: torch.tensor(values) for name, values in gradients.items()}
    unscaled, scaled = (values[-1] for values in gradients.values())
    results = [
        f"at width {widths[-1]} the mean gradient is {unscaled:.1e}; with scores divided by √d it is {scaled:.1e}",
        "softmax saturates on large scores, so their gradients vanish; division by √d prevents it",
    ]
    x = torch.tensor(widths).float().log2()
    panel = LineChart(
        "gradient through softmax", x, lines, axis_labels=("log2 of the width d", "mean |gradient|"), log_y=True
    )
    return Chapter("why scores are divided by √d", results, [panel])


def order() -> Chapter:
    """Attention is permutation-equivariant; position schemes make it depend on the order."""
    torch.manual_seed(0)
    words = {w: torch.randn(16) for w in ("all", "dogs", "are", "smart", "and", "some", "dumb")}
    first, second = "all dogs are smart and some are dumb", "all dogs are dumb and some are smart"
    results = [f"'{first}' and '{second}' have the same words"]
    for name, position in (("without positions", Position()), ("with positions", Sinusoidal(16))):
        stack = _make_stack(16, 2, 1, position=position)
        encode = lambda text, stack=stack: stack(torch.stack([words[w] for w in text.split()])[None]).mean(1)
        with torch.no_grad():
            difference = (encode(first) - encode(second)).abs().max().item()
        rounding = ", which is rounding error" if difference < 1e-5 else ""
        results.append(f"{name:18} the mean outputs differ by {difference:.1e}{rounding}")
    panels: Panels = []
    for entry in POSITIONS[1:]:
        matrix = entry.make(32, 4, 48).to_matrix(48)
        title = f"{entry.name}: {entry.where}"
        panels.append(Heatmap(title, matrix, "position", "column", signed=bool((matrix < 0).any())))
    return Chapter("eight position schemes", results, panels, columns=4)


def residuals() -> Chapter:
    """Why residual connections: the gradient norm at the input of deep stacks."""
    depths = [2, 4, 8, 16, 32]
    lines: dict[str, Tensor] = {}
    for name, residual in (("with residual connections", True), ("without", False)):
        norms = []
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
            norms.append(x.grad.norm().item())
        lines[name] = torch.tensor(norms)
    with_residual, without = (line[-1].item() for line in lines.values())
    results = [
        f"with 32 layers the gradient norm at the input is {with_residual:.1e} with residual connections, {without:.1e} without",
        "each sublayer adds to its input, so the gradient has a direct path past every sublayer",
    ]
    x = torch.tensor(depths).float()
    panel = LineChart("gradient at the input", x, lines, axis_labels=("layers", "gradient norm"), log_y=True)
    return Chapter("why residual connections", results, [panel])


def hard_attention() -> Chapter:
    """Hard attention, trained with REINFORCE from a reward."""
    torch.manual_seed(0)
    attention = ScaledDot(normalizer=Hard())
    query = nn.Parameter(torch.zeros(8))
    keys = torch.randn(64, 1, 6, 8)
    keys[:, :, :, 0] = 0
    targets = torch.randint(6, (64,))
    keys[torch.arange(64), 0, targets, 0] = 3.0  # marks the key with the reward
    values = torch.zeros(64, 1, 6, 1)
    values[torch.arange(64), 0, targets] = 1.0
    optimizer = torch.optim.Adam([query], lr=0.1)
    rewards, baseline = [], 0.0
    for _ in range(150):
        with record_draws(attention) as log:
            reward = attention(query.expand(64, 1, 1, 8), keys, values, Sight(FULL, cross=True))[:, 0, 0, 0]
        optimizer.zero_grad()
        reinforce_loss(log, reward.detach(), baseline).backward()
        optimizer.step()
        rewards.append(reward.mean().item())
        baseline = 0.9 * baseline + 0.1 * rewards[-1]
    attention.eval()
    accuracy = attention(query.expand(64, 1, 1, 8), keys, values, Sight(FULL, cross=True)).mean().item()
    late = sum(rewards[-10:]) / 10
    results = [
        f"one of six keys is sampled: the correct one in {rewards[0]:.0%} of the samples at first, in {late:.0%} after 150 steps",
        f"in evaluation the key with the highest score is taken: correct in {accuracy:.0%}",
        "sampling has no gradient: the reward minus a baseline scales the gradient of the log-probability (REINFORCE)",
    ]
    x = torch.arange(len(rewards)).float()
    panel = LineChart(
        "training with REINFORCE", x, {"reward": torch.tensor(rewards)}, axis_labels=("step", "mean reward")
    )
    return Chapter("hard attention, trained with REINFORCE", results, [panel])


def recurrence() -> Chapter:
    """An LSTM layer and an attention layer: running time, and gradients through time."""
    torch.manual_seed(0)
    width, lengths = 64, [64, 128, 256, 512, 1024]
    lstm, attention = Recurrent(width, width), Attention(width, 4)
    layers: dict[str, Callable[[Tensor], Tensor]] = {
        "LSTM": lambda x: lstm(x),
        "attention": lambda x: attention(x, Sight(CAUSAL)),
    }
    texts = [torch.randn(1, n, width) for n in lengths]
    with torch.no_grad():
        best = time_calls(
            {(name, len(x[0])): lambda x=x, layer=layer: layer(x) for x in texts for name, layer in layers.items()}
        )
    times = {name: [best[name, n] * 1e3 for n in lengths] for name in layers}
    # in double precision, because gradients over a hundred steps underflow in single precision
    lstm.double()
    attention.double()
    reach = {
        name: gradient_reach(layer, torch.randn(1, 128, width, dtype=torch.float64)) for name, layer in layers.items()
    }
    ratio = {name: (r[:8].mean() / r[100:108].mean()).item() for name, r in reach.items()}
    first, last = ({name: t[i] for name, t in times.items()} for i in (0, -1))
    results = [
        f"64 to 1,024 tokens, best of {TIMING_ROUNDS} rounds: LSTM {first['LSTM']:.1f} to {last['LSTM']:.1f} ms, sequential",
        f"    attention {first['attention']:.1f} to {last['attention']:.1f} ms, all pairs in parallel",
        f"100 tokens back the gradient is {ratio['LSTM']:.0e} times smaller in the LSTM, {ratio['attention']:.1f} in attention",
        "path between two tokens: their distance in an LSTM, one step in attention",
        "work: n d² in sequence for an LSTM, n² d in parallel for attention",
        "an LSTM reads texts of any length; attention with learned positions is limited to its number of positions",
    ]
    panels: Panels = [
        LineChart(
            "running time by text length",
            torch.tensor(lengths).float(),
            {name: torch.tensor(t) for name, t in times.items()},
            axis_labels=("n", "milliseconds"),
            log_y=True,
        ),
        LineChart(
            "gradient by distance",
            torch.arange(128.0),
            reach,
            axis_labels=("tokens back", "gradient norm"),
            log_y=True,
        ),
    ]
    return Chapter("recurrence and attention", results, panels)


def gradient_reach(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Gradient norms of the last output with respect to each token, the last token first, (L,)."""
    (gradient,) = torch.autograd.grad(layer(x.requires_grad_())[0, -1].sum(), x)
    return gradient[0].norm(dim=-1).flip(0)


def time_calls(calls: dict[Any, Callable[[], object]], rounds: int = TIMING_ROUNDS) -> dict[Any, float]:
    """The shortest time of each call in seconds. The calls alternate, so that load on the machine affects all alike."""
    best = dict.fromkeys(calls, math.inf)
    for number in range(rounds + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if number:  # the first round is warmup
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def gates() -> Chapter:
    """The gates of an LSTM as attention over its units."""
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
    results = ["the gates of an untrained LSTM open and close in response to inputs at times 5 and 25"]
    return Chapter("gates as attention over units", results, panels)


def watched_weights() -> Chapter:
    """Exact attention weights alongside the fused kernel, and the time it takes to collect them."""
    torch.manual_seed(0)
    stack = _make_stack(256, 8, 12, pattern=CAUSAL).eval()
    x = torch.randn(1, 256, 256)

    def watched() -> None:
        with watch(stack, "layers.6.*"):
            stack(x)

    with torch.no_grad():
        unwatched_output = stack(x)
        best = time_calls({"unwatched": lambda: stack(x), "watched": watched})
        with watch(stack, "layers.6.*") as looks:
            watched_output = stack(x)
    weights = looks[-1].weights
    assert weights is not None
    equality = "equal bit for bit" if torch.equal(unwatched_output, watched_output) else "NOT equal"
    results = [
        f"12 layers, 256 tokens: {best['unwatched'] * 1e3:.0f} ms unwatched, {best['watched'] * 1e3:.0f} ms with layer 6 watched",
        f"the outputs are {equality}",
    ]
    heads = weights[0, :3, :64, :64]
    vmax = heads.max().item()
    panels: Panels = [Heatmap(f"layer 6, head {i}", head, vmax=vmax) for i, head in enumerate(heads)]
    return Chapter("exact weights with the fused kernel", results, panels)


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
    """Run all chapters; yields each with the path of its figure, saved in `out`."""
    for number, run_chapter in enumerate(CHAPTERS, start=1):
        chapter = run_chapter()
        path = out / f"{number}-{run_chapter.__name__}.png"
        yield chapter, save_panels(path, chapter.panels, title=chapter.title, columns=chapter.columns)
