"""Cost of attention maps: compared with a plain forward pass, with BertViz, and the memory at 4,096 tokens.

    python -m benchmarks.explain            writes docs/results/looking.json

The encoder has the size of BERT base (12 layers of 12 heads, width 768) and random weights, which take as long as trained ones.
BertViz gets the attention weights from the same encoder in `transformers`, with eager attention as its documentation requires,
and renders its notebook view; saccade writes the page of `saccade look --html`. The two alternate in one process.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

from benchmarks.attention import spread

RECORD = Path(__file__).parent.parent / "docs" / "results" / "looking.json"
TOKENS, LONG_TOKENS, ROUNDS = 128, 4096, 9
SENTENCE = "the eye jumps from one point of interest to the next and rests there "


def time_call(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def make_encoder(max_positions: int):
    """A saccade encoder with a byte-level tokenizer."""
    import torch

    from saccade.models.build import new
    from saccade.models.families import bert
    from saccade.text.train import train_tokenizer

    torch.manual_seed(0)
    tokenizer = train_tokenizer([], "bytes")
    model = new("bert", bert.Config(vocab=tokenizer.vocab, max_positions=max_positions, dropout=0.0)).eval()
    model.tokenizer = tokenizer
    return model


def make_text(tokens: int) -> str:
    """A text of this number of byte tokens."""
    return (SENTENCE * (tokens // len(SENTENCE) + 1))[:tokens]


def measure_passes() -> dict:
    """The time of `look` at all layers and heads relative to a forward pass, and the time to a finished page vs. BertViz."""
    import torch
    from bertviz import head_view
    from transformers import BertConfig, BertModel

    import saccade
    from saccade.data import Batch, Text
    from saccade.explain.html_report import write_html_report

    model, text = make_encoder(512), make_text(TOKENS)
    ids = model.tokenizer.encode(text).ids
    tokens = [model.tokenizer.id_to_token(id) for id in ids]
    batch = Batch(Text.pad([ids]))
    config = BertConfig(vocab_size=model.config.vocab, attn_implementation="eager")
    hf_model = BertModel(config).eval()

    def bertviz() -> None:
        out = hf_model(torch.tensor([ids]), output_attentions=True)
        head_view(out.attentions, tokens, html_action="return")

    times: dict[str, list[float]] = {"forward": [], "look": [], "page": [], "bertviz": []}
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        functions = {
            "forward": lambda: model(batch),
            "look": lambda: saccade.look(model, text),
            "page": lambda: write_html_report(saccade.look(model, text), Path(folder) / "looks.html"),
            "bertviz": bertviz,
        }
        for number in range(ROUNDS + 2):
            for name in list(functions) if number % 2 else reversed(functions):
                seconds = time_call(functions[name])
                if number > 1:  # the first two rounds are a warmup
                    times[name].append(seconds)
    ratio = lambda a, b: spread([x / y for x, y in zip(times[a], times[b], strict=True)])
    return {
        "tokens": len(ids),
        "a look over the forward pass": ratio("look", "forward"),
        "times as fast as BertViz, to a finished page": ratio("bertviz", "page"),
        "seconds": {name: spread(seconds) for name, seconds in times.items()},
    }


def measure_memory() -> dict:
    """Peak memory of a process that looks at one layer of a long text: pooled, which is the default, and with every weight."""
    figures = {}
    for reduction in ("pooled", "every weight"):
        out = subprocess.run(
            [sys.executable, "-m", "benchmarks.explain", reduction], capture_output=True, text=True, check=True
        ).stdout
        figures[reduction] = json.loads(out.splitlines()[-1])
    return {"tokens": LONG_TOKENS, "layers": 1, **figures}


def measure_in_child(reduction: str) -> None:
    """Measure the peak memory of one look in this process and print it."""
    import torch

    import saccade
    from saccade.attention.watch import KeepAll

    model, text = make_encoder(LONG_TOKENS), make_text(LONG_TOKENS)
    before = peak_mb()
    with torch.no_grad():
        looks = saccade.look(model, text, layers=[-1], reduce=KeepAll() if reduction == "every weight" else None)
    print(json.dumps({"shape": list(looks[0].weights.shape), "peak MB": peak_mb(), "before MB": before}))


def peak_mb() -> int:
    """The peak memory of this process in MB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


if __name__ == "__main__":
    if sys.argv[1:]:
        measure_in_child(sys.argv[1])
    else:
        from saccade.system import describe_machine

        record = {
            "machine": describe_machine(),
            "date": str(date.today()),
            "passes": measure_passes(),
            "memory": measure_memory(),
        }
        RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(json.dumps(record, indent=1))
