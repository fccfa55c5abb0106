"""A rehearsal: what a run would need, from three timed steps on a copy that is thrown away. Nothing is written."""

import copy
import resource
import sys

import torch

from saccade.training.job import Ready
from saccade.training.loop import Learner
from saccade.training.prospects import few_examples

STEPS = 3


def rehearse(ready: Ready) -> str:
    """Parameters, memory and time, in a few lines."""
    config = ready.config
    model = copy.deepcopy(ready.model)
    read = ready.feed(model)
    learner = Learner(model, ready.task, read, config)
    taken = [learner.step() for _ in range(min(STEPS, learner.horizon))]
    learnt = sum(p.numel() for p in learner.learnt.values())
    count = sum(p.numel() for p in model.parameters())
    seconds = min(step.seconds for step in taken)  # the first one warms up
    steps = min(learner.horizon, config.max_steps or learner.horizon)
    minutes = min(steps * seconds / 60, config.max_time or float("inf"))
    size = sum(x.numel() * x.element_size() for group in learner.tensors().values() for x in group.values())
    lines = [
        f"model        {model.family.name}, {count:,} parameters, {learnt:,} of them learnt",
        f"data         {len(ready.splits.train.examples):,} examples to learn from, {len(ready.splits.dev.examples):,} held out",
        f"padding      {read.plan.padding(0):.1%}",
        f"steps        {learner.horizon:,} in {config.epochs} epochs of about {config.tokens:,} tokens each"
        + (f", stopped after {config.max_steps:,}" if config.max_steps else "")
        + (f", or as many as {config.max_time:g} minutes hold" if config.fit else ""),
        f"time         about {minutes:.1f} minutes without looks at the held-out data ({seconds:.2f} s a step)",
        f"speed        about {taken[-1].tokens / seconds:,.0f} tokens/s",
        f"memory       {_peak():,.0f} MB so far, weights and optimiser {size / 1e6:,.0f} MB of it",
        f"disk         {size / 1e6:,.0f} MB for a checkpoint, up to four of them",
        *([f"warning      {warning}"] if (warning := few_examples(ready)) else []),
        "Nothing was written.",
    ]
    return "\n".join(lines)


def _peak() -> float:
    """The most memory this process has had, in MB."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
