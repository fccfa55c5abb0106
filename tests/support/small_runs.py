"""Tiny training runs on small files, for tests of the training loop and of runs."""

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
    """Fifty short texts, as a file for each task."""
    rng = random.Random(3)
    words = ["ash", "birch", "elm", "fir", "oak", "pine", "yew", "red", "blue", "green", "old", "young", "tall"]
    texts = [" ".join(rng.choices(words, k=rng.randint(1, 9))) for _ in range(50)]
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


def prepare_run(
    home: Path,
    task: str = "label",
    *,
    sizes: dict[str, Any] = SIZES,
    task_fields: dict[str, Any] | None = None,
    **train_fields: Any,
) -> PreparedRun:
    data = next(home.glob(f"{task}.*"))
    task_fields = task_fields or ({"max_tokens": 16} if task == "language" else {})
    return prepare(
        Job(
            task,
            (str(data),),
            "transformer",
            model_fields=sizes,
            task_fields=task_fields,
            train_fields=TRAIN | train_fields,
        )
    )


def make_learner(home: Path, task: str = "label", *, double: bool = False, **fields: Any) -> Learner:
    prepared = prepare_run(home, task, **fields)
    model = prepared.model.double() if double else prepared.model
    config = prepared.config
    batches = make_batches(
        prepared.task,
        prepared.splits.train.examples,
        model,
        batch_tokens=config.batch_tokens,
        batch_size=config.batch_size or None,
        seed=config.seed,
    )
    return Learner(model, prepared.task, batches, config)


def clone_weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: x.detach().clone() for name, x in model.state_dict().items()}


def weights_equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def record_gradients(learner: Learner) -> list[dict[str, Tensor]]:
    """A list to which the gradients of every step are appended, just before the optimizer step."""
    gradients: list[dict[str, Tensor]] = []
    original_step = learner.optimizer.step

    def step() -> None:
        gradients.append(
            {name: p.grad.clone() for name, p in learner.trainable_parameters.items() if p.grad is not None}
        )
        original_step()

    learner.optimizer.step = step  # type: ignore[assignment, method-assign]
    return gradients


def get_result(events: list[Event]) -> RunResult:
    assert isinstance(events[-1], RunResult)
    return events[-1]


def read_outputs(out: Path) -> list[bytes]:
    """The files that must be the same, bit for bit: the model and the metrics."""
    return [(out / "model" / "model.safetensors").read_bytes(), (out / "metrics.jsonl").read_bytes()]
