"""Peak memory of training steps, measured in a child process, as peak memory is a high-water mark of the process.

python -m saccade.bench.peak_memory '{"task": "label", "family": "rnn_encoder"}'      # a Job as JSON
"""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from saccade.bench.measure import read_peak_memory
from saccade.plugins import load_plugins
from saccade.training.loop import Learner
from saccade.training.prepare import Job, prepare

MEASURED_STEPS = 4  # steps with the largest batches
MAX_BATCHES_SEARCHED = 40  # batches among which the largest are chosen


def measure_peak(job: Job) -> float | None:
    """Peak memory of steps with the largest batches, in MB above data and model; None if it cannot be measured."""
    prepared = prepare(job)
    learner = Learner(prepared.model, prepared.task, prepared.make_batches(), prepared.config)
    steps = range(min(MAX_BATCHES_SEARCHED, learner.total_steps))
    tokens = {step: _count_padded_tokens(learner, step) for step in steps}
    base, _ = read_peak_memory(reset=True)
    for step in sorted(steps, key=lambda step: -tokens[step])[:MEASURED_STEPS]:
        learner.step_count = step
        learner.step()
    peak, _ = read_peak_memory()
    return None if peak is None or base is None else round((peak - base) / 1e6, 1)


def _count_padded_tokens(learner: Learner, step: int) -> int:
    """The tokens of a step, padding included."""
    rows = [item for batch in learner.batch_source.batches(step) for item in batch.items]
    return len(rows) * max(sum(item.lengths) for item in rows)


def measure_peak_cached(job: Job, cache_path: Path) -> float | None:
    """The peak memory of a job, measured in a child process once and then read from `cache_path`."""
    if cache_path.is_file():
        return json.loads(cache_path.read_text(encoding="utf-8"))["peak_mb"]
    command = [sys.executable, "-W", "ignore", "-m", "saccade.bench.peak_memory", json.dumps(asdict(job))]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        error = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise RuntimeError(f"the memory of {job.family} could not be measured: {error}")
    cache_path.write_text(process.stdout.splitlines()[-1] + "\n", encoding="utf-8")
    return json.loads(process.stdout.splitlines()[-1])["peak_mb"]


if __name__ == "__main__":
    load_plugins()
    job_fields = json.loads(sys.argv[1])
    print(json.dumps({"peak_mb": measure_peak(Job(**{**job_fields, "data": tuple(job_fields["data"])}))}))
