"""A rehearsal: what a run would need, from three timed steps on a copy that is thrown away. Nothing is written."""

import copy
import resource
import sys

import torch

from saccade.training.baseline_check import check_example_count
from saccade.training.loop import Learner
from saccade.training.prepare import PreparedRun

MAX_TIMED_STEPS = 3


def dry_run(prepared_run: PreparedRun) -> str:
    """Parameters, memory and time, in a few lines."""
    config = prepared_run.config
    model = copy.deepcopy(prepared_run.model)
    read = prepared_run.make_batches(model)
    learner = Learner(model, prepared_run.task, read, config)
    taken = [learner.step() for _ in range(min(MAX_TIMED_STEPS, learner.total_steps))]
    learnt = sum(p.numel() for p in learner.trainable_parameters.values())
    count = sum(p.numel() for p in model.parameters())
    seconds = min(step.seconds for step in taken)  # the first one warms up
    steps = min(learner.total_steps, config.max_steps or learner.total_steps)
    minutes = min(steps * seconds / 60, config.max_minutes or float("inf"))
    size = sum(x.numel() * x.element_size() for group in learner.checkpoint_tensors().values() for x in group.values())
    lines = [
        f"model        {model.family.name}, {count:,} parameters, {learnt:,} of them learnt",
        f"data         {len(prepared_run.splits.train.examples):,} examples to learn from, {len(prepared_run.splits.dev.examples):,} held out",
        f"padding      {read.plan.measure_padding(0):.1%}",
        f"steps        {learner.total_steps:,} in {config.epochs} epochs of about {config.batch_tokens:,} tokens each"
        + (f", stopped after {config.max_steps:,}" if config.max_steps else "")
        + (f", or as many as {config.max_minutes:g} minutes hold" if config.fit_schedule else ""),
        f"time         about {minutes:.1f} minutes without looks at the held-out data ({seconds:.2f} s a step)",
        f"speed        about {taken[-1].tokens / seconds:,.0f} tokens/s",
        f"memory       {_peak_memory_mb():,.0f} MB so far, weights and optimiser {size / 1e6:,.0f} MB of it",
        f"disk         {size / 1e6:,.0f} MB for a checkpoint, up to four of them",
        *([f"warning      {warning}"] if (warning := check_example_count(prepared_run)) else []),
        "Nothing was written.",
    ]
    return "\n".join(lines)


def _peak_memory_mb() -> float:
    """The most memory this process has had, in MB."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
