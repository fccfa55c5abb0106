"""Models in and out against the `transformers` package, each as a ratio from one interleaved run.

    python -m benchmarks.models loading [DIR]    a directory of 90 MB (weights, tokenizer, module): time and memory
    python -m benchmarks.models forward [NAME]   bert, gpt2, t5, vit at base size, float32, against sdpa

Each writes its part of docs/results/models.json. `loading` runs each load in a process of its own, taking turns; without a
directory it makes one of the size of all-MiniLM-L6-v2.
"""

import json
import subprocess
import sys
import tempfile
import time
from datetime import date
from functools import partial
from pathlib import Path

from benchmarks.attention import spread

RECORD = Path(__file__).parent.parent / "docs" / "results" / "models.json"
LOADERS = {
    "saccade": "import saccade, saccade.models.load\nwork = lambda where: saccade.load(where)",
    "transformers": (
        "from transformers import AutoModel, AutoTokenizer, BertModel, BertTokenizer\n"
        "work = lambda where: (AutoModel.from_pretrained(where), AutoTokenizer.from_pretrained(where))"
    ),
}
CHILD = """
import json, sys, time
import torch
{loader}
peak = lambda: 1024 * int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
before, start = peak(), time.perf_counter()
kept = work(sys.argv[1])
print(json.dumps({{"seconds": time.perf_counter() - start, "bytes": peak() - before}}))
"""


def loading(where: str | None = None, rounds: int = 9) -> dict:
    """Time of one load over time of the other, and the memory above the imports as a share of the file."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(where) if where else made(Path(scratch) / "model")
        size = (path / "model.safetensors").stat().st_size
        found: dict[str, list[dict]] = {name: [] for name in LOADERS}
        for turn in range(rounds + 1):
            for name in list(LOADERS) if turn % 2 else reversed(LOADERS):
                child = [sys.executable, "-W", "ignore", "-c", CHILD.format(loader=LOADERS[name]), str(path)]
                out = subprocess.run(child, capture_output=True, text=True, check=True).stdout
                if turn:  # the first one fills the file cache
                    found[name].append(json.loads(out.splitlines()[-1]))
        ratios = [a["seconds"] / b["seconds"] for a, b in zip(*found.values(), strict=True)]
        return {
            "file MB": round(size / 1e6, 1),
            "time, ours over theirs": spread(ratios),
            "seconds ours": spread([run["seconds"] for run in found["saccade"]]),
            "seconds theirs": spread([run["seconds"] for run in found["transformers"]]),
            "memory above imports, times the file": spread([run["bytes"] / size for run in found["saccade"]]),
            "theirs": spread([run["bytes"] / size for run in found["transformers"]]),
        }


def made(path: Path) -> Path:
    """A directory of the size of all-MiniLM-L6-v2, with a tokenizer of 30,522 ids."""
    import random

    from saccade import text
    from saccade.models.build import new
    from saccade.models.families import bert

    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(40_000)]
    special = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    tokenizer = text.train_tokenizer(
        [" ".join(words)], "wordpiece", 30_522, special_tokens=special, token_template="bert"
    )
    model = new("bert", bert.Config(vocab=30_522, width=384, layers=6, heads=12, ffn_width=1536))
    model.tokenizer = tokenizer
    return model.save(path)


def forward(only: str | None = None, rounds: int = 25) -> dict:
    """Times as fast as the same published architecture in `transformers` with sdpa, and how far the outputs differ."""
    import torch
    import transformers

    found = {}
    for name, make in CASES.items():
        if only and name != only:
            continue
        torch.manual_seed(0)
        config, kind, ours, theirs = make(transformers, torch)
        hers = kind._from_config(config, attn_implementation="sdpa").eval()
        mine = ported(hers, name)
        with torch.inference_mode():
            a, b = ours(mine), theirs(hers)
            ratios = raced(partial(ours, mine), partial(theirs, hers), rounds)
        found[name] = {"times as fast": spread(ratios), "largest difference": float((a - b).abs().max())}
        print(name, found[name], flush=True)
    return found


def raced(ours, theirs, rounds: int) -> list[float]:
    """Their time over ours, from pairs of calls that take turns."""
    ratios = []
    for turn in range(rounds + 3):
        times = {}
        for call in (ours, theirs) if turn % 2 else (theirs, ours):
            start = time.perf_counter()
            call()
            times[call] = time.perf_counter() - start
        if turn >= 3:
            ratios.append(times[theirs] / times[ours])
    return ratios


def ported(hers, name: str):
    """The same weights in our model, through a directory."""
    import saccade

    with tempfile.TemporaryDirectory() as scratch:
        hers.save_pretrained(scratch)
        model = saccade.load(scratch)
        for parameter in model.parameters():  # off the file, which goes away
            parameter.data = parameter.data.clone()
        return model.eval()


def _bert(transformers, torch):
    from saccade.data import Batch, Text

    ids = torch.randint(5, 30_000, (4, 128))
    batch = Batch(Text(ids))
    return (
        transformers.BertConfig(), transformers.BertModel,
        lambda model: model.body(batch), lambda model: model(input_ids=ids).last_hidden_state,
    )  # fmt: skip


def _gpt2(transformers, torch):
    from saccade.data import Batch, Text

    ids = torch.randint(5, 50_000, (4, 128))
    text = Text(ids)

    def ours(model):
        state, first = model.start(Batch(text))
        return model.step(first, state)

    kind = transformers.GPT2LMHeadModel
    return transformers.GPT2Config(), kind, ours, lambda model: model(input_ids=ids, use_cache=True).logits


def _t5(transformers, torch):
    from saccade.data import Batch, Text

    ids, words = torch.randint(5, 32_000, (4, 128)), torch.randint(5, 32_000, (4, 128))
    sizes = {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12, "decoder_start_token_id": 0}

    def ours(model):
        state, _ = model.start(Batch(Text(ids)))
        return model.step(Text(words), state)

    def theirs(model):
        return model(input_ids=ids, decoder_input_ids=words, use_cache=True).logits

    return transformers.T5Config(**sizes), transformers.T5ForConditionalGeneration, ours, theirs


def _vit(transformers, torch):
    from saccade.data import Batch, Image

    pixels = torch.randn(4, 3, 224, 224)
    return (
        transformers.ViTConfig(), transformers.ViTModel,
        lambda model: model.body(Batch(Image(pixels))), lambda model: model(pixel_values=pixels).last_hidden_state,
    )  # fmt: skip


CASES = {"bert": _bert, "gpt2": _gpt2, "t5": _t5, "vit": _vit}
PARTS = {"loading": loading, "forward": forward}


def main() -> None:
    name, *rest = sys.argv[1:] or ["--help"]
    if name not in PARTS:
        print(__doc__)
        return
    import torch

    figures = PARTS[name](*rest)
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    before = record.get(name, {}).get("figures", {}) if name == "forward" and rest else {}
    record[name] = {
        "date": date.today().isoformat(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "figures": {**before, **figures},
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
