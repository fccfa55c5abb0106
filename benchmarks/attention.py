"""The figures of the attention core, each as a ratio from one interleaved run.

    python -m benchmarks.attention overhead      `Attention` against the same projections and the raw kernel
    python -m benchmarks.attention watching      one layer of twelve watched, against none
    python -m benchmarks.attention encoder       windowed and BigBird against the `transformers` package: time, memory, growth

Each writes its part of docs/results/core.json. The encoder cases run in a process each, taking turns.
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
WIDTH, HEADS, INNER, LAYERS = 512, 8, 2048, 4


def spread(values: list[float]) -> dict[str, float]:
    """Median and quartiles (of few values: the extremes)."""
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


def turns(one, other, *, count: int) -> dict[str, float]:
    """The ratio of two times, one over the other, from pairs of calls that take turns."""
    ratios = []
    for i in range(count + 3):
        times = {}
        for run in (one, other) if i % 2 else (other, one):
            start = time.perf_counter()
            run()
            times[run] = time.perf_counter() - start
        if i >= 3:
            ratios.append(times[one] / times[other])
    return spread(ratios)


def overhead() -> dict:
    """`Attention` with scaled dot products against its own four projections around the raw kernel."""
    import torch
    import torch.nn.functional as F

    from saccade.attention import FULL, Sight
    from saccade.parts.multihead_attention import Attention

    found = {}
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
            found[f"n={n}"] = turns(ours, raw, count=2000 if n == 128 else 400 if n == 512 else 60)
    return found


def watching() -> dict:
    """A stack of twelve layers with one of them watched, against the same stack unwatched."""
    import torch

    from saccade.attention import CAUSAL, watch
    from saccade.parts.feedforward import FeedForward
    from saccade.parts.layer import make_layer
    from saccade.parts.multihead_attention import Attention
    from saccade.parts.stack import Stack

    layers = [make_layer(Attention(WIDTH, HEADS), FeedForward(WIDTH, INNER), width=WIDTH) for _ in range(12)]
    stack = Stack(layers, CAUSAL).eval()
    found = {}
    for n in (128, 512):
        x = torch.randn(1, n, WIDTH)

        def watched(where, x=x):
            with watch(stack, where):
                stack(x)

        with torch.no_grad():
            one = lambda: watched("layers.6.*")
            every = lambda: watched("*")
            found[f"one layer, n={n}"] = turns(one, lambda x=x: stack(x), count=60)
            found[f"all layers, n={n}"] = turns(every, lambda x=x: stack(x), count=30)
    return found


def ours(kind: str, n: int):
    from torch import nn

    from saccade.attention import FULL, BigBird, Mechanism, Windowed
    from saccade.parts.feedforward import FeedForward
    from saccade.parts.layer import make_layer
    from saccade.parts.multihead_attention import Attention
    from saccade.parts.stack import Stack

    class Nothing(Mechanism):
        """Every token keeps its own value: what the encoder takes without attention."""

        def attend(self, q, k, v, sight):
            return v

    made = {"windowed": lambda: Windowed(256, global_count=16), "bigbird": lambda: BigBird(HEADS), "none": Nothing}[
        kind
    ]
    parts = lambda: (Attention(WIDTH, HEADS, made()), FeedForward(WIDTH, INNER))
    return Stack([make_layer(*parts(), width=WIDTH, norm_first=False, norm=nn.LayerNorm) for _ in range(LAYERS)], FULL)


def theirs(kind: str, n: int):
    import torch
    from torch import nn

    sizes = {
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": INNER,
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
                mask[:, :16] = 10_000.0  # above zero: global
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


def child(who: str, kind: str, n: int) -> None:
    """One case: the median time of a training step and the peak of memory above the imports."""
    import warnings

    import torch

    from saccade.bench.measure import read_peak_memory

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    module = (ours if who == "ours" else theirs)(kind, n).train()
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


def encoder(rounds: int = 3) -> dict:
    """Training steps of a four-layer encoder: time and memory against the package, and growth of our own."""
    rivals = [(who, kind, n) for n in (4096, 8192) for kind in ("windowed", "bigbird") for who in ("ours", "theirs")]
    growth = [("ours", kind, n) for n in (2048, 16384) for kind in ("windowed", "bigbird")]
    plain = [("ours", "none", n) for n in (4096, 8192)]
    results: dict[tuple, list[dict]] = {}
    for turn in range(rounds):
        cases = rivals + growth + plain
        for case in cases if turn % 2 == 0 else reversed(cases):
            command = [sys.executable, "-m", "benchmarks.attention", "child", *map(str, case)]
            answer = json.loads(
                subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
            )
            results.setdefault(case, []).append(answer)
            print(turn + 1, *case, f"{answer['seconds']:.2f} s, {answer['mb']:.0f} MB", flush=True)
    found: dict = {}
    median = lambda case, key: statistics.median(r[key] for r in results[case])
    for kind in ("windowed", "bigbird"):
        for n in (4096, 8192):
            pairs = zip(results["theirs", kind, n], results["ours", kind, n], strict=True)
            extra = {
                who: median((who, kind, n), "mb") - median(("ours", "none", n), "mb") for who in ("ours", "theirs")
            }
            found[f"{kind} n={n}"] = {
                "times as fast": spread([a["seconds"] / b["seconds"] for a, b in pairs]),
                "seconds ours": round(median(("ours", kind, n), "seconds"), 3),
                "peak MB ours": round(median(("ours", kind, n), "mb")),
                "peak MB theirs": round(median(("theirs", kind, n), "mb")),
                "peak MB without attention": round(median(("ours", "none", n), "mb")),
                "extra memory, ours of theirs": round(extra["ours"] / extra["theirs"], 3),
            }
        sizes = (2048, 4096, 8192, 16384)
        for key, name in (("seconds", "time"), ("mb", "memory")):
            # the best of the rounds: a neighbour on a shared machine can only slow a case down
            points = [(math.log(n), math.log(min(r[key] for r in results["ours", kind, n]))) for n in sizes]
            found[f"{kind}, growth of {name}, 2,048 to 16,384"] = round(
                statistics.linear_regression(*zip(*points, strict=True)).slope, 3
            )
    return found


def main() -> None:
    what = sys.argv[1] if len(sys.argv) > 1 else "all"
    if what == "child":
        return child(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    from saccade.system import describe_machine

    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    parts = {"overhead": overhead, "watching": watching, "encoder": lambda: encoder(rounds)}
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name in parts if what == "all" else [what]:
        print(f"{name} ...", flush=True)
        record[name] = {"measured": str(date.today()), "machine": describe_machine(), "figures": parts[name]()}
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text(json.dumps(record, indent=2) + "\n")
        print(json.dumps(record[name]["figures"], indent=2))
    return None


if __name__ == "__main__":
    main()
