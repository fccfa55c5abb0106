"""What looking costs: beside the plain forward pass, beside BertViz, and in memory at 4,096 tokens.

    python -m benchmarks.explain            writes docs/results/looking.json

The encoder has BERT's base size (12 layers of 12 heads, 768 wide) and random weights, which cost what trained ones do. BertViz
gets its weights from the same encoder in `transformers` with eager attention, as it asks for, and its view is the page it makes
for a notebook; ours is the page that `saccade look --html` writes. They take turns in one process.
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
TOKENS, LONG, ROUNDS = 128, 4096, 9
LETTERS = "the eye jumps from one point of interest to the next and rests there "


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def encoder(length: int):
    """Ours, with a tokenizer of bytes."""
    import torch

    from saccade.models.build import new
    from saccade.models.families import bert
    from saccade.text.train import train_tokenizer

    torch.manual_seed(0)
    words = train_tokenizer([], "bytes")
    model = new("bert", bert.Config(vocab=words.vocab, max_positions=length, dropout=0.0)).eval()
    model.tokenizer = words
    return model


def text_of(tokens: int) -> str:
    """So many tokens of one byte."""
    return (LETTERS * (tokens // len(LETTERS) + 1))[:tokens]


def passes() -> dict:
    """A look at all layers and heads over the plain forward pass, and finished pages beside BertViz."""
    import torch
    from bertviz import head_view
    from transformers import BertConfig, BertModel

    import saccade
    from saccade.data import Batch, Text
    from saccade.explain.html_report import write_html_report

    model, text = encoder(512), text_of(TOKENS)
    ids = model.tokenizer.encode(text).ids
    names = [model.tokenizer.id_to_token(id) for id in ids]
    batch = Batch(Text.pad([ids]))
    config = BertConfig(vocab_size=model.config.vocab, attn_implementation="eager")
    theirs = BertModel(config).eval()

    def bertviz() -> None:
        out = theirs(torch.tensor([ids]), output_attentions=True)
        head_view(out.attentions, names, html_action="return")

    found: dict[str, list[float]] = {"forward": [], "look": [], "page": [], "bertviz": []}
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        work = {
            "forward": lambda: model(batch),
            "look": lambda: saccade.look(model, text),
            "page": lambda: write_html_report(saccade.look(model, text), Path(folder) / "looks.html"),
            "bertviz": bertviz,
        }
        for turn in range(ROUNDS + 2):
            for name in list(work) if turn % 2 else reversed(work):
                seconds = timed(work[name])
                if turn > 1:
                    found[name].append(seconds)
    ratio = lambda a, b: spread([x / y for x, y in zip(found[a], found[b], strict=True)])
    return {
        "tokens": len(ids),
        "a look over the forward pass": ratio("look", "forward"),
        "times as fast as BertViz, to a finished page": ratio("bertviz", "page"),
        "seconds": {name: spread(times) for name, times in found.items()},
    }


def memory() -> dict:
    """The most memory of a process that looks at one layer of a long text: as it does unasked, and with every weight."""
    found = {}
    for how in ("pooled", "every weight"):
        out = subprocess.run(
            [sys.executable, "-m", "benchmarks.explain", how], capture_output=True, text=True, check=True
        ).stdout
        found[how] = json.loads(out.splitlines()[-1])
    return {"tokens": LONG, "layers": 1, **found}


def child(how: str) -> None:
    import torch

    import saccade
    from saccade.attention.watch import KeepAll

    model, text = encoder(LONG), text_of(LONG)
    before = peak()
    with torch.no_grad():
        looks = saccade.look(model, text, layers=[-1], reduce=KeepAll() if how == "every weight" else None)
    print(json.dumps({"shape": list(looks[0].weights.shape), "peak MB": peak(), "before MB": before}))


def peak() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


if __name__ == "__main__":
    if sys.argv[1:]:
        child(sys.argv[1])
    else:
        from saccade.system import describe_machine

        record = {"machine": describe_machine(), "date": str(date.today()), "passes": passes(), "memory": memory()}
        RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(json.dumps(record, indent=1))
