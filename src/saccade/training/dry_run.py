"""Dry run: estimates the time, memory and disk that a run would need from three timed steps on a copy. Nothing is written."""

import copy
import resource
import sys

import torch

from saccade.training.baseline_check import check_example_count
from saccade.training.loop import Learner
from saccade.training.prepare import PreparedRun

MAX_TIMED_STEPS = 3


def dry_run(prepared_run: PreparedRun) -> str:
    """The size of the model and of the data, and the estimated time, memory and disk, as lines of text."""
    config, splits = prepared_run.config, prepared_run.splits
    model = copy.deepcopy(prepared_run.model)
    batches = prepared_run.make_batches(model)
    learner = Learner(model, prepared_run.task, batches, config)
    timed_steps = [learner.step() for _ in range(min(MAX_TIMED_STEPS, learner.total_steps))]
    trainable = sum(p.numel() for p in learner.trainable_parameters.values())
    count = sum(p.numel() for p in model.parameters())
    seconds = min(step.seconds for step in timed_steps)  # the first one warms up
    steps = min(learner.total_steps, config.max_steps or learner.total_steps)
    minutes = min(steps * seconds / 60, config.max_minutes or float("inf"))
    size = sum(x.numel() * x.element_size() for group in learner.checkpoint_tensors().values() for x in group.values())
    held_out = sum(len(table.examples) for name, table in splits.as_dict().items() if name != "train")
    lines = [
        f"model        {model.family.name}, {count:,} parameters, {trainable:,} of them trainable",
        f"data         {len(splits.train.examples):,} training examples, {held_out:,} held out",
        f"padding      {batches.plan.measure_padding(0):.1%}",
        f"steps        {learner.total_steps:,} in {config.epochs} epochs of about {config.batch_tokens:,} tokens each"
        + (f", stopped after {config.max_steps:,}" if config.max_steps else "")
        + (f", or as many as fit in {config.max_minutes:g} minutes" if config.fit_schedule else ""),
        f"time         about {minutes:.1f} minutes, evaluation not included ({seconds:.2f} s per step)",
        f"speed        about {timed_steps[-1].tokens / seconds:,.0f} tokens/s",
        f"memory       {_peak_memory_mb():,.0f} MB so far, {size / 1e6:,.0f} MB of it weights and optimizer state",
        f"disk         {size / 1e6:,.0f} MB per checkpoint, up to four of them",
        *([f"warning      {warning}"] if (warning := check_example_count(prepared_run)) else []),
        "Nothing was written.",
    ]
    return "\n".join(lines)


def _peak_memory_mb() -> float:
    """Peak memory of this process in MB: that of the GPU if there is one, else the resident set size."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
