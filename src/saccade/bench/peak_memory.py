"""How much memory the steps of a training take, in a process of its own: a peak is a high-water mark, and never falls.

python -m saccade.bench.peak_memory '{"task": "label", "model": "rnn_encoder"}'      # a Job as JSON
"""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from saccade.bench.measure import read_peak_memory
from saccade.training.loop import Learner
from saccade.training.prepare import Job, prepare

MEASURED_STEPS = 4  # of the longest among so many batches, as those take most
MAX_BATCHES_SEARCHED = 40


def measure_peak(job: Job) -> float | None:
    """MB above what the process held with data and model, over some steps of the longest batches; None: not measured."""
    ready = prepare(job)
    learner = Learner(ready.model, ready.task, ready.make_batches(), ready.config)
    numbers = range(min(MAX_BATCHES_SEARCHED, learner.total_steps))
    tokens = {number: _count_padded_tokens(learner, number) for number in numbers}
    base, _ = read_peak_memory(reset=True)
    for number in sorted(numbers, key=lambda number: -tokens[number])[:MEASURED_STEPS]:
        learner.step_count = number
        learner.step()
    most, _ = read_peak_memory()
    return None if most is None or base is None else round((most - base) / 1e6, 1)


def _count_padded_tokens(learner: Learner, number: int) -> int:
    """Tokens of a step, padding counted."""
    rows = [item for batch in learner.batch_source.batches(number) for item in batch.items]
    return len(rows) * max(sum(item.lengths) for item in rows)


def measure_peak_cached(job: Job, cache_path: Path) -> float | None:
    """The peak of a job from a process of its own; `cache_path` is where it is written down, so that it is measured once."""
    if cache_path.is_file():
        return json.loads(cache_path.read_text(encoding="utf-8"))["peak_mb"]
    command = [sys.executable, "-W", "ignore", "-m", "saccade.bench.peak_memory", json.dumps(asdict(job))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RuntimeError(f"the memory of {job.model} could not be measured: {said}")
    cache_path.write_text(done.stdout.splitlines()[-1] + "\n", encoding="utf-8")
    return json.loads(done.stdout.splitlines()[-1])["peak_mb"]


if __name__ == "__main__":
    job_fields = json.loads(sys.argv[1])
    print(json.dumps({"peak_mb": measure_peak(Job(**{**job_fields, "data": tuple(job_fields["data"])}))}))
