"""Lessons on cost: full against sparse attention, an editor of patterns, and recurrence against attention."""

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
HEAD_WIDTH = 64  # of one head
MILLION = 1e6


def make_case(length: int) -> BenchCase:
    """One head over a text of that length."""
    return BenchCase("scaled_dot", length, width=HEAD_WIDTH, heads=1)


def count_costs(window: int, lengths: list[int]) -> dict[str, dict[int, attention_flops.OperationCount]]:
    """What each way to attend costs one head at each length, if a token looks at about `window` others."""
    links = BigBirdPattern(RandomBlocks(0, window // 8, 3))  # three blocks around, two at the ends, three at random
    low, near = build_seeded(lambda: LowRank(window, window)), Windowed(window // 2)
    bird, linear = BigBird(1, pattern=links), LinearAttention()
    return {
        "full": {n: attention_flops.count_dense(None, make_case(n)) for n in lengths},
        "window": {n: attention_flops.count_windowed(near, make_case(n)) for n in lengths},
        "BigBird": {n: attention_flops.count_bigbird(bird, make_case(n)) for n in lengths},
        "low rank": {n: attention_flops.count_low_rank(low, make_case(n)) for n in lengths},
        "linear": {n: attention_flops.count_linear(linear, make_case(n)) for n in lengths},
    }


def compute_cost(settings: dict[str, str]) -> LessonResult:
    """Multiply-adds of five mechanisms against the length."""
    length, window = int(float(settings["length"])), int(float(settings["window"]))
    found = count_costs(window, sorted({*LENGTHS, length, length // 2}))
    here = {name: line[length] for name, line in found.items()}
    grown = {name: line[length].multiply_adds / line[length // 2].multiply_adds for name, line in found.items()}
    full = here["full"].multiply_adds
    said = (
        f"At {length:,} tokens full attention scores {here['full'].pairs:,} pairs, and a window of {window} takes "
        f"{here['window'].multiply_adds / full:.1%} of its work. From {length // 2:,} tokens to {length:,} the work grows "
        f"{grown['full']:.1f} times for full attention, {grown['window']:.1f} times for the window and {grown['linear']:.1f} "
        "times for linear attention."
    )
    lines = {name: [(float(n), one.multiply_adds / MILLION) for n, one in line.items()] for name, line in found.items()}
    marks = [(float(length), one.multiply_adds / MILLION) for one in here.values()]
    rows = [
        [name, f"{one.pairs:,}", f"{one.multiply_adds:,}", f"{4 * one.pairs:,}", f"{one.multiply_adds / full:.1%}"]
        for name, one in here.items()
    ]
    heads = ["attention", "pairs", "multiply-adds", "bytes of scores, if all are held", "against full"]
    return LessonResult(
        said,
        [
            make_log_chart("work against length; dots at the n that is set", "million multiply-adds", lines, marks),
            Table(f"one head of width {HEAD_WIDTH} at {length:,} tokens", heads, rows),
        ],
    )


def make_pattern(settings: dict[str, str]) -> Pattern:
    """The pattern that the reader put together."""
    window, block = int(float(settings["window"])), int(float(settings["block"]))
    pattern: Pattern = Window(window, window) | Global(int(float(settings["global"])))
    count = int(float(settings["random"]))
    if count:
        pattern = pattern | RandomBlocks(0, block, count)
    return pattern & CAUSAL if settings["future"] == "hidden" else pattern


def visibility_matrix(pattern: Pattern, length: int) -> Tensor:
    """Who sees whom, (L, L); of several heads, the first."""
    place = torch.arange(length)
    found = pattern.allows(place[:, None], place[None, :])
    return found.reshape(-1, *found.shape[-2:])[0].expand(length, length)


def count_hops(links: Tensor) -> int:
    """How many layers it takes until every token has heard of all it can ever hear of."""
    reached, layers = torch.eye(len(links), dtype=torch.bool), 0
    while True:
        further = (links.float() @ reached.float() > 0) | reached
        if torch.equal(further, reached):
            return layers
        reached, layers = further, layers + 1


def compute_pattern(settings: dict[str, str]) -> LessonResult:
    """A pattern as a map, and its cost."""
    length, chosen = int(float(settings["length"])), make_pattern(settings)
    links = visibility_matrix(chosen, length)
    case = BenchCase("scaled_dot", length, width=HEAD_WIDTH, heads=1, causal=settings["future"] == "hidden")
    mine, full = attention_flops.count_products(int(links.sum()), case), attention_flops.count_dense(None, case)
    layers = count_hops(links)
    said = (
        f"{mine.pairs:,} of {full.pairs:,} pairs are looked at, {mine.pairs / full.pairs:.0%} of full attention; news from any "
        f"token reaches whoever it can reach within {pluralize(layers, 'layer')}, and in one with full attention."
    )
    rows = [
        [name, f"{one.pairs:,}", f"{one.multiply_adds:,}", f"{4 * one.pairs:,}"]
        for name, one in (("this pattern", mine), ("full", full))
    ]
    names = [str(number) for number in range(length)]
    heads = ["pattern", "pairs", f"multiply-adds at width {HEAD_WIDTH}", "bytes of scores"]
    return LessonResult(
        said,
        [
            Heatmap("who sees whom: a row for each query", links.float().tolist(), names, names),
            Table("cost of one head", heads, rows),
        ],
    )


def make_log_chart(
    title: str, y: str, lines: dict[str, list[tuple[float, float]]], dots: Sequence[tuple[float, float]] = ()
) -> LineChart:
    """Lines over the length, both axes logarithmic: a power of n is straight."""
    return LineChart(title, "n, tokens", y, lines, list(dots), log_x=True, log_y=True)


def compute_recurrence(settings: dict[str, str]) -> LessonResult:
    """Steps, paths, work and memory of one layer of each kind against the length."""
    length, width = int(float(settings["length"])), int(float(settings["width"]))
    # an LSTM has four maps of x and h, attention one each for queries, keys, values and the way out
    own = {"LSTM": 8 * width**2, "attention": 4 * width**2}

    def work(name: str, n: int) -> int:
        pairs = attention_flops.count_dense(None, BenchCase("scaled_dot", n, width=width, heads=8)).multiply_adds
        return own[name] * n + (pairs if name == "attention" else 0)

    lengths = sorted({*LENGTHS, length})
    even = (own["LSTM"] - own["attention"]) // (2 * width)  # where 4 d² n of one is 2 d n² of the other
    times = work("attention", length) / work("LSTM", length)
    said = (
        f"To read {length:,} tokens the LSTM takes {length:,} steps one after another, and the first word meets the last only "
        f"through all of them; attention takes one step and one hop, for {format_significant(times)} times the work of the LSTM. At width "
        f"{width} their work is equal at {even:,} tokens, twice the width. To write as many, both take a step for each."
    )
    steps = {"LSTM": lambda n: n, "attention": lambda n: 1}
    memory = {"LSTM": lambda n: 2 * width, "attention": lambda n: 2 * n * width}
    line = lambda value: {name: [(float(n), float(value(name, n))) for n in lengths] for name in own}
    rows = [
        ["steps one after another, to read", f"{length:,}", "1"],
        ["steps one after another, to write", f"{length:,}", f"{length:,}"],
        ["longest path between two words", f"{length:,}", "1"],
        ["multiply-adds", *(f"{work(name, length):,}" for name in own)],
        ["numbers kept to go on", *(f"{memory[name](length):,}" for name in own)],
    ]
    return LessonResult(
        said,
        [
            make_log_chart("steps one after another, to read", "steps", line(lambda name, n: steps[name](n))),
            make_log_chart("work", "million multiply-adds", line(lambda name, n: work(name, n) / MILLION)),
            make_log_chart("memory of the past", "numbers", line(lambda name, n: memory[name](n))),
            Table(f"one layer of width {width} over {length:,} tokens", ["", *own], rows),
        ],
    )


LESSONS = (
    Lesson(
        name="cost",
        title="The cost of full and sparse attention",
        description="Every query meets every key, so n tokens make n² scores: twice the text is four times the work. Long texts need "
        "another way. A window looks at neighbours only, BigBird adds a few global and random blocks, a low rank mixes "
        "all keys into a few, and linear attention sums keys and values once for all queries. Their work grows with n, "
        "once n is larger than what they look at. Counted are multiply-adds on paper, with the formulas that the "
        "library's own cost study uses.",
        formula="full: 2 d n²,   window: 2 d n (window + 1),   low rank: 4 d n r,   linear: 2 d (d + 1) n",
        code=(
            attention_flops.count_dense,
            attention_flops.count_windowed,
            attention_flops.count_bigbird,
            attention_flops.count_low_rank,
            attention_flops.count_linear,
        ),
        controls=(
            Control("length", "n, the tokens of the text", "range", "4096", 256, 16384, 128),
            Control("window", "How many others a token looks at", "range", "256", 128, 1024, 128),
        ),
        compute=compute_cost,
    ),
    Lesson(
        name="pattern",
        title="Sparse attention: an editor of attention patterns",
        description="A pattern says which queries may look at which keys. Put one together: neighbours, a few global tokens that see "
        "and are seen by all, random blocks, and the future open or hidden. Fewer pairs cost less, but news then needs "
        "more layers to travel from one end to the other; a global token or a few random links shorten the way.",
        formula="pattern = (window ∪ global ∪ random) ∩ past",
        code=(Window, Global, RandomBlocks, Causal),
        controls=(
            Control("length", "Tokens", "range", "32", 4, 64, 1),
            Control("window", "Neighbours on each side", "range", "2", 0, 16, 1),
            Control("global", "Global tokens", "range", "1", 0, 8, 1),
            Control("random", "Random blocks for each block of queries", "range", "1", 0, 4, 1),
            Control("block", "Tokens of a block", "range", "2", 1, 8, 1),
            Control("future", "The future", "choice", "seen", choices=("seen", "hidden")),
        ),
        compute=compute_pattern,
    ),
    Lesson(
        name="recurrence",
        title="Recurrence and attention compared",
        description="A recurrent network reads one word after another and keeps one state: any length, little memory, but no step can "
        "begin before the last has ended, and what the first word said has to survive them all. Self-attention reads "
        "a text by comparing all its pairs at once: one step, one hop between any two words, and it must keep all of them. "
        "To write takes a step for each word in either case. Which does more work depends on the length of "
        "the text: up to n = 2 d attention does less, beyond it more.",
        formula="LSTM: n steps, path n, work 8 d² n;   attention: 1 step, path 1, work 4 d² n + 2 d n²;   equal at n = 2 d",
        code=(Recurrent, Attention),
        controls=(
            Control("length", "n, the tokens of the text", "range", "1024", 2, 16384, 1),
            Control("width", "d, the width of the layer", "range", "512", 64, 1024, 64),
        ),
        compute=compute_recurrence,
    ),
)
