"""Tiny trainings on small files, for tests of the loop and of runs."""

import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saccade.tasks.batches import make_batches
from saccade.training.events import Event, RunResult
from saccade.training.loop import Learner
from saccade.training.prepare import Job, PreparedRun, prepare

SIZES = {"width": 8, "layers": 2, "heads": 2, "ffn_width": 12, "dropout": 0.0}
TRAIN = {"epochs": 3, "batch_tokens": 80, "lr": 3e-3, "save_every": 4, "save_minutes": 0.0}
TASKS = ("label", "tag", "translate", "language")


def write_files(tmp_path: Path) -> Path:
    """Fifty little texts as a file for each task."""
    draw = random.Random(3)
    words = ["ash", "birch", "elm", "fir", "oak", "pine", "yew", "red", "blue", "green", "old", "young", "tall"]
    texts = [" ".join(draw.choices(words, k=draw.randint(1, 9))) for _ in range(50)]
    rows = {
        "label": ["label\ttext"] + [f"{'odd' if len(text.split()) % 2 else 'even'}\t{text}" for text in texts],
        "translate": ["source\ttarget"] + [f"{text}\t{' '.join(text.split()[::-2])}" for text in texts],
        "tag": [
            line
            for text in texts
            for line in [*(f"{word} {'B-OAK' if word == 'oak' else 'O'}" for word in text.split()), ""]
        ],
        "language": texts[:20],
    }
    for name, lines in rows.items():
        suffix = {"tag": "conll", "language": "txt"}.get(name, "tsv")
        (tmp_path / f"{name}.{suffix}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def ready(
    home: Path, task: str = "label", *, sizes: dict[str, Any] = SIZES, of: dict[str, Any] | None = None, **given: Any
) -> PreparedRun:
    data = next(home.glob(f"{task}.*"))
    told = of or ({"max_tokens": 16} if task == "language" else {})
    return prepare(
        Job(task, (str(data),), "transformer", model_fields=sizes, task_fields=told, train_fields=TRAIN | given)
    )


def learner(home: Path, task: str = "label", *, double: bool = False, **given: Any) -> Learner:
    made = ready(home, task, **given)
    model = made.model.double() if double else made.model
    config = made.config
    read = make_batches(
        made.task,
        made.splits.train.examples,
        model,
        batch_tokens=config.batch_tokens,
        batch_size=config.batch_size or None,
        seed=config.seed,
    )
    return Learner(model, made.task, read, config)


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: x.detach().clone() for name, x in model.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def gradients(one: Learner) -> list[dict[str, Tensor]]:
    """A list that gets the gradients of every step just before the weights move."""
    seen: list[dict[str, Tensor]] = []
    real = one.optimizer.step

    def step() -> None:
        seen.append({name: p.grad.clone() for name, p in one.trainable_parameters.items() if p.grad is not None})
        real()

    one.optimizer.step = step  # type: ignore[assignment, method-assign]
    return seen


def ended(events: list[Event]) -> RunResult:
    assert isinstance(events[-1], RunResult)
    return events[-1]


def left(out: Path) -> list[bytes]:
    """What has to be the same, bit for bit: the model and the metrics."""
    return [(out / "model" / "model.safetensors").read_bytes(), (out / "metrics.jsonl").read_bytes()]
