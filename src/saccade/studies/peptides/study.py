"""Peptides that a language model invents, judged by a classifier: do they look antimicrobial, and more so than chance would?

The writer learns the active peptides that the judge learnt from too, so the judge is no stranger to them: what counts is the
share of new peptides that it takes for active beside its share of the same residues in another order, of held-out active
peptides and of held-out others.
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
GENERATED_PEPTIDES = 1_000  # peptides that are invented
MAX_RESIDUES = 140  # residues of the longest that may be invented
GENERATOR_SETTINGS: dict[str, dict[str, Any]] = {
    "model_fields": {"width": 128, "layers": 2, "heads": 4, "ffn_width": 512, "dropout": 0.2, "position": "rotary"},
    "task_fields": {"tokenizer": "characters", "max_tokens": 128, "record_format": "protein"},
    "train_fields": {"epochs": 40, "batch_tokens": 2048, "lr": 2e-3, "ema": 0.99, "eval_every": 60, "patience": 5},
}


def plan_runs(plan: StudyPlan) -> list[StudyRun]:
    """The judge, unless a run is named that is one, and the writer."""
    if not (plan.trained_runs or plan.data):
        raise RunRefused(
            "peptides needs a judge, --trained-runs RUN, or labelled peptides to train one on, --data DIR with train, dev and test; "
            "saccade recipes show peptides says where there are some."
        )
    count = 1 if plan.trained_runs else 2
    own = (
        []
        if plan.trained_runs
        else [
            StudyRun(
                CLASSIFIER, make_classifier_job(plan, plan.minutes_per_run(count)), "tells active peptides from others"
            )
        ]
    )
    task, model, train = (GENERATOR_SETTINGS[name] for name in ("task_fields", "model_fields", "train_fields"))
    written = tuple(str(path) for path in _text_files(plan).values())
    timed = {**train, "seed": plan.seed, "max_minutes": plan.minutes_per_run(count)}
    job = Job("language", written, "transformer", model_fields=model, task_fields=task, train_fields=timed)
    return [*own, StudyRun(GENERATOR, job, "invents active peptides")]


def make_classifier_job(plan: StudyPlan, minutes: float) -> Job:
    """The recipe's training, on the data of the plan."""
    raw = load_recipe(RECIPE)
    train = {**raw["train"], "max_minutes": min(minutes, raw["train"]["max_minutes"]), "seed": plan.seed}
    tables = {"model_fields": raw["model"], "task_fields": raw["task"], "train_fields": train}
    return Job(raw["run"]["task"], plan.data, raw["run"]["model"], raw["run"]["columns"], **tables)


def _text_files(plan: StudyPlan) -> dict[str, Path]:
    return {split: plan.out / "data" / f"{split}.txt" for split in ("train", "dev")}


def prepare_data(plan: StudyPlan) -> None:
    """Write the active peptides of training and development, one on a line."""
    splits = read_peptides(plan)
    for split, path in _text_files(plan).items():
        write_atomically(path, "".join(f"{peptide}\n" for peptide in select_peptides(splits, split, active=True)))


def read_peptides(plan: StudyPlan) -> Splits:
    """The labelled peptides: those of the plan, or those that the judge learnt from."""
    if not plan.data:
        found = Run(plan.trained_runs[0]).data
        if found is None:
            raise DataError(
                "is no run with data of its own", file=plan.trained_runs[0], hint="give them with --data as well"
            )
        return found
    columns = make_classifier_job(plan, plan.minutes).columns
    return open_data(plan.data, Label().roles(plan.data), columns=columns, on_bad_record="skip")


def select_peptides(splits: Splits, split: str, *, active: bool) -> list[str]:
    """The peptides of one split that are active, or are not."""
    table = splits.as_dict().get(split)
    found = [
        example["text"].strip()
        for example in (table.examples if table else ())
        if (example["label"] == ACTIVE_LABEL) == active
    ]
    if not found:
        what = f"no peptide of {split} has {'the' if active else 'another label than the'} label {ACTIVE_LABEL!r}"
        raise DataError(what, hint="give train, dev and test with labels 1 (active) and 0")
    return found


def measure(plan: StudyPlan, study_runs: Sequence[StudyRun], on_progress: OnProgress) -> Record:
    """Invent peptides, and let the judge say of them and of three other sets what it takes for active."""
    splits = read_peptides(plan)
    learnt = select_peptides(splits, "train", active=True)
    writer = open_run(plan.out / GENERATOR, "language")
    texts, verdict = generate_peptides(writer.task, writer.model, learnt, plan.seed)
    on_progress(f"{len(texts):,} new peptides of {GENERATED_PEPTIDES:,} that were written")
    sets = {
        "generated": texts,
        "shuffled": shuffle_residues(texts, plan.seed),
        "held-out active": select_peptides(splits, "test", active=True),
        "held-out others": select_peptides(splits, "test", active=False),
    }
    where = plan.trained_runs[0] if plan.trained_runs else plan.out / CLASSIFIER
    judge = open_run(where, "label")
    judged = {name: predict_active(judge.task, judge.model, some) for name, some in sets.items()}
    on_progress(f"{sum(map(len, sets.values())):,} peptides judged")
    near = {name: nearest_similarity(sets[name], learnt) for name in ("generated", "held-out active")}
    write_atomically(plan.out / "generated.tsv", format_peptide_table(texts, judged["generated"], near["generated"]))
    known, seen = compute_stats(learnt), {name: compute_stats(some) for name, some in sets.items()}
    return {
        "classifier": find_score(load_result(Path(where)), "test", "mcc"),
        "generator": load_result(plan.out / GENERATOR)["scores"]["dev"][0],
        "validity_report": {key: value for key, value in verdict.items() if key != "faults"},
        "active_fractions": {
            name: asdict(estimate_fraction(name, [chance > 0.5 for chance in some])) for name, some in judged.items()
        },
        "gain": asdict(measure_gain(judged["generated"], judged["shuffled"])),
        "nearest_similarity": {name: asdict(estimate_mean(name, some)) for name, some in near.items()},
        "stats": {"training": asdict(known)} | {name: asdict(look) for name, look in seen.items()},
        "composition_distance": {name: composition_distance(look, known) for name, look in seen.items()},
        "lengths": {"training": length_histogram(learnt), "generated": length_histogram(texts)},
        "examples": texts[:5],
    }


def measure_gain(probabilities: Sequence[float], baseline: Sequence[float]) -> Estimate:
    """How many more of some peptides are taken for active than of others, each compared with its own other.

    >>> print(measure_gain([0.9, 0.8, 0.1, 0.7], [0.2, 0.9, 0.1, 0.3]).value)
    0.5
    """
    return estimate_mean(
        "gain", [float(one > 0.5) - float(other > 0.5) for one, other in zip(probabilities, baseline, strict=True)]
    )


def generate_peptides(
    task: Task, generator: Model, training_peptides: Sequence[str], seed: int
) -> tuple[list[str], dict[str, Any]]:
    """Different, valid and new peptides among COUNT drawn as likely as the writer holds them, and what was left out."""
    ways = TextGenerator(GenerationConfig(temperature=1.0, seed=seed), generator, require_tokenizer(generator))
    kind = get_record_format(task.config.record_format)
    found = generate_records(
        generator,
        GENERATED_PEPTIDES,
        ways.sampler,
        separator=kind.separator,
        max_new_tokens=MAX_RESIDUES,
        processors=ways.processors,
    )
    unended = {one.text for one in found if not one.is_complete}
    verdict = check_validity([one.text for one in found], kind, training_peptides, unfinished=unended)
    known = set(map(kind.canonicalize, training_peptides))
    good = [kind.canonicalize(one.text) for one in found if one.is_complete and not kind.find_fault(one.text)]
    new = [text for text in dict.fromkeys(good) if text not in known]
    if not new:
        raise UsageError(
            f"None of {GENERATED_PEPTIDES:,} peptides is valid and new, so there is nothing to judge; train longer."
        )
    return new, verdict.as_dict()


def predict_active(task: Task, model: Model, texts: Sequence[str]) -> list[float]:
    """How likely each peptide is active, as the judge says."""
    if ACTIVE_LABEL not in task.labels:
        raise UsageError(
            f"The judge tells {', '.join(task.labels)} apart; a label {ACTIVE_LABEL!r} for active is needed."
        )
    found, _ = predict(task, model, [Example({"text": text}) for text in texts])
    return [answer["scores"][ACTIVE_LABEL] for answer in found]


def format_peptide_table(texts: Sequence[str], probabilities: Sequence[float], similarities: Sequence[float]) -> str:
    """The invented peptides as a table, the likeliest first."""
    rows = sorted(zip(probabilities, similarities, texts, strict=True), reverse=True)
    body = "".join(f"{text}\t{chance:.4f}\t{like:.4f}\n" for chance, like, text in rows)
    return f"peptide	active_probability	nearest_similarity\n{body}"


STUDY = Study(
    "does a judge take invented peptides for antimicrobial, and more often than the same residues shuffled",
    6.0,
    plan_runs,
    measure,
    make_tables,
    draw_plot,
    prepare_data,
)
