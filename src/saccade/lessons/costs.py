"""Lessons on cost: full and sparse attention, an editor of attention patterns, and recurrence compared with attention."""

from collections.abc import Sequence

import torch
from torch import Tensor

from saccade.attention import (
    CAUSAL,
    BigBird,
    Causal,
    Global,
    LinearAttention,
    LowRank,
    Pattern,
    RandomBlocks,
    Window,
    Windowed,
)
from saccade.attention.sparse.bigbird import BigBirdPattern
from saccade.bench import attention_flops
from saccade.bench.measure import BenchCase
from saccade.lessons.base import Control, Heatmap, Lesson, LessonResult, LineChart, Table, format_significant, pluralize
from saccade.lessons.common import build_seeded
from saccade.parts.multihead_attention import Attention
from saccade.parts.recurrent import Recurrent

LENGTHS = tuple(2**i for i in range(7, 15))
HEAD_WIDTH = 64
MILLION = 1e6


def make_case(length: int) -> BenchCase:
    """The benchmark case of one head over a text of `length` tokens."""
    return BenchCase("scaled_dot", length, width=HEAD_WIDTH, heads=1)


def count_costs(window: int, lengths: list[int]) -> dict[str, dict[int, attention_flops.OperationCount]]:
    """Costs of one head at each length, by mechanism; `window` is the window size, the rank, and about the keys of BigBird."""
    pattern = BigBirdPattern(RandomBlocks(0, window // 8, 3))  # three window blocks, two global ones, three random ones
    low_rank, windowed = build_seeded(lambda: LowRank(window, window)), Windowed(window // 2)
    bigbird, linear = BigBird(1, pattern=pattern), LinearAttention()
    return {
        "full": {n: attention_flops.count_dense(None, make_case(n)) for n in lengths},
        "window": {n: attention_flops.count_windowed(windowed, make_case(n)) for n in lengths},
        "BigBird": {n: attention_flops.count_bigbird(bigbird, make_case(n)) for n in lengths},
        "low rank": {n: attention_flops.count_low_rank(low_rank, make_case(n)) for n in lengths},
        "linear": {n: attention_flops.count_linear(linear, make_case(n)) for n in lengths},
    }


def compute_cost(settings: dict[str, str]) -> LessonResult:
    """Multiply-adds of five mechanisms by text length."""
    length, window = int(float(settings["length"])), int(float(settings["window"]))
    costs = count_costs(window, sorted({*LENGTHS, length, length // 2}))
    chosen = {name: line[length] for name, line in costs.items()}
    growth = {name: line[length].multiply_adds / line[length // 2].multiply_adds for name, line in costs.items()}
    full = chosen["full"].multiply_adds
    summary = (
        f"At {length:,} tokens full attention has {chosen['full'].pairs:,} query-key pairs, and a window of {window} takes "
        f"{chosen['window'].multiply_adds / full:.1%} of its multiply-adds. From {length // 2:,} to {length:,} tokens, the work "
        f"of full attention grows by a factor of {growth['full']:.1f}, that of the window by {growth['window']:.1f} and that of "
        f"linear attention by {growth['linear']:.1f}."
    )
    lines = {
        name: [(float(n), cost.multiply_adds / MILLION) for n, cost in line.items()] for name, line in costs.items()
    }
    dots = [(float(length), cost.multiply_adds / MILLION) for cost in chosen.values()]
    rows = [
        [name, f"{cost.pairs:,}", f"{cost.multiply_adds:,}", f"{4 * cost.pairs:,}", f"{cost.multiply_adds / full:.1%}"]
        for name, cost in chosen.items()
    ]
    headers = ["attention", "pairs", "multiply-adds", "bytes of all scores", "relative to full"]
    return LessonResult(
        summary,
        [
            make_log_chart(
                "multiply-adds by text length; dots mark the chosen n", "million multiply-adds", lines, dots
            ),
            Table(f"one head of width {HEAD_WIDTH} at {length:,} tokens", headers, rows),
        ],
    )


def make_pattern(settings: dict[str, str]) -> Pattern:
    """The attention pattern of these settings."""
    window, block = int(float(settings["window"])), int(float(settings["block"]))
    pattern: Pattern = Window(window, window) | Global(int(float(settings["global"])))
    count = int(float(settings["random"]))
    if count:
        pattern = pattern | RandomBlocks(0, block, count)
    return pattern & CAUSAL if settings["future"] == "hidden" else pattern


def visibility_matrix(pattern: Pattern, length: int) -> Tensor:
    """Which queries attend to which keys, bool (L, L), of the first head."""
    positions = torch.arange(length)
    allowed = pattern.allows(positions[:, None], positions[None, :])
    return allowed.reshape(-1, *allowed.shape[-2:])[0].expand(length, length)


def count_hops(links: Tensor) -> int:
    """The number of layers after which every token has information from all tokens that can ever reach it."""
    reached, layers = torch.eye(len(links), dtype=torch.bool), 0
    while True:
        after_layer = (links.float() @ reached.float() > 0) | reached
        if torch.equal(after_layer, reached):
            return layers
        reached, layers = after_layer, layers + 1


def compute_pattern(settings: dict[str, str]) -> LessonResult:
    """An attention pattern as a heat map, and its cost."""
    length = int(float(settings["length"]))
    links = visibility_matrix(make_pattern(settings), length)
    case = BenchCase("scaled_dot", length, width=HEAD_WIDTH, heads=1, causal=settings["future"] == "hidden")
    cost, full = attention_flops.count_products(int(links.sum()), case), attention_flops.count_dense(None, case)
    layers = count_hops(links)
    summary = (
        f"The pattern has {cost.pairs:,} of {full.pairs:,} query-key pairs, {cost.pairs / full.pairs:.0%} of full attention. "
        f"Within {pluralize(layers, 'layer')}, information from a token reaches every token that it can reach at all; full "
        "attention needs one layer."
    )
    rows = [
        [name, f"{count.pairs:,}", f"{count.multiply_adds:,}", f"{4 * count.pairs:,}"]
        for name, count in (("this pattern", cost), ("full", full))
    ]
    names = [str(i) for i in range(length)]
    headers = ["pattern", "pairs", f"multiply-adds at width {HEAD_WIDTH}", "bytes of all scores"]
    return LessonResult(
        summary,
        [
            Heatmap("attention pattern: one row per query, one column per key", links.float().tolist(), names, names),
            Table("cost of one head", headers, rows),
        ],
    )


def make_log_chart(
    title: str, y: str, lines: dict[str, list[tuple[float, float]]], dots: Sequence[tuple[float, float]] = ()
) -> LineChart:
    """Lines by text length on logarithmic axes, where a power of n is a straight line."""
    return LineChart(title, "n, tokens", y, lines, list(dots), log_x=True, log_y=True)


def compute_recurrence(settings: dict[str, str]) -> LessonResult:
    """Sequential steps, path length, work and memory of an LSTM layer and an attention layer by text length."""
    length, width = int(float(settings["length"])), int(float(settings["width"]))
    # an LSTM has four matrices for x and four for h; attention has those of the queries, keys, values and output
    per_token = {"LSTM": 8 * width**2, "attention": 4 * width**2}

    def work(name: str, n: int) -> int:
        pairs = attention_flops.count_dense(None, BenchCase("scaled_dot", n, width=width, heads=8)).multiply_adds
        return per_token[name] * n + (pairs if name == "attention" else 0)

    lengths = sorted({*LENGTHS, length})
    equal_length = (per_token["LSTM"] - per_token["attention"]) // (2 * width)  # where 8 d² n = 4 d² n + 2 d n²
    ratio = format_significant(work("attention", length) / work("LSTM", length))
    summary = (
        f"To read {length:,} tokens the LSTM takes {length:,} sequential steps, and information from the first token reaches "
        f"the last through all of them. Attention takes one step and a path of length one, with {ratio} times the multiply-adds "
        f"of the LSTM. At width {width} the work of both is equal at {equal_length:,} tokens, twice the width. To generate as "
        "many tokens, both take one step per token."
    )
    steps = {"LSTM": lambda n: n, "attention": lambda n: 1}
    memory = {"LSTM": lambda n: 2 * width, "attention": lambda n: 2 * n * width}
    line = lambda value: {name: [(float(n), float(value(name, n))) for n in lengths] for name in per_token}
    rows = [
        ["sequential steps to read", f"{length:,}", "1"],
        ["sequential steps to generate", f"{length:,}", f"{length:,}"],
        ["longest path between two tokens", f"{length:,}", "1"],
        ["multiply-adds", *(f"{work(name, length):,}" for name in per_token)],
        ["numbers in the state or KV cache", *(f"{memory[name](length):,}" for name in per_token)],
    ]
    return LessonResult(
        summary,
        [
            make_log_chart("sequential steps to read", "steps", line(lambda name, n: steps[name](n))),
            make_log_chart("work", "million multiply-adds", line(lambda name, n: work(name, n) / MILLION)),
            make_log_chart("memory: state or KV cache", "numbers", line(lambda name, n: memory[name](n))),
            Table(f"one layer of width {width} over {length:,} tokens", ["", *per_token], rows),
        ],
    )


LESSONS = (
    Lesson(
        name="cost",
        title="The cost of full and sparse attention",
        description="Full attention compares every query with every key, so n tokens have n² scores: a text twice as long takes "
        "four times the work. Sparse and linear attention are cheaper on long texts. Windowed attention is restricted to "
        "neighboring tokens, BigBird adds a few global and random blocks, low-rank attention projects the keys and values "
        "down to r, and linear attention sums keys and values once for all queries. Their work grows linearly with n once n "
        "is larger than the window or the rank. The multiply-adds are calculated with the formulas of “saccade "
        "bench attention”, not measured.",
        formula="full: 2 d n²,   window: 2 d n (window + 1),   low rank: 4 d n r,   linear: 2 d (d + 1) n",
        code=(
            attention_flops.count_dense,
            attention_flops.count_windowed,
            attention_flops.count_bigbird,
            attention_flops.count_low_rank,
            attention_flops.count_linear,
        ),
        controls=(
            Control("length", "n, text length in tokens", "range", "4096", 256, 16384, 128),
            Control("window", "Window size, also the rank r", "range", "256", 128, 1024, 128),
        ),
        compute=compute_cost,
    ),
    Lesson(
        name="pattern",
        title="Sparse attention: an editor of attention patterns",
        description="An attention pattern defines which queries attend to which keys. Build one here: a window of neighboring "
        "tokens, a few global tokens that attend to all tokens and receive attention from all, random blocks, and a causal "
        "mask that hides future tokens. Fewer pairs cost less, but information then needs more layers to get from one end of "
        "the text to the other; a global token or a few random blocks shorten the path.",
        formula="pattern = window ∪ global ∪ random;   with a hidden future: (window ∪ global ∪ random) ∩ causal",
        code=(Window, Global, RandomBlocks, Causal),
        controls=(
            Control("length", "Text length in tokens", "range", "32", 4, 64, 1),
            Control("window", "Neighbors on each side", "range", "2", 0, 16, 1),
            Control("global", "Global tokens", "range", "1", 0, 8, 1),
            Control("random", "Random key blocks per query block", "range", "1", 0, 4, 1),
            Control("block", "Block size in tokens", "range", "2", 1, 8, 1),
            Control("future", "Future tokens", "choice", "seen", choices=("seen", "hidden")),
        ),
        compute=compute_pattern,
    ),
    Lesson(
        name="recurrence",
        title="Recurrence and attention compared",
        description="A recurrent network reads one token after another and keeps one state. It can read any length with little "
        "memory, but no step can start before the previous one has ended, and information from the first token has to "
        "survive all steps. Self-attention compares all pairs of tokens at once: one step, a path of length one between any "
        "two tokens, and a KV cache that grows with the text. Generating takes one step per token with either. Which of them "
        "does more work depends on the text length: attention does less up to n = 2 d and more beyond it.",
        formula="LSTM: n steps, path n, work 8 d² n;   attention: 1 step, path 1, work 4 d² n + 2 d n²;   equal work at n = 2 d",
        code=(Recurrent, Attention),
        controls=(
            Control("length", "n, text length in tokens", "range", "1024", 2, 16384, 1),
            Control("width", "d, width of the layer", "range", "512", 64, 1024, 64),
        ),
        compute=compute_recurrence,
    ),
)
