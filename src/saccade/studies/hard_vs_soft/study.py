"""The study `hard_vs_soft`: one captioner with soft attention and one with hard, on the same pictures, three times each.

Xu et al. 2015 (arXiv 1502.03044) describe both. Soft attention is a mean over all cells, learnt by back-propagation; hard
attention is one cell, drawn by chance and learnt by REINFORCE. The picture world knows where its things are, so a look can be
judged.
"""

import statistics
from collections.abc import Sequence
from functools import cache

from saccade.data import Example
from saccade.data.samples.shapes import caption_is_true, make
from saccade.explain.look import look
from saccade.explain.overlay import ImageOverlay, render_overlays
from saccade.models.model import Model
from saccade.studies.hard_vs_soft import show
from saccade.studies.hard_vs_soft.measure import (
    collect_attention,
    compute_gradient,
    measure_attention_mass,
    relative_variance,
)
from saccade.studies.study import OnProgress, Record, Study, StudyPlan, StudyRun
from saccade.tasks.predict import predict
from saccade.tasks.runs.run import Run, open_run
from saccade.training.events import RunRefused
from saccade.training.prepare import Job

ATTENTION_KINDS = {"soft": False, "hard": True}
SEED_COUNT = 3
TEST_IMAGES = 400  # pictures that nobody has learnt from, from another seed of the same world
GRADIENT_REPEATS = 12  # gradients of one batch, and of as many batches
BATCH_SIZE = 32
MAX_EXAMPLES_SHOWN = 3  # pictures whose looks are drawn
MODEL_CONFIG = {
    "width": 64,
    "image_size": 32,
    "cell_size": 4,
    "channels": 3,
    "block_type": "plain",
    "dropout": 0.0,
    "max_positions": 16,
}
TASK_CONFIG = {"tokenizer": "words", "label_smoothing": 0.0, "metric": "exact_match", "max_caption_tokens": 16}
TRAIN_CONFIG = {
    "lr": 5e-3,
    "fit_schedule": True,  # the clock ends a training, and the schedule with it
    "warmup": 0.05,
    "ema": 0.99,
    "batch_size": BATCH_SIZE,
    "epochs": 400,
    "eval_every": 200,
    "max_eval_examples": 100,
}


def plan_runs(plan: StudyPlan) -> list[StudyRun]:
    """Both kinds of attention from as many seeds, all for the same time."""
    if plan.data or plan.trained_runs:
        raise RunRefused(
            "hard_vs_soft makes its own pictures, as it has to know where things are; leave out --data and --trained-runs."
        )
    minutes = plan.minutes_per_run(len(ATTENTION_KINDS) * SEED_COUNT)
    return [
        StudyRun(
            f"{kind}-{seed}",
            _make_job(hard_attention=hard, seed=seed, minutes=minutes),
            f"{kind} attention, seed {seed}",
        )
        for seed in range(plan.seed, plan.seed + SEED_COUNT)
        for kind, hard in ATTENTION_KINDS.items()
    ]


def _make_job(*, hard_attention: bool, seed: int, minutes: float) -> Job:
    train = {**TRAIN_CONFIG, "seed": seed, "max_minutes": minutes}
    return Job(
        "caption",
        (),
        "captioner_rnn",
        model_fields={**MODEL_CONFIG, "hard_attention": hard_attention},
        task_fields=TASK_CONFIG,
        train_fields=train,
    )


@cache
def make_test_examples(seed: int) -> tuple[Example, ...]:
    """Pictures that no member has learnt from."""
    return tuple(make(TEST_IMAGES, 1_000 + seed))


def measure(plan: StudyPlan, study_runs: Sequence[StudyRun], on_progress: OnProgress) -> Record:
    """A line for each run, the two kinds side by side, and a picture of where the first of each look."""
    examples = make_test_examples(plan.seed)
    lines, drawn = [], {}
    for member in study_runs:
        on_progress(f"looks and gradients of {member.name}")
        kind = member.name.partition("-")[0]
        run = open_run(plan.out / member.name)
        found = _measure_run(run, examples)
        lines.append({"kind": kind, "seed": member.job.train_fields["seed"], **found})
        if kind not in drawn:
            drawn[kind] = [render_example_overlays(run.model, example) for example in examples[:MAX_EXAMPLES_SHOWN]]
    show.draw_overlays(
        drawn, [example["caption"] for example in examples[:MAX_EXAMPLES_SHOWN]], plan.out / "overlay.png"
    )
    return {
        "images": len(examples),
        "repeats": GRADIENT_REPEATS,
        "runs": lines,
        "kinds": [summarize_kind(lines, kind) for kind in ATTENTION_KINDS],
    }


def _measure_run(run: Run, examples: Sequence[Example]) -> Record:
    task, model, facts = run.task, run.model, run.result
    said, _ = predict(task, model, examples)
    scores = {score.name: vars(score) for score in task.score(said, examples)}
    right = sum(caption_is_true(caption, example["scene"]) for caption, example in zip(said, examples, strict=True))
    once, over = measure_gradient_noise(run)
    return {
        "steps": facts["steps"],
        "parameters": facts["parameters"],
        "scores": scores,
        "true_captions": right / len(examples),
        "attention_mass": {
            name: vars(score)
            for name, score in measure_attention_mass(collect_attention(task, model, examples), examples).items()
        },
        "noise_of_one_batch": once,
        "noise_over_batches": over,
    }


def measure_gradient_noise(run: Run) -> tuple[float, float]:
    """How much a gradient changes when one batch is repeated, and from batch to batch, over its squared length."""
    task, model, splits = run.task, run.model, run.data
    assert splits is not None, "a member is a run"
    items = task.encode(splits.train.examples[: BATCH_SIZE * GRADIENT_REPEATS], model)
    batches = [task.batch(items[start : start + BATCH_SIZE]) for start in range(0, len(items), BATCH_SIZE)]
    once = relative_variance([compute_gradient(task, model, batches[0], seed) for seed in range(GRADIENT_REPEATS)])
    return once, relative_variance(
        [compute_gradient(task, model, batch, number) for number, batch in enumerate(batches)]
    )


def render_example_overlays(model: Model, example: Example) -> list[ImageOverlay]:
    """The picture under its look, for each word of the right caption."""
    return render_overlays(look(model, {"image": example["image"], "caption": example["caption"]}))


def summarize_kind(runs: Sequence[Record], kind: str) -> Record:
    """The runs of one kind: mean and spread over seeds of all that is measured."""
    some = [line for line in runs if line["kind"] == kind]
    values = {
        "exact_match": [line["scores"]["exact_match"]["value"] for line in some],
        "true_captions": [line["true_captions"] for line in some],
        **{
            f"mass_{name}": [line["attention_mass"][name]["value"] for line in some]
            for name in some[0]["attention_mass"]
        },
        "noise_of_one_batch": [line["noise_of_one_batch"] for line in some],
        "noise_over_batches": [line["noise_over_batches"] for line in some],
        "steps": [line["steps"] for line in some],
    }
    return {"kind": kind, "seeds": len(some), **{name: mean_and_deviation(found) for name, found in values.items()}}


def mean_and_deviation(values: Sequence[float]) -> Record:
    """Mean and standard deviation over seeds; of one seed there is none.

    >>> mean_and_deviation([1.0, 3.0]), mean_and_deviation([2.0])
    ({'mean': 2.0, 'std': 1.4142135623730951}, {'mean': 2.0, 'std': None})
    """
    return {
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
    }


STUDY = Study(
    "Does attention that is drawn learn as well as attention that is spread, how noisy is it, and where does each look?",
    20.0,
    plan_runs,
    measure,
    show.make_tables,
    show.draw_plot,
)
