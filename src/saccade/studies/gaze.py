"""The study `gaze`: one captioner with soft attention and one with hard, on the same pictures, three times each.

Xu et al. 2015 (arXiv 1502.03044) describe both. Soft attention is a mean over all cells, learnt by back-propagation; hard
attention is one cell, drawn by chance and learnt by REINFORCE. The picture world knows where its things are, so a look can be
judged.
"""

import statistics
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from saccade.data import Example
from saccade.data.samples.pictures import holds, make
from saccade.explain.look import look
from saccade.explain.overlay import View, views
from saccade.models.model import Model
from saccade.studies import gaze_shown
from saccade.studies.gazing import gazes, gradient, masses, noise
from saccade.studies.study import Member, Plan, Record, Study, Told, result
from saccade.tasks.answering import answers
from saccade.tasks.opening import open_run
from saccade.tasks.task import Task
from saccade.training.events import Refused
from saccade.training.job import Job, data_of

KINDS = {"soft": False, "hard": True}
SEEDS = 3
TEST = 400  # pictures that nobody has learnt from, from another seed of the same world
REPEATS = 12  # gradients of one batch, and of as many batches
ROWS = 32
SHOWN = 3  # pictures whose looks are drawn
MODEL = {"width": 64, "size": 32, "cell": 4, "channels": 3, "block": "plain", "dropout": 0.0, "length": 16}
TASK = {"pieces": "words", "smoothing": 0.0, "metric": "exact_match", "length": 16}
TRAIN = {
    "rate": 5e-3,
    "fit": True,  # the clock ends a training, and the schedule with it
    "warmup": 0.05,
    "average": 0.99,
    "rows": ROWS,
    "epochs": 400,
    "look_every": 200,
    "look_at": 100,
}


def members(plan: Plan) -> list[Member]:
    """Both kinds of attention from as many seeds, all for the same time."""
    if plan.data or plan.runs:
        raise Refused("gaze makes its own pictures, as it has to know where things are; leave out --data and --runs.")
    minutes = plan.share(len(KINDS) * SEEDS)
    return [
        Member(f"{kind}-{seed}", _job(hard=hard, seed=seed, minutes=minutes), f"{kind} attention, seed {seed}")
        for seed in range(plan.seed, plan.seed + SEEDS)
        for kind, hard in KINDS.items()
    ]


def _job(*, hard: bool, seed: int, minutes: float) -> Job:
    train = {**TRAIN, "seed": seed, "max_time": minutes}
    return Job(
        "caption", (), "captioner_rnn", model_fields={**MODEL, "hard": hard}, task_fields=TASK, train_fields=train
    )


@cache
def unseen(seed: int) -> tuple[Example, ...]:
    """Pictures that no member has learnt from."""
    return tuple(make(TEST, 1_000 + seed))


def measure(plan: Plan, trained: Sequence[Member], told: Told) -> Record:
    """A line for each run, the two kinds side by side, and a picture of where the first of each look."""
    examples = unseen(plan.seed)
    lines, drawn = [], {}
    for member in trained:
        told(f"looks and gradients of {member.name}")
        kind = member.name.partition("-")[0]
        task, model = open_run(plan.out / member.name)
        found = _line(plan.out / member.name, task, model, examples)
        lines.append({"kind": kind, "seed": member.job.train_fields["seed"], **found})
        if kind not in drawn:
            drawn[kind] = [pictures(model, example) for example in examples[:SHOWN]]
    gaze_shown.gallery(drawn, [example["caption"] for example in examples[:SHOWN]], plan.out / "gaze.png")
    return {
        "pictures": len(examples),
        "repeats": REPEATS,
        "runs": lines,
        "kinds": [summary(lines, kind) for kind in KINDS],
    }


def _line(run: Path, task: Task, model: Model, examples: Sequence[Example]) -> Record:
    said, _ = answers(task, model, examples)
    scores = {score.name: vars(score) for score in task.score(said, examples)}
    right = sum(holds(caption, example["scene"]) for caption, example in zip(said, examples, strict=True))
    once, over = noises(run, task, model)
    facts = result(run)
    return {
        "steps": facts["steps"],
        "parameters": facts["parameters"],
        "scores": scores,
        "true": right / len(examples),
        "mass": {name: vars(score) for name, score in masses(gazes(task, model, examples), examples).items()},
        "noise_of_one_batch": once,
        "noise_over_batches": over,
    }


def noises(run: Path, task: Task, model: Model) -> tuple[float, float]:
    """How much a gradient changes when one batch is repeated, and from batch to batch, over its squared length."""
    splits = data_of(run)
    assert splits is not None, "a member is a run"
    items = task.items(splits.train.examples[: ROWS * REPEATS], model)
    batches = [task.batch(items[start : start + ROWS]) for start in range(0, len(items), ROWS)]
    once = noise([gradient(task, model, batches[0], seed) for seed in range(REPEATS)])
    return once, noise([gradient(task, model, batch, number) for number, batch in enumerate(batches)])


def pictures(model: Model, example: Example) -> list[View]:
    """The picture under its look, for each word of the right caption."""
    return views(look(model, {"image": example["image"], "caption": example["caption"]}))


def summary(lines: Sequence[Record], kind: str) -> Record:
    """The runs of one kind: mean and spread over seeds of all that is measured."""
    some = [line for line in lines if line["kind"] == kind]
    values = {
        "exact_match": [line["scores"]["exact_match"]["value"] for line in some],
        "true": [line["true"] for line in some],
        **{f"mass_{name}": [line["mass"][name]["value"] for line in some] for name in some[0]["mass"]},
        "noise_of_one_batch": [line["noise_of_one_batch"] for line in some],
        "noise_over_batches": [line["noise_over_batches"] for line in some],
        "steps": [line["steps"] for line in some],
    }
    return {"kind": kind, "seeds": len(some), **{name: spread(found) for name, found in values.items()}}


def spread(values: Sequence[float]) -> Record:
    """Mean and standard deviation over seeds; of one seed there is none.

    >>> spread([1.0, 3.0]), spread([2.0])
    ({'mean': 2.0, 'deviation': 1.4142135623730951}, {'mean': 2.0, 'deviation': None})
    """
    return {"mean": statistics.fmean(values), "deviation": statistics.stdev(values) if len(values) > 1 else None}


STUDY = Study(
    "Does attention that is drawn learn as well as attention that is spread, how noisy is it, and where does each look?",
    20.0,
    members,
    measure,
    gaze_shown.tables,
    gaze_shown.draw,
)
