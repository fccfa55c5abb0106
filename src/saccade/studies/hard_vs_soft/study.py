"""The study `hard_vs_soft`: an image captioner with soft and with hard attention, on the same images, with three seeds each.

Xu et al. 2015 (arXiv 1502.03044) describe both. Soft attention is a weighted mean over all cells, trained by backpropagation;
hard attention samples one cell and is trained by REINFORCE. In the synthetic scenes the positions of the objects are known, so
that the attention can be compared with them.
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
TEST_IMAGES = 400  # held-out images, generated with another seed
GRADIENT_REPEATS = 12  # gradients of one batch, and of different batches
BATCH_SIZE = 32
MAX_EXAMPLES_SHOWN = 3  # images in the figure of attention overlays
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
    "fit_schedule": True,  # the time limit ends training, and the schedule is fitted to it
    "warmup": 0.05,
    "ema": 0.99,
    "batch_size": BATCH_SIZE,
    "epochs": 400,
    "eval_every": 200,
    "max_eval_examples": 100,
}


def plan_runs(plan: StudyPlan) -> list[StudyRun]:
    """Both kinds of attention with the same seeds, each for the same time."""
    if plan.data or plan.trained_runs:
        raise RunRefused(
            "hard_vs_soft generates its images, as it must know where the objects are; leave out --data and --trained-runs."
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
    """Held-out images."""
    return tuple(make(TEST_IMAGES, 1_000 + seed))


def measure(plan: StudyPlan, study_runs: Sequence[StudyRun], on_progress: OnProgress) -> Record:
    """The measurements of each run, a summary of both kinds, and a figure of the attention of the first run of each."""
    examples = make_test_examples(plan.seed)
    measurements, overlays = [], {}
    for study_run in study_runs:
        on_progress(f"measuring attention and gradients of {study_run.name}")
        kind = study_run.name.partition("-")[0]
        run = open_run(plan.out / study_run.name)
        measured = _measure_run(run, examples)
        measurements.append({"kind": kind, "seed": study_run.job.train_fields["seed"], **measured})
        if kind not in overlays:
            overlays[kind] = [render_example_overlays(run.model, example) for example in examples[:MAX_EXAMPLES_SHOWN]]
    show.draw_overlays(
        overlays, [example["caption"] for example in examples[:MAX_EXAMPLES_SHOWN]], plan.out / "overlay.png"
    )
    return {
        "images": len(examples),
        "repeats": GRADIENT_REPEATS,
        "runs": measurements,
        "kinds": [summarize_kind(measurements, kind) for kind in ATTENTION_KINDS],
    }


def _measure_run(run: Run, examples: Sequence[Example]) -> Record:
    task, model, result = run.task, run.model, run.result
    captions, _ = predict(task, model, examples)
    scores = {score.name: vars(score) for score in task.score(captions, examples)}
    true_count = sum(
        caption_is_true(caption, example["scene"]) for caption, example in zip(captions, examples, strict=True)
    )
    one_batch, over_batches = measure_gradient_noise(run)
    return {
        "steps": result["steps"],
        "parameters": result["parameters"],
        "scores": scores,
        "true_captions": true_count / len(examples),
        "attention_mass": {
            name: vars(score)
            for name, score in measure_attention_mass(collect_attention(task, model, examples), examples).items()
        },
        "noise_of_one_batch": one_batch,
        "noise_over_batches": over_batches,
    }


def measure_gradient_noise(run: Run) -> tuple[float, float]:
    """The relative variance of the gradient for one repeated batch, and over different batches."""
    task, model, splits = run.task, run.model, run.data
    assert splits is not None, "the run of a study has data"
    items = task.encode(splits.train.examples[: BATCH_SIZE * GRADIENT_REPEATS], model)
    batches = [task.batch(items[start : start + BATCH_SIZE]) for start in range(0, len(items), BATCH_SIZE)]
    one_batch = relative_variance([compute_gradient(task, model, batches[0], seed) for seed in range(GRADIENT_REPEATS)])
    return one_batch, relative_variance(
        [compute_gradient(task, model, batch, number) for number, batch in enumerate(batches)]
    )


def render_example_overlays(model: Model, example: Example) -> list[ImageOverlay]:
    """The image under the attention map of each word of the gold caption."""
    return render_overlays(look(model, {"image": example["image"], "caption": example["caption"]}))


def summarize_kind(runs: Sequence[Record], kind: str) -> Record:
    """Mean and standard deviation of all metrics over the runs of one kind."""
    kind_runs = [line for line in runs if line["kind"] == kind]
    values = {
        "exact_match": [line["scores"]["exact_match"]["value"] for line in kind_runs],
        "true_captions": [line["true_captions"] for line in kind_runs],
        **{
            f"mass_{name}": [line["attention_mass"][name]["value"] for line in kind_runs]
            for name in kind_runs[0]["attention_mass"]
        },
        "noise_of_one_batch": [line["noise_of_one_batch"] for line in kind_runs],
        "noise_over_batches": [line["noise_over_batches"] for line in kind_runs],
        "steps": [line["steps"] for line in kind_runs],
    }
    return {
        "kind": kind,
        "seeds": len(kind_runs),
        **{name: mean_and_deviation(metric_values) for name, metric_values in values.items()},
    }


def mean_and_deviation(values: Sequence[float]) -> Record:
    """Mean and standard deviation over seeds; a single seed has no standard deviation.

    >>> mean_and_deviation([1.0, 3.0]), mean_and_deviation([2.0])
    ({'mean': 2.0, 'std': 1.4142135623730951}, {'mean': 2.0, 'std': None})
    """
    return {
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
    }


STUDY = Study(
    "Does hard attention learn as well as soft attention, how noisy is its gradient, and where does each attend?",
    20.0,
    plan_runs,
    measure,
    show.make_tables,
    show.draw_plot,
)
