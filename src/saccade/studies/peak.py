"""How much memory the steps of a training take, in a process of its own: a peak is a high-water mark, and never falls.

python -m saccade.studies.peak '{"task": "label", "model": "rnn_reader"}'      # a Job as JSON
"""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from saccade.studies.measure import high_water
from saccade.training.job import Job, prepare
from saccade.training.loop import Learner

STEPS = 4  # of the longest among so many batches, as those take most
AMONG = 40


def peak(job: Job) -> float | None:
    """MB above what the process held with data and model, over some steps of the longest batches; None: not measured."""
    ready = prepare(job)
    learner = Learner(ready.model, ready.task, ready.feed(), ready.config)
    numbers = range(min(AMONG, learner.horizon))
    tokens = {number: _padded(learner, number) for number in numbers}
    base, _ = high_water(reset=True)
    for number in sorted(numbers, key=lambda number: -tokens[number])[:STEPS]:
        learner.done = number
        learner.step()
    most, _ = high_water()
    return None if most is None or base is None else round((most - base) / 1e6, 1)


def _padded(learner: Learner, number: int) -> int:
    """Tokens of a step, padding counted."""
    rows = [item for batch in learner.feed.batches(number) for item in batch.rows]
    return len(rows) * max(sum(item.lengths) for item in rows)


def measured(job: Job, kept: Path) -> float | None:
    """The peak of a job from a process of its own; `kept` is where it is written down, so that it is measured once."""
    if kept.is_file():
        return json.loads(kept.read_text(encoding="utf-8"))["peak_mb"]
    command = [sys.executable, "-W", "ignore", "-m", "saccade.studies.peak", json.dumps(asdict(job))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RuntimeError(f"the memory of {job.model} could not be measured: {said}")
    kept.write_text(done.stdout.splitlines()[-1] + "\n", encoding="utf-8")
    return json.loads(done.stdout.splitlines()[-1])["peak_mb"]


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps({"peak_mb": peak(Job(**{**given, "data": tuple(given["data"])}))}))
