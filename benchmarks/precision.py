"""Speedup of training with bfloat16 autocast: `python -m benchmarks.precision` writes docs/results/precision.json.

Compares training steps with train.precision bfloat16 and float32, on the same model, batches and optimizer; the two alternate
every few steps. On a CPU without bfloat16 instructions it measures nothing and says so.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.attention import spread
from benchmarks.training.common import batch_by_length, make_sentences
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


def make_translator(config: dict) -> Learner:
    """The model and the optimizer of the recipe tatoeba-en-fr."""
    model = new("transformer", transformer.Config(VOCAB, 192, 2, 4, 768, position="rotary"))
    texts = make_sentences(VOCAB)
    items = [Item(Example({}), a, target=b) for a, b in zip(texts, reversed(texts), strict=True)]
    return make_learner(model, Translate(), batch_by_length(Translate(), items, 4096), optimizer="muon", **config)


def make_classifier(config: dict) -> Learner:
    """An encoder of the size of all-MiniLM-L6-v2, on sentences."""
    task = Label(labels=("no", "yes"))
    model = new(
        "bert",
        bert.Config(vocab=VOCAB, width=384, layers=6, heads=12, ffn_width=1536),
        head="label",
        labels=task.labels,
    )
    items = [Item(Example({}), text, gold=len(text) % 2) for text in make_sentences(VOCAB)]
    return make_learner(model, task, batch_by_length(task, items, 1024), **config)


def make_language_model(config: dict) -> Learner:
    """GPT-2's architecture (4 layers, width 256) on windows of 256 tokens."""
    model = new("gpt2", gpt2.Config(vocab=VOCAB, width=256, layers=4, heads=4, max_positions=256))
    ids = np.random.default_rng(0).integers(6, VOCAB, 200_000).astype(np.int32)
    return make_learner(model, Language(), window_batches(Language(), ids, 256, batch_tokens=2048), **config)


def make_learner(model, task, batches, **config) -> Learner:
    return Learner(model, task, batches, Config(epochs=100, **config))


# the names are keys of docs/results/precision.json
CASES: dict[str, Callable[[dict], Learner]] = {
    "a translator, 2 + 2 layers, 192 wide, Muon": make_translator,
    "a reader, 6 layers, 384 wide": make_classifier,
    "a language model, 4 layers, 256 wide": make_language_model,
}


def time_steps(learner: Learner) -> float:
    """Seconds that a few steps take."""
    start = time.perf_counter()
    for _ in range(STEPS):
        learner.step()
    return time.perf_counter() - start


def main() -> int:
    if not cpu_has_bfloat16():
        print("precision: this CPU has no bfloat16 instructions, so train.precision auto chooses float32.")
        return 0
    figures = {}
    for name, make in CASES.items():
        learners = {precision: make({"precision": precision}) for precision in ("float32", "bfloat16")}
        ratios = []
        for number in range(ROUNDS + 1):
            order = sorted(learners) if number % 2 else sorted(learners)[::-1]
            seconds = {precision: time_steps(learners[precision]) for precision in order}
            if number:  # the first round is a warmup
                ratios.append(seconds["float32"] / seconds["bfloat16"])
        figures[name] = spread(ratios)
        print(name, figures[name], flush=True)
    RECORD.write_text(
        json.dumps({"machine": describe_machine(), "figures": figures}, indent=1) + "\n", encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
