"""The study `listops`: six encoders on nested lists, at equal parameters and equal training time, with short and long lists.

Every model is trained on the short lists and again on the long ones. The models of the short lists are also evaluated on the long
ones without further training, which mechanisms with a maximum length do not support. The study also measures the time of a step,
tokens per second and peak memory.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from saccade.bench import peak_memory
from saccade.data.split_files import SplitSpec, split_files
from saccade.errors import DataError
from saccade.studies.listops import data as lists
from saccade.studies.listops import show
from saccade.studies.listops.data import ListOpsSet
from saccade.studies.listops.matched_models import MODEL_SPECS, MatchedModel, match_parameters
from saccade.studies.study import (
    OnProgress,
    Record,
    Study,
    StudyPlan,
    StudyRun,
    find_score,
    load_result,
    read_speed_log,
    write_atomically,
)
from saccade.tasks.learn_tokenizer import learn_tokenizer
from saccade.tasks.runs.run import Run, open_run
from saccade.training.events import RunRefused
from saccade.training.prepare import Job

DEFAULT_SETS = (
    ("short", 2_000, (50, 200)),
    ("long", 500, (500, 2_000)),
)  # generated without --data: name, count, range of lengths
MAX_SETS = 2  # short and long
TRAIN_CONFIG = {
    "lr": 1e-3,
    "fit_schedule": True,  # the time limit ends training, and the schedule is fitted to it
    "warmup": 0.05,
    "batch_tokens": 4096,
    "ema": 0.999,
    "epochs": 400,
    "eval_every": 100,
    "max_eval_examples": 200,
}


@cache
def load_sets(data: tuple[str, ...]) -> tuple[ListOpsSet, ...]:
    """The datasets from files, from short to long, or the generated ones."""
    if not data:
        return tuple(lists.make_set(*spec) for spec in DEFAULT_SETS)
    datasets = lists.read_sets(data)
    if len(datasets) > MAX_SETS:
        raise RunRefused(
            f"listops compares short lists with long ones, in one or two files; got {len(datasets)} files."
        )
    return tuple(datasets)


def plan_runs(plan: StudyPlan) -> list[StudyRun]:
    """Every model on every dataset, each for the same time."""
    datasets = load_sets(plan.data)
    minutes = plan.minutes_per_run(len(datasets) * len(MODEL_SPECS))
    return [_make_run(plan, dataset, matched, minutes) for dataset in datasets for matched in _matched_models(dataset)]


def _matched_models(dataset: ListOpsSet) -> tuple[MatchedModel, ...]:
    return _match_models(fit_max_tokens(dataset), len(set(dataset.labels)))


@cache
def _match_models(max_tokens: int, labels: int) -> tuple[MatchedModel, ...]:
    vocab = learn_tokenizer(
        [" ".join(lists.VOCABULARY)], "words", None, token_template="bos_eos", is_text_stream=False
    ).vocab
    return tuple(match_parameters(MODEL_SPECS, {"vocab": vocab, "max_positions": max_tokens, "dropout": 0.1}, labels))


def fit_max_tokens(dataset: ListOpsSet) -> int:
    """The power of two that holds every list with its special tokens."""
    return 1 << (dataset.max_words + 1).bit_length()


def _make_run(plan: StudyPlan, dataset: ListOpsSet, matched: MatchedModel, minutes: float) -> StudyRun:
    max_tokens = fit_max_tokens(dataset)
    job = Job(
        "label",
        (str(plan.out / "data" / dataset.name),),
        matched.spec.family,
        model_fields={name: value for name, value in matched.fields.items() if name != "vocab"},
        task_fields={"max_tokens": max_tokens, "tokenizer": "words"},
        train_fields={**TRAIN_CONFIG, "max_minutes": minutes, "seed": plan.seed},
    )
    name = f"{dataset.name}-{matched.spec.name}".replace(" ", "-")
    return StudyRun(name, job, f"{matched.spec.name}, {matched.parameters:,} parameters, {dataset.name}")


def prepare_data(plan: StudyPlan) -> None:
    """Split each dataset into train, dev and test, once."""
    for dataset in load_sets(plan.data):
        folder = plan.out / "data" / dataset.name
        rows = "".join(f"{text}\t{label}\n" for text, label in zip(dataset.texts, dataset.labels, strict=True))
        text, path = "text\tlabel\n" + rows, plan.out / "data" / f"{dataset.name}.tsv"
        if path.is_file():
            continue
        test, dev = min(1_000, 3 * len(dataset.texts) // 10), min(500, len(dataset.texts) // 10)
        if min(test, dev) < 1:
            problem = f"{len(dataset.texts)} lists are too few for dev and test data"
            raise DataError(problem, file=Path(dataset.name), hint="give several hundred or more")
        temporary = path.with_suffix(".new.tsv")
        write_atomically(temporary, text)
        split_files([temporary], folder, SplitSpec(dev, test, seed=plan.seed))
        temporary.replace(path)


def measure(plan: StudyPlan, study_runs: Sequence[StudyRun], on_progress: OnProgress) -> Record:
    """The measurements of each model and dataset, and the majority-class baselines."""
    datasets = load_sets(plan.data)
    models = []
    pairs = [(dataset, matched) for dataset in datasets for matched in _matched_models(dataset)]
    for study_run, (trained_on, matched) in zip(study_runs, pairs, strict=True):
        on_progress(f"measuring the memory of {study_run.name}")
        models.append(_measure_run(plan.out, study_run, matched, trained_on))
        if trained_on is not datasets[-1]:
            on_progress(f"evaluating {study_run.name} on {datasets[-1].name}")
            examples = Run(plan.out / f"{datasets[-1].name}-full").held_out
            models[-1]["longer_lists"] = evaluate_on_longer(plan.out / study_run.name, examples, datasets[-1])
    dataset_facts = [
        {
            "name": dataset.name,
            "lists": len(dataset.texts),
            "max_words": dataset.max_words,
            "majority": majority_baseline(plan, dataset),
        }
        for dataset in datasets
    ]
    return {"sets": dataset_facts, "models": models}


def _measure_run(out: Path, run: StudyRun, matched: MatchedModel, dataset: ListOpsSet) -> Record:
    result = load_result(out / run.name)
    steps = read_speed_log(out / run.name)
    return {
        "model": matched.spec.name,
        "set": dataset.name,
        "parameters": result["parameters"],
        "accuracy": find_score(result, "test", "accuracy"),
        "steps": result["steps"],
        "minutes": run.minutes,
        "seconds_per_step": round(statistics.median(row["seconds"] for row in steps), 4),
        "tokens_per_second": round(sum(row["tokens"] for row in steps) / sum(row["seconds"] for row in steps)),
        "peak_mb": peak_memory.measure_peak_cached(run.job, out / run.name / "peak.json"),
    }


def evaluate_on_longer(run: Path, examples: Sequence[Any], dataset: ListOpsSet) -> Record:
    """The accuracy on longer lists than those of training, or the error of a model that does not support them."""
    from saccade.tasks.predict import evaluate

    trained_run = open_run(run)
    trained_run.change_settings({"max_tokens": fit_max_tokens(dataset)})
    try:
        return vars(
            next(score for score in evaluate(trained_run.task, trained_run.model, examples) if score.name == "accuracy")
        )
    except ValueError as error:
        return {"refused": str(error)}


def majority_baseline(plan: StudyPlan, dataset: ListOpsSet) -> Record:
    """The test accuracy of the most frequent training label."""
    from saccade.metrics import accuracy

    splits = Run(plan.out / f"{dataset.name}-full").data
    assert splits is not None, "the run of a study has data"
    assert splits.test is not None, "the data have a test split"
    label = Counter(example["label"] for example in splits.train.examples).most_common(1)[0][0]
    gold = [example["label"] for example in splits.test.examples]
    return {"label": label, **vars(accuracy(gold, [label] * len(gold)))}


STUDY = Study(
    "Which attention mechanism solves nested lists best at equal parameters and training time, and what does it cost?",
    90.0,
    plan_runs,
    measure,
    show.make_tables,
    show.draw_plot,
    prepare_data,
)
