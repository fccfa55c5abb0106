"""The table of docs/benchmarks.md, made from the records in docs/results: `python -m benchmarks.figures_table` prints it."""

import json
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "docs" / "results"
RECORD = json.loads((RESULTS / "core.json").read_text())


def span(figure: dict) -> str:
    return f"{figure['median']:.2f} ({figure['low']:.2f} to {figure['high']:.2f})"


def rows() -> list[tuple[str, str, str, str]]:
    """(what, goal, measured, command)"""
    found = []
    for n, figure in RECORD["overhead"]["figures"].items():
        command = "`python -m benchmarks.attention overhead`"
        found.append(
            (f"`Attention` over its own projections and the raw kernel, {n}", "at most 1.05", span(figure), command)
        )
    for what, figure in RECORD["watching"]["figures"].items():
        goal = "at most 1.15" if what == "one layer, n=512" else "-"
        found.append(
            (
                f"a forward pass of 12 layers, {what} watched, over none",
                goal,
                span(figure),
                "`python -m benchmarks.attention watching`",
            )
        )
    goals = {"windowed n=4096": 2.3, "windowed n=8192": 2.6, "bigbird n=4096": 1.6, "bigbird n=8192": 2.1}
    rival = {"windowed": "Longformer", "bigbird": "BigBird"}
    for key, figure in RECORD["encoder"]["figures"].items():
        kind = key.split()[0].strip(",")
        command = "`python -m benchmarks.attention encoder`"
        if isinstance(figure, dict):
            at = key.split()[1]
            said = f"{kind}, 4 layers, training, {at}: times as fast as the {rival[kind]} of `transformers`"
            found.append((said, f"at least {goals[key]}", span(figure["times as fast"]), command))
            peaks = f"{figure['peak MB ours']} and {figure['peak MB theirs']} MB in all"
            share = f"{figure['extra memory, ours of theirs']:.2f} ({peaks})"
            found.append(
                (
                    "the same: memory beyond that of an encoder without attention, share of theirs",
                    "at most 0.20",
                    share,
                    command,
                )
            )
        else:
            found.append((f"{key}: exponent of n", "at most 1.15", f"{figure:.2f}", command))
    return found + models() + training() + writing() + looking()


def looking() -> list[tuple[str, str, str, str]]:
    """What looking costs in time and in memory."""
    record = json.loads((RESULTS / "looking.json").read_text())
    passes, memory, command = record["passes"], record["memory"], "`python -m benchmarks.explain`"
    said = f"looking at all layers and heads, {passes['tokens']} tokens, BERT's base size"
    found = [
        (f"{said}: over the forward pass", "at most 2", span(passes["a look over the forward pass"]), command),
        (
            f"{said}: times as fast as BertViz, to a finished page",
            "at least 1.5",
            span(passes["times as fast as BertViz, to a finished page"]),
            command,
        ),
    ]
    for how in ("pooled", "every weight"):
        peak = f"{memory[how]['peak MB']} MB, of which {memory[how]['before MB']} before the look"
        found.append(
            (f"looking at one layer, {memory['tokens']:,} tokens, {how}: memory", "below 1,500 MB", peak, command)
        )
    return found


def models() -> list[tuple[str, str, str, str]]:
    """Loading and forward passes beside `transformers`."""
    record = json.loads((RESULTS / "models.json").read_text())
    load, command = record["loading"]["figures"], "`python -m benchmarks.models loading`"
    size = f"a directory of {load['file MB']:.0f} MB"
    took, held = span(load["time, ours over theirs"]), span(load["memory above imports, times the file"])
    found = [
        (f"loading {size}: time, over `AutoModel` and `AutoTokenizer`", "at most 0.50", took, command),
        (f"loading {size}: memory above the imports, over the file", "at most 1.20", held, command),
    ]
    for name, figure in record["forward"]["figures"].items():
        said = f"forward pass of {name} at base size: times as fast as `transformers` with sdpa"
        found.append((said, "at least 0.97", span(figure["times as fast"]), "`python -m benchmarks.models forward`"))
    return found


def _figures(name: str) -> dict:
    """Of a record that is there."""
    path = RESULTS / name
    return json.loads(path.read_text())["figures"] if path.exists() else {}


GOALS = {"causal": 1.5, "full windows": 1.5, "encoder-decoder": 1.5, "short texts": 2, "masked": 3}


def training() -> list[tuple[str, str, str, str]]:
    """Training throughput beside the peers, and what a run costs over its bare steps."""
    command, found = "`python -m benchmarks.train`", []
    for key, figure in _figures("train.json").items():
        goal = f"at least {GOALS[key.split(',')[0]]}"
        said = f"training, {key}: times as fast as `transformers` with sdpa"
        found.append((said, goal, span(figure["times transformers"]), command))
        peak = figure["peak MB"]
        share = f"{peak['saccade'] / peak['transformers']:.2f} ({peak['saccade']} and {peak['transformers']} MB)"
        found.append(("the same: peak memory, over theirs", "at most 1", share, command))
        if "times by hand" in figure:
            said = f"training, {key}: times as fast as a loop written by hand"
            found.append((said, "at least 0.97", span(figure["times by hand"]), command))
    for key, figure in _figures("overhead.json").items():
        said = f"a run over its bare forward, backward and step: {key}"
        found.append((said, "at most 1.05", span(figure), "`python -m benchmarks.overhead`"))
    for key, figure in _figures("precision.json").items():
        said = f"training with products in bfloat16, {key}: times as fast as with float32"
        found.append((said, "-", span(figure), "`python -m benchmarks.precision`"))
    ways = {"copies": "DDP", "parts": "FSDP2, `--train.fsdp`"}
    for key, figure in _figures("ranks.json").items():
        said = f"two processes of one thread over one of two: {ways[key]}, times as fast"
        ratio = figure["times as fast as one process"]
        found.append((said, f"at least {figure['goal']}", span(ratio), "`python -m benchmarks.distributed`"))
    return found


WRITING = {  # a record's file -> what each case is, and the least times as fast as each peer
    "generate": {
        "batch 1": ("GPT-2 124 M, one text", {"transformers": 3.5, "ctranslate2": 1.5, "llama.cpp": 1.0}),
        "batch 8": ("GPT-2 124 M, 8 texts", {"transformers": 3.5, "ctranslate2": 1.6, "llama.cpp": 1.3}),
        "batch 32, mixed lengths": (
            "GPT-2 124 M, 32 texts of mixed lengths",
            {"transformers": 4, "ctranslate2": 1.3},
        ),
        "start-up": ("GPT-2 124 M, from the command to the first token", {"transformers": 2}),
    },
    "translate": {
        "greedy": ("6 + 6 layers, 32 sentences, greedy", {}),
        "beam 4": ("6 + 6 layers, 32 sentences, 4 beams", {"transformers": 2.5, "ctranslate2": 1.1}),
        "student": ("the English-Portuguese student, 1,000 sentences", {}),
    },
}
PEERS = {"transformers": "`transformers`", "ctranslate2": "CTranslate2"}
LISTED = ", shortlist"


def writing() -> list[tuple[str, str, str, str]]:
    """How fast texts are written beside the peers, how near that is to the speed of memory, and what it holds."""
    found = []
    for name, cases in WRITING.items():
        for case, figure in _figures(f"{name}.json").items():
            what, goals = cases[case]
            asked = " --model DIR --data FILE" if case == "student" else ""
            found += written(
                f"writing, {what}", goals, figure, f'`python -m benchmarks.{name} --cases "{case}"{asked}`'
            )
    return found


def written(what: str, goals: dict[str, float], figure: dict, command: str) -> list[tuple[str, str, str, str]]:
    """The rows of one case; with a shortlist we are beside those who have one, too."""
    found, precision = [], figure.get("precision", {})
    for ours, ratios in figure.get("times as fast", {}).items():
        for who, ratio in ratios.items():
            if ours.endswith(LISTED) != who.endswith(LISTED):
                continue
            pair = f" ({precision[ours]} and {precision[who]})" if precision else ""
            goal = f"at least {goals[who]}" if who in goals else "-"
            found.append((f"{what}: times as fast as {PEERS.get(who, who)}{pair}", goal, span(ratio), command))
    if "saccade" in figure.get("share of the memory's speed", {}):
        share = span(figure["share of the memory's speed"]["saccade"])
        found.append(("the same: share of the speed at which memory can be read", "-", share, command))
    if "saccade" in figure.get("weights MB", {}):
        found.append((*_held(figure), command))
    return found


def _held(figure: dict) -> tuple[str, str, str]:
    """What is held of memory, beside what may be; older records have no keys and values, and what is held at the end."""
    held, weights = figure["held MB"]["saccade"], figure["weights MB"]["saccade"]
    if "saccade" not in figure.get("allowed MB", {}):
        share = f"{held / weights:.2f} ({held} and {weights} MB)"
        return "the same: memory held at the end, over the weights", "at most 1.15 and keys and values", share
    goal = f"at most {figure['allowed MB']['saccade']}: 1.15 times the weights, and keys and values"
    return "the same: most memory held while writing, MB", goal, f"{held}"


if __name__ == "__main__":
    print("| what | goal | measured | command |\n|---|---|---|---|")
    for row in rows():
        print("| " + " | ".join(row) + " |")
