"""Benchmarks of attention, each as a ratio from an interleaved run.

    python -m benchmarks.attention overhead      `Attention` compared with the same projections around the raw SDPA kernel
    python -m benchmarks.attention watching      a forward pass with one or all layers watched, compared with none
    python -m benchmarks.attention encoder       windowed and BigBird attention compared with `transformers`: time, memory, growth

Each writes its part of docs/results/core.json. Each case of `encoder` runs in its own process, and the cases alternate.
"""

import json
import math
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

RECORD = Path(__file__).parent.parent / "docs" / "results" / "core.json"
WIDTH, HEADS, FFN_WIDTH, LAYERS = 512, 8, 2048, 4


def spread(values: list[float]) -> dict[str, float]:
    """The median and the quartiles; of fewer than eight values, the median and the extremes."""
    values = sorted(values)
    low, high = (
        (values[0], values[-1])
        if len(values) < 8
        else (statistics.quantiles(values)[0], statistics.quantiles(values)[2])
    )
    return {
        "median": round(statistics.median(values), 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "count": len(values),
    }


def time_ratio(function, baseline, *, count: int) -> dict[str, float]:
    """The time of a function relative to a baseline, from pairs of calls in alternating order."""
    ratios = []
    for number in range(count + 3):
        times = {}
        for call in (function, baseline) if number % 2 else (baseline, function):
            start = time.perf_counter()
            call()
            times[call] = time.perf_counter() - start
        if number >= 3:  # the first three rounds are a warmup
            ratios.append(times[function] / times[baseline])
    return spread(ratios)


def measure_overhead() -> dict:
    """`Attention` with scaled dot-product attention compared with its four projections around the raw SDPA kernel."""
    import torch
    import torch.nn.functional as F

    from saccade.attention import FULL, Sight
    from saccade.parts.multihead_attention import Attention

    figures = {}
    for n in (128, 512, 2048):
        module = Attention(WIDTH, HEADS).eval()
        x = torch.randn(1, n, WIDTH)
        q, k, v, o = module.query, module.key, module.value, module.output

        def raw(x=x, n=n, q=q, k=k, v=v, o=o):
            heads = [f(x).view(1, n, HEADS, -1).transpose(1, 2) for f in (q, k, v)]
            return o(F.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(1, n, WIDTH))

        with torch.no_grad():
            ours = lambda module=module, x=x: module(x, Sight(FULL))
            assert torch.equal(ours(), raw())
            figures[f"n={n}"] = time_ratio(ours, raw, count=2000 if n == 128 else 400 if n == 512 else 60)
    return figures


def measure_watching() -> dict:
    """A stack of twelve layers with one or all of them watched, compared with the same stack without `watch`."""
    import torch

    from saccade.attention import CAUSAL, watch
    from saccade.parts.feedforward import FeedForward
    from saccade.parts.layer import make_layer
    from saccade.parts.multihead_attention import Attention
    from saccade.parts.stack import Stack

    layers = [make_layer(Attention(WIDTH, HEADS), FeedForward(WIDTH, FFN_WIDTH), width=WIDTH) for _ in range(12)]
    stack = Stack(layers, CAUSAL).eval()
    figures = {}
    for n in (128, 512):
        x = torch.randn(1, n, WIDTH)

        def forward_watched(pattern, x=x):
            with watch(stack, pattern):
                stack(x)

        with torch.no_grad():
            forward = lambda x=x: stack(x)
            watch_one, watch_all = lambda: forward_watched("layers.6.*"), lambda: forward_watched("*")
            figures[f"one layer, n={n}"] = time_ratio(watch_one, forward, count=60)
            figures[f"all layers, n={n}"] = time_ratio(watch_all, forward, count=30)
    return figures


def make_saccade_encoder(kind: str, n: int):
    """An encoder of saccade with windowed, BigBird or no attention."""
    from torch import nn

    from saccade.attention import FULL, BigBird, Mechanism, Windowed
    from saccade.parts.feedforward import FeedForward
    from saccade.parts.layer import make_layer
    from saccade.parts.multihead_attention import Attention
    from saccade.parts.stack import Stack

    class NoAttention(Mechanism):
        """Returns the values unchanged, to measure the encoder without attention."""

        def attend(self, q, k, v, sight):
            return v

    mechanisms = {
        "windowed": lambda: Windowed(256, global_count=16), "bigbird": lambda: BigBird(HEADS), "none": NoAttention,
    }  # fmt: skip
    make = mechanisms[kind]
    parts = lambda: (Attention(WIDTH, HEADS, make()), FeedForward(WIDTH, FFN_WIDTH))
    return Stack([make_layer(*parts(), width=WIDTH, norm_first=False, norm=nn.LayerNorm) for _ in range(LAYERS)], FULL)


def make_transformers_encoder(kind: str, n: int):
    """The encoder of Longformer or BigBird in `transformers`, with the same sizes."""
    import torch
    from torch import nn

    sizes = {
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": FFN_WIDTH,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": n + 2,
    }

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            if kind == "windowed":
                from transformers.models.longformer import modeling_longformer as package
                from transformers.models.longformer.configuration_longformer import LongformerConfig

                config = LongformerConfig(attention_window=[512] * LAYERS, **sizes)
                self.encoder = package.LongformerEncoder(config)
                mask = torch.zeros(1, n)
                mask[:, :16] = 10_000.0  # positive: global attention
                self.options = {"attention_mask": mask}
            else:
                from transformers.models.big_bird import modeling_big_bird as package
                from transformers.models.big_bird.configuration_big_bird import BigBirdConfig

                self.encoder = package.BigBirdEncoder(BigBirdConfig(block_size=64, num_random_blocks=3, **sizes))
                names = ("blocked_encoder_mask", "band_mask", "from_mask", "to_mask")
                masks = package.BigBirdModel.create_masks_for_block_sparse_attn(torch.ones(1, n), 64)
                self.options = dict(zip(names, masks, strict=True)) | {"attention_mask": None}

        def forward(self, x):
            return self.encoder(x, **self.options).last_hidden_state

    return Encoder()


def measure_in_child(library: str, kind: str, n: int) -> None:
    """Measure one case in this process: the median time of a training step and the peak memory on top of the imports."""
    import warnings

    import torch

    from saccade.bench.measure import read_peak_memory

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    make = make_saccade_encoder if library == "ours" else make_transformers_encoder
    module = make(kind, n).train()
    base, _ = read_peak_memory(reset=True)
    x = torch.randn(1, n, WIDTH)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        module(x).square().mean().backward()
        times.append(time.perf_counter() - start)
        module.zero_grad(set_to_none=True)
    peak, _ = read_peak_memory()
    assert base is not None, "memory cannot be measured on this system"
    assert peak is not None
    print(json.dumps({"seconds": sorted(times)[1], "mb": (peak - base) / 2**20}))


def measure_encoder(rounds: int = 3) -> dict:
    """Training steps of a four-layer encoder: time and memory compared with `transformers`, and growth with the length."""
    kinds, libraries = ("windowed", "bigbird"), ("ours", "theirs")
    compared = [(library, kind, n) for n in (4096, 8192) for kind in kinds for library in libraries]
    growth = [("ours", kind, n) for n in (2048, 16384) for kind in kinds]
    without = [("ours", "none", n) for n in (4096, 8192)]
    results: dict[tuple, list[dict]] = {}
    for number in range(rounds):
        cases = compared + growth + without
        for case in cases if number % 2 == 0 else reversed(cases):
            command = [sys.executable, "-m", "benchmarks.attention", "child", *map(str, case)]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            result = json.loads(output.splitlines()[-1])
            results.setdefault(case, []).append(result)
            print(number + 1, *case, f"{result['seconds']:.2f} s, {result['mb']:.0f} MB", flush=True)
    figures: dict = {}
    median = lambda case, key: statistics.median(r[key] for r in results[case])
    for kind in kinds:
        for n in (4096, 8192):
            pairs = zip(results["theirs", kind, n], results["ours", kind, n], strict=True)
            base = median(("ours", "none", n), "mb")
            extra = {library: median((library, kind, n), "mb") - base for library in libraries}
            figures[f"{kind} n={n}"] = {
                "times as fast": spread([a["seconds"] / b["seconds"] for a, b in pairs]),
                "seconds ours": round(median(("ours", kind, n), "seconds"), 3),
                "peak MB ours": round(median(("ours", kind, n), "mb")),
                "peak MB theirs": round(median(("theirs", kind, n), "mb")),
                "peak MB without attention": round(base),
                "extra memory, ours of theirs": round(extra["ours"] / extra["theirs"], 3),
            }
        sizes = (2048, 4096, 8192, 16384)
        for key, name in (("seconds", "time"), ("mb", "memory")):
            # the fastest round: other load on a shared machine can only slow a case down
            points = [(math.log(n), math.log(min(r[key] for r in results["ours", kind, n]))) for n in sizes]
            figures[f"{kind}, growth of {name}, 2,048 to 16,384"] = round(
                statistics.linear_regression(*zip(*points, strict=True)).slope, 3
            )
    return figures


def main() -> None:
    selected = sys.argv[1] if len(sys.argv) > 1 else "all"
    if selected == "child":
        return measure_in_child(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    from saccade.system import describe_machine

    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    measurements = {
        "overhead": measure_overhead, "watching": measure_watching, "encoder": lambda: measure_encoder(rounds),
    }  # fmt: skip
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name in measurements if selected == "all" else [selected]:
        print(f"{name} ...", flush=True)
        record[name] = {"measured": str(date.today()), "machine": describe_machine(), "figures": measurements[name]()}
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text(json.dumps(record, indent=2) + "\n")
        print(json.dumps(record[name]["figures"], indent=2))
    return None


if __name__ == "__main__":
    main()
