"""What short products are worth: `python -m benchmarks.precision` writes docs/results/precision.json.

A step of training with train.precision bfloat16 beside the same step with float32: the same model, batches and optimiser, in
turns of a few steps. Where the processor has no instructions for bfloat16 there is nothing to measure, and it says so.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.attention import spread
from benchmarks.training.common import by_length, lines
from saccade.data import Example
from saccade.models.build import new
from saccade.models.families import bert, gpt2, transformer
from saccade.system import describe_machine
from saccade.tasks.base import Item
from saccade.tasks.batches import window_batches
from saccade.tasks.label import Label
from saccade.tasks.language import Language
from saccade.tasks.translate import Translate
from saccade.training.autocast import cpu_has_bfloat16
from saccade.training.config import Config
from saccade.training.loop import Learner

RECORD = Path(__file__).parent.parent / "docs" / "results" / "precision.json"
STEPS, ROUNDS = 6, 8
VOCAB = 6000


def translator(config: dict) -> Learner:
    """As the recipe tatoeba-en-fr."""
    model = new("transformer", transformer.Config(VOCAB, 192, 2, 4, 768, position="rotary"))
    texts = lines(VOCAB)
    items = [Item(Example({}), a, target=b) for a, b in zip(texts, reversed(texts), strict=True)]
    return learner(model, Translate(), by_length(Translate(), items, 4096), optimizer="muon", **config)


def reader(config: dict) -> Learner:
    """all-MiniLM-L6-v2's size, on sentences."""
    task = Label(labels=("no", "yes"))
    model = new(
        "bert",
        bert.Config(vocab=VOCAB, width=384, layers=6, heads=12, ffn_width=1536),
        head="label",
        labels=task.labels,
    )
    items = [Item(Example({}), text, gold=len(text) % 2) for text in lines(VOCAB)]
    return learner(model, task, by_length(task, items, 1024), **config)


def writer(config: dict) -> Learner:
    """GPT-2's architecture, 4 layers, 256 wide, on windows of 256."""
    model = new("gpt2", gpt2.Config(vocab=VOCAB, width=256, layers=4, heads=4, max_positions=256))
    ids = np.random.default_rng(0).integers(6, VOCAB, 200_000).astype(np.int32)
    return learner(model, Language(), window_batches(Language(), ids, 256, batch_tokens=2048), **config)


def learner(model, task, feed, **config) -> Learner:
    return Learner(model, task, feed, Config(epochs=100, **config))


CASES: dict[str, Callable[[dict], Learner]] = {
    "a translator, 2 + 2 layers, 192 wide, Muon": translator,
    "a reader, 6 layers, 384 wide": reader,
    "a language model, 4 layers, 256 wide": writer,
}


def stretch(one: Learner) -> float:
    """Seconds of a few steps."""
    start = time.perf_counter()
    for _ in range(STEPS):
        one.step()
    return time.perf_counter() - start


def main() -> int:
    if not cpu_has_bfloat16():
        print(
            "precision: this processor has no instructions for bfloat16, so float32 is what train.precision auto takes."
        )
        return 0
    found = {}
    for name, make in CASES.items():
        rivals = {kind: make({"precision": kind}) for kind in ("float32", "bfloat16")}
        ratios = []
        for turn in range(ROUNDS + 1):
            took = {kind: stretch(rivals[kind]) for kind in (sorted(rivals) if turn % 2 else sorted(rivals)[::-1])}
            if turn:  # the first warms up
                ratios.append(took["float32"] / took["bfloat16"])
        found[name] = spread(ratios)
        print(name, found[name], flush=True)
    RECORD.write_text(json.dumps({"machine": describe_machine(), "figures": found}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
