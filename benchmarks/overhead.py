"""Overhead of the training loop over a bare one: `python -m benchmarks.overhead` writes docs/results/overhead.json.

The bare loop has the same batches, prepared in the same way, and the same loss, gradient clipping and optimizer, and nothing
else: no metrics, no checks, no events. The two alternate every few steps, on a small model, where a constant cost is most
visible.
"""

import json
import tempfile
import time
from datetime import date
from pathlib import Path

import torch

from benchmarks.attention import spread
from saccade.training.distributed import single_process_world
from saccade.training.loop import TrainStep
from saccade.training.prepare import Job, prepare
from saccade.training.run import Trainer
from saccade.training.signals import StopSignals

RECORD = Path(__file__).parent.parent / "docs" / "results" / "overhead.json"
STEPS = 12


def time_bare_steps(prepared_run, learner, first: int) -> float:
    """Seconds per step of a handwritten loop on a model of the same kind."""
    model, task, config = learner.model, prepared_run.task, prepared_run.config
    start = time.perf_counter()
    for number in range(first, first + STEPS):
        model.train()
        (batch,) = learner.batch_source.batches(number)
        loss = task.loss(model, batch) / task.count_targets(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learner.trainable_parameters.values(), config.clip_grad_norm)
        learner.optimizer.step()
        learner.optimizer.zero_grad(set_to_none=True)
    return (time.perf_counter() - start) / STEPS


def main(rounds: int = 6) -> None:
    figures = {}
    for name, job in {
        "dates, transformer of 0.7 M": Job(
            "translate",
            model_fields={"width": 128, "layers": 2, "heads": 4, "ffn_width": 256},
            task_fields={"tokenizer": "characters"},
            train_fields={"eval_every": 10**6, "batch_tokens": 2048},
        ),
        "docs, transformer of 3 M": Job("language", train_fields={"eval_every": 10**6, "batch_tokens": 2048}),
    }.items():
        with tempfile.TemporaryDirectory() as scratch:
            trainer, bare = (Trainer(prepare(job), Path(scratch) / name, single_process_world()) for name in "ab")
            trainer.out.mkdir()
            ratios = []
            with StopSignals() as stops:
                steps = (event for event in trainer.train(stops) if isinstance(event, TrainStep))
                for number in range(rounds + 1):
                    times = {}
                    for loop in ("run", "bare") if number % 2 else ("bare", "run"):
                        if loop == "bare":
                            times[loop] = time_bare_steps(bare.prepared_run, bare.learner, number * STEPS)
                        else:
                            start = time.perf_counter()
                            for _ in range(STEPS):
                                next(steps)
                            times[loop] = (time.perf_counter() - start) / STEPS
                    if number:  # the first round is a warmup
                        ratios.append(times["run"] / times["bare"])
            figures[name] = spread(ratios)
            print(name, figures[name], flush=True)
            record = {"date": date.today().isoformat(), "torch": torch.__version__, "figures": figures}
            RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
