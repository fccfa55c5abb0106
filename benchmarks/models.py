"""Loading and forward passes compared with `transformers`, each as a ratio from an interleaved run.

    python -m benchmarks.models loading [DIR]    load a directory of 90 MB (weights and tokenizer): time and memory
    python -m benchmarks.models forward [NAME]   forward passes of bert, gpt2, t5, vit at base size, in float32, against SDPA

Each writes its part of docs/results/models.json. `loading` runs each load in its own process, the libraries alternately; without
a directory it creates one of the size of all-MiniLM-L6-v2.
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
    "saccade": "import saccade, saccade.models.load\nload = lambda directory: saccade.load(directory)",
    "transformers": (
        "from transformers import AutoModel, AutoTokenizer, BertModel, BertTokenizer\n"
        "load = lambda path: (AutoModel.from_pretrained(path), AutoTokenizer.from_pretrained(path))"
    ),
}
CHILD = """
import json, sys, time
import torch
{loader}
peak = lambda: 1024 * int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
before, start = peak(), time.perf_counter()
model = load(sys.argv[1])
print(json.dumps({{"seconds": time.perf_counter() - start, "bytes": peak() - before}}))
"""


def measure_loading(directory: str | None = None, rounds: int = 9) -> dict:
    """The time to load relative to `transformers`, and the memory on top of the imports relative to the file size."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(directory) if directory else make_directory(Path(scratch) / "model")
        size = (path / "model.safetensors").stat().st_size
        runs: dict[str, list[dict]] = {name: [] for name in LOADERS}
        for number in range(rounds + 1):
            for name in list(LOADERS) if number % 2 else reversed(LOADERS):
                child = [sys.executable, "-W", "ignore", "-c", CHILD.format(loader=LOADERS[name]), str(path)]
                out = subprocess.run(child, capture_output=True, text=True, check=True).stdout
                if number:  # the first round fills the file cache
                    runs[name].append(json.loads(out.splitlines()[-1]))
        ratios = [a["seconds"] / b["seconds"] for a, b in zip(*runs.values(), strict=True)]
        return {
            "file MB": round(size / 1e6, 1),
            "time, ours over theirs": spread(ratios),
            "seconds ours": spread([run["seconds"] for run in runs["saccade"]]),
            "seconds theirs": spread([run["seconds"] for run in runs["transformers"]]),
            "memory above imports, times the file": spread([run["bytes"] / size for run in runs["saccade"]]),
            "theirs": spread([run["bytes"] / size for run in runs["transformers"]]),
        }


def make_directory(path: Path) -> Path:
    """A model directory of the size of all-MiniLM-L6-v2, with a tokenizer of 30,522 tokens."""
    import random

    from saccade import text
    from saccade.models.build import new
    from saccade.models.families import bert

    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(40_000)]
    special_tokens = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    tokenizer = text.train_tokenizer(
        [" ".join(words)], "wordpiece", 30_522, special_tokens=special_tokens, token_template="bert"
    )
    model = new("bert", bert.Config(vocab=30_522, width=384, layers=6, heads=12, ffn_width=1536))
    model.tokenizer = tokenizer
    return model.save(path)


def measure_forward(only: str | None = None, rounds: int = 25) -> dict:
    """The speedup over the same architecture in `transformers` with SDPA, and the largest difference of the outputs."""
    import torch
    import transformers

    figures = {}
    for name, make in CASES.items():
        if only and name != only:
            continue
        torch.manual_seed(0)
        config, model_class, ours, theirs = make(transformers, torch)
        hf_model = model_class._from_config(config, attn_implementation="sdpa").eval()
        model = convert_model(hf_model)
        with torch.inference_mode():
            a, b = ours(model), theirs(hf_model)
            ratios = measure_speedup(partial(ours, model), partial(theirs, hf_model), rounds)
        figures[name] = {"times as fast": spread(ratios), "largest difference": float((a - b).abs().max())}
        print(name, figures[name], flush=True)
    return figures


def measure_speedup(ours, theirs, rounds: int) -> list[float]:
    """The time of `transformers` divided by ours, from pairs of calls in alternating order."""
    ratios = []
    for number in range(rounds + 3):
        times = {}
        for call in (ours, theirs) if number % 2 else (theirs, ours):
            start = time.perf_counter()
            call()
            times[call] = time.perf_counter() - start
        if number >= 3:  # the first three rounds are a warmup
            ratios.append(times[theirs] / times[ours])
    return ratios


def convert_model(hf_model):
    """A saccade model with the same weights, converted by saving and loading."""
    import saccade

    with tempfile.TemporaryDirectory() as scratch:
        hf_model.save_pretrained(scratch)
        model = saccade.load(scratch)
        for parameter in model.parameters():  # the file behind the memory map is deleted
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

    model_class = transformers.GPT2LMHeadModel
    return transformers.GPT2Config(), model_class, ours, lambda model: model(input_ids=ids, use_cache=True).logits


def _t5(transformers, torch):
    from saccade.data import Batch, Text

    ids, target_ids = torch.randint(5, 32_000, (4, 128)), torch.randint(5, 32_000, (4, 128))
    sizes = {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12, "decoder_start_token_id": 0}

    def ours(model):
        state, _ = model.start(Batch(Text(ids)))
        return model.step(Text(target_ids), state)

    def theirs(model):
        return model(input_ids=ids, decoder_input_ids=target_ids, use_cache=True).logits

    return transformers.T5Config(**sizes), transformers.T5ForConditionalGeneration, ours, theirs


def _vit(transformers, torch):
    from saccade.data import Batch, Image

    pixels = torch.randn(4, 3, 224, 224)
    return (
        transformers.ViTConfig(), transformers.ViTModel,
        lambda model: model.body(Batch(Image(pixels))), lambda model: model(pixel_values=pixels).last_hidden_state,
    )  # fmt: skip


CASES = {"bert": _bert, "gpt2": _gpt2, "t5": _t5, "vit": _vit}
BENCHMARKS = {"loading": measure_loading, "forward": measure_forward}


def main() -> None:
    name, *rest = sys.argv[1:] or ["--help"]
    if name not in BENCHMARKS:
        print(__doc__)
        return
    import torch

    figures = BENCHMARKS[name](*rest)
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
