"""What a run costs over its bare forward, backward and step: `python -m benchmarks.overhead` writes docs/results/overhead.json.

The bare loop has the same batches, made in the same way, the same loss, clipping and optimiser, and nothing else: no lines of
metrics, no checks, no events. They take turns, a stretch of steps each, on a small model, where a constant cost shows most.
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


def bare(ready, learner, first: int) -> float:
    """A stretch of steps by hand on a model of the same kind."""
    model, task, config = learner.model, ready.task, ready.config
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
    found = {}
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
            work, other = (Trainer(prepare(job), Path(scratch) / name, single_process_world()) for name in "ab")
            work.out.mkdir()
            ratios = []
            with StopSignals() as stops:
                steps = (event for event in work.train(stops) if isinstance(event, TrainStep))
                for turn in range(rounds + 1):
                    times = {}
                    for who in ("run", "bare") if turn % 2 else ("bare", "run"):
                        if who == "bare":
                            times[who] = bare(other.prepared_run, other.learner, turn * STEPS)
                        else:
                            start = time.perf_counter()
                            for _ in range(STEPS):
                                next(steps)
                            times[who] = (time.perf_counter() - start) / STEPS
                    if turn:
                        ratios.append(times["run"] / times["bare"])
            found[name] = spread(ratios)
            print(name, found[name], flush=True)
            record = {"date": date.today().isoformat(), "torch": torch.__version__, "figures": found}
            RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
