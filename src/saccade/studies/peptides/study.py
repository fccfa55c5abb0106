"""The study `peptides`: does a classifier predict generated peptides to be antimicrobial, more often than shuffled ones?

The generator is trained on the active peptides that the classifier was trained on, so the classifier alone is not independent
evidence. The fraction of novel peptides that it classifies as active is therefore compared with that of the same peptides with
shuffled residues, of held-out active peptides and of held-out others.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from saccade.audit.stats import estimate_fraction, estimate_mean
from saccade.audit.suite import Estimate
from saccade.data import Example
from saccade.data.splits import Splits, open_data
from saccade.decoding.config import GenerationConfig
from saccade.decoding.generator import TextGenerator
from saccade.errors import DataError, UsageError
from saccade.models.model import Model
from saccade.studies.peptides.show import draw_plot, make_tables
from saccade.studies.peptides.stats import (
    composition_distance,
    compute_stats,
    length_histogram,
    nearest_similarity,
    shuffle_residues,
)
from saccade.studies.study import (
    OnProgress,
    Record,
    Study,
    StudyPlan,
    StudyRun,
    find_score,
    load_recipe,
    load_result,
    write_atomically,
)
from saccade.tasks.base import Task, require_tokenizer
from saccade.tasks.label import Label
from saccade.tasks.predict import predict
from saccade.tasks.records.generate import generate_records
from saccade.tasks.records.validity import check_validity, get_record_format
from saccade.tasks.runs.run import Run, open_run
from saccade.training.events import RunRefused
from saccade.training.prepare import Job

RECIPE, CLASSIFIER, GENERATOR = "peptides", "classifier", "generator"
ACTIVE_LABEL = "1"  # the label of antimicrobial peptides in modlAMP's files
GENERATED_PEPTIDES = 1_000  # number of peptides to generate
MAX_RESIDUES = 140  # maximum length of a generated peptide
GENERATOR_SETTINGS: dict[str, dict[str, Any]] = {
    "model_fields": {"width": 128, "layers": 2, "heads": 4, "ffn_width": 512, "dropout": 0.2, "position": "rotary"},
    "task_fields": {"tokenizer": "characters", "max_tokens": 128, "record_format": "protein"},
    "train_fields": {"epochs": 40, "batch_tokens": 2048, "lr": 2e-3, "ema": 0.99, "eval_every": 60, "patience": 5},
}


def plan_runs(plan: StudyPlan) -> list[StudyRun]:
    """The classifier, unless a trained run is given, and the generator."""
    if not (plan.trained_runs or plan.data):
        raise RunRefused(
            "peptides needs a classifier, --trained-runs RUN, or labeled peptides to train one on, --data DIR with train, "
            "dev and test; saccade recipes show peptides names a dataset."
        )
    count = 1 if plan.trained_runs else 2
    runs = []
    if not plan.trained_runs:
        job = make_classifier_job(plan, plan.minutes_per_run(count))
        runs.append(StudyRun(CLASSIFIER, job, "classifies peptides as active or not"))
    task, model, train = (GENERATOR_SETTINGS[name] for name in ("task_fields", "model_fields", "train_fields"))
    text_paths = tuple(str(path) for path in _text_files(plan).values())
    timed_train = {**train, "seed": plan.seed, "max_minutes": plan.minutes_per_run(count)}
    job = Job("language", text_paths, "transformer", model_fields=model, task_fields=task, train_fields=timed_train)
    return [*runs, StudyRun(GENERATOR, job, "generates active peptides")]


def make_classifier_job(plan: StudyPlan, minutes: float) -> Job:
    """The job of the recipe, with the data of the plan."""
    raw = load_recipe(RECIPE)
    train = {**raw["train"], "max_minutes": min(minutes, raw["train"]["max_minutes"]), "seed": plan.seed}
    tables = {"model_fields": raw["model"], "task_fields": raw["task"], "train_fields": train}
    return Job(raw["run"]["task"], plan.data, raw["run"]["family"], raw["run"]["columns"], **tables)


def _text_files(plan: StudyPlan) -> dict[str, Path]:
    return {split: plan.out / "data" / f"{split}.txt" for split in ("train", "dev")}


def prepare_data(plan: StudyPlan) -> None:
    """Write the active peptides of train and dev, one per line."""
    splits = read_peptides(plan)
    for split, path in _text_files(plan).items():
        write_atomically(path, "".join(f"{peptide}\n" for peptide in select_peptides(splits, split, active=True)))


def read_peptides(plan: StudyPlan) -> Splits:
    """The labeled peptides: the data of the plan, or those of the trained classifier."""
    if not plan.data:
        splits = Run(plan.trained_runs[0]).data
        if splits is None:
            raise DataError("not a run with data", file=plan.trained_runs[0], hint="give the data with --data")
        return splits
    columns = make_classifier_job(plan, plan.minutes).columns
    return open_data(plan.data, Label().roles(plan.data), columns=columns, on_bad_record="skip")


def select_peptides(splits: Splits, split: str, *, active: bool) -> list[str]:
    """The active or the other peptides of one split."""
    records = splits.as_dict().get(split)
    peptides = [
        example["text"].strip()
        for example in (records.examples if records else ())
        if (example["label"] == ACTIVE_LABEL) == active
    ]
    if not peptides:
        problem = f"no peptide of {split} has {'the' if active else 'another label than the'} label {ACTIVE_LABEL!r}"
        raise DataError(problem, hint="give train, dev and test with labels 1 (active) and 0")
    return peptides


def measure(plan: StudyPlan, study_runs: Sequence[StudyRun], on_progress: OnProgress) -> Record:
    """Generate peptides, and classify them and three sets for comparison."""
    splits = read_peptides(plan)
    training_peptides = select_peptides(splits, "train", active=True)
    generator = open_run(plan.out / GENERATOR, "language")
    texts, report = generate_peptides(generator.task, generator.model, training_peptides, plan.seed)
    on_progress(f"{len(texts):,} novel peptides of {GENERATED_PEPTIDES:,} generated")
    sets = {
        "generated": texts,
        "shuffled": shuffle_residues(texts, plan.seed),
        "held-out active": select_peptides(splits, "test", active=True),
        "held-out others": select_peptides(splits, "test", active=False),
    }
    classifier_path = plan.trained_runs[0] if plan.trained_runs else plan.out / CLASSIFIER
    classifier = open_run(classifier_path, "label")
    probabilities = {name: predict_active(classifier.task, classifier.model, values) for name, values in sets.items()}
    on_progress(f"classified {sum(map(len, sets.values())):,} peptides")
    similarities = {
        name: nearest_similarity(sets[name], training_peptides) for name in ("generated", "held-out active")
    }
    write_atomically(
        plan.out / "generated.tsv", format_peptide_table(texts, probabilities["generated"], similarities["generated"])
    )
    training_stats, stats = (
        compute_stats(training_peptides),
        {name: compute_stats(values) for name, values in sets.items()},
    )
    return {
        "classifier": find_score(load_result(Path(classifier_path)), "test", "mcc"),
        "generator": load_result(plan.out / GENERATOR)["scores"]["dev"][0],
        "validity_report": {key: value for key, value in report.items() if key != "faults"},
        "active_fractions": {
            name: asdict(estimate_fraction(name, [probability > 0.5 for probability in values]))
            for name, values in probabilities.items()
        },
        "gain": asdict(measure_gain(probabilities["generated"], probabilities["shuffled"])),
        "nearest_similarity": {name: asdict(estimate_mean(name, values)) for name, values in similarities.items()},
        "stats": {"training": asdict(training_stats)} | {name: asdict(set_stats) for name, set_stats in stats.items()},
        "composition_distance": {
            name: composition_distance(set_stats, training_stats) for name, set_stats in stats.items()
        },
        "lengths": {"training": length_histogram(training_peptides), "generated": length_histogram(texts)},
        "examples": texts[:5],
    }


def measure_gain(probabilities: Sequence[float], baseline: Sequence[float]) -> Estimate:
    """The paired difference of the fractions classified as active.

    >>> print(measure_gain([0.9, 0.8, 0.1, 0.7], [0.2, 0.9, 0.1, 0.3]).value)
    0.5
    """
    return estimate_mean(
        "gain",
        [
            float(probability > 0.5) - float(other > 0.5)
            for probability, other in zip(probabilities, baseline, strict=True)
        ],
    )


def generate_peptides(
    task: Task, generator: Model, training_peptides: Sequence[str], seed: int
) -> tuple[list[str], dict[str, Any]]:
    """Unique, valid and novel peptides among GENERATED_PEPTIDES sampled at temperature 1, and the validity report."""
    text_generator = TextGenerator(
        GenerationConfig(temperature=1.0, seed=seed), generator, require_tokenizer(generator)
    )
    record_format = get_record_format(task.config.record_format)
    records = generate_records(
        generator,
        GENERATED_PEPTIDES,
        text_generator.sampler,
        separator=record_format.separator,
        max_new_tokens=MAX_RESIDUES,
        processors=text_generator.processors,
    )
    unfinished = {record.text for record in records if not record.is_complete}
    report = check_validity(
        [record.text for record in records], record_format, training_peptides, unfinished=unfinished
    )
    training_set = set(map(record_format.canonicalize, training_peptides))
    valid = [
        record_format.canonicalize(record.text)
        for record in records
        if record.is_complete and not record_format.find_fault(record.text)
    ]
    novel = [text for text in dict.fromkeys(valid) if text not in training_set]
    if not novel:
        raise UsageError(
            f"None of {GENERATED_PEPTIDES:,} generated peptides is valid and novel; train the generator longer."
        )
    return novel, report.as_dict()


def predict_active(task: Task, model: Model, texts: Sequence[str]) -> list[float]:
    """The predicted probability that each peptide is active."""
    if ACTIVE_LABEL not in task.labels:
        raise UsageError(
            f"The classifier has the labels {', '.join(task.labels)}; it needs a label {ACTIVE_LABEL!r} for active."
        )
    answers, _ = predict(task, model, [Example({"text": text}) for text in texts])
    return [answer["scores"][ACTIVE_LABEL] for answer in answers]


def format_peptide_table(texts: Sequence[str], probabilities: Sequence[float], similarities: Sequence[float]) -> str:
    """The generated peptides as a tab-separated table, the most probably active first."""
    rows = sorted(zip(probabilities, similarities, texts, strict=True), reverse=True)
    body = "".join(f"{text}\t{probability:.4f}\t{similarity:.4f}\n" for probability, similarity, text in rows)
    return f"peptide	active_probability	nearest_similarity\n{body}"


STUDY = Study(
    "Does a classifier predict generated peptides to be antimicrobial more often than the same residues shuffled?",
    6.0,
    plan_runs,
    measure,
    make_tables,
    draw_plot,
    prepare_data,
)
