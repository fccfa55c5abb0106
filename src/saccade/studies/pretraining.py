"""The study `pretraining`: learning curves of an encoder from scratch, after masked LM, and after replaced token detection.

All three start from the same random weights and the same tokenizer. Two of them are pretrained on the text for the same number of
minutes; then each is fine-tuned on 1 %, 10 % and 100 % of the labels, several times with other labels where they are few. The dev
set selects no checkpoint: with 1 % of the labels it would be larger than the training set.

    saccade study pretraining --data wikitext2/train.raw.txt.gz wikitext2/valid.raw.txt.gz sst2/

The last data path has the labels, the others are the text; the defaults are the built-in samples docs and topics.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.data import Example
from saccade.data import write_examples as write_examples
from saccade.data.example import Records
from saccade.data.samples import get_sample
from saccade.data.splits import Splits, open_data, split_records
from saccade.studies.learning_curves import CurvePoint, draw_plot, make_points, make_tables
from saccade.studies.study import OnProgress, Record, Study, StudyPlan, StudyRun, find_score, load_result, total_minutes
from saccade.tasks.label import Label
from saccade.training.events import RunRefused
from saccade.training.prepare import Job
from saccade.training.prepare import prepare as ready

FROM_SCRATCH = "from_scratch"  # the initialization without pretraining
INITIAL_MODEL = "init"  # directory of the random weights that all runs start from
PRETRAINING_TIME_FRACTION = 0.27  # of all minutes, for each of the two objectives
FINETUNING_TIME_FRACTION = 0.40  # for all fine-tuning runs together; the rest is for data, evaluation and reports
MODEL_CONFIG: dict[str, Any] = {
    "embedding_width": 128,
    "width": 128,
    "layers": 2,
    "heads": 4,
    "ffn_width": 512,
    "vocab": 8000,
}
MODEL_CONFIG |= {"position": "rotary"}  # learned positions would hardly use the context after so few steps
TASK_CONFIG: dict[str, Any] = {"max_tokens": 128, "tokenizer": "bpe"}
# smaller weight and larger generator than published, so that a short training gives plausible replacements
ELECTRA_CONFIG: dict[str, dict[str, Any]] = {
    "replaced_token_detection": {"discriminator_weight": 5.0, "generator_divisor": 2}
}
# the time limit ends training and fits the schedule; the EMA weights are kept
PRETRAINING_CONFIG: dict[str, Any] = {
    "epochs": 1000,
    "batch_tokens": 4096,
    "fit_schedule": True,
    "warmup": 0.03,
    "optimizer": "muon",
}
PRETRAINING_CONFIG |= {
    "ema": 0.999,
    "eval_every": 500,
    "max_eval_examples": 200,
    "weight_decay": 0.1,
    "precision": "auto",
}
FINETUNING_CONFIG: dict[str, Any] = {"ema": 0.99, "warmup": 0.1, "fit_schedule": True, "eval_every": 10**9}


@dataclass(frozen=True)
class LabelFraction:
    """A fraction of the labels: the number of samples, and the training settings."""

    fraction: float
    samples: int
    epochs: int
    batch_tokens: int
    time_weight: int  # of one run in the time of all fine-tuning runs

    @property
    def name(self) -> str:
        """
        >>> LabelFraction(0.01, 5, 60, 512, 1).name
        '1pc'
        """
        return f"{100 * self.fraction:g}pc"


@dataclass(frozen=True)
class Initialization:
    """An initialization of the encoder, with its learning rates and regularization."""

    name: str
    objective: str  # "": from scratch
    pretraining_lr: float
    lr: float
    weight_decay: float
    dropout: float  # during fine-tuning, where overfitting begins early


LABEL_FRACTIONS = (
    LabelFraction(0.01, 5, 50, 512, 1),
    LabelFraction(0.1, 3, 25, 1024, 3),
    LabelFraction(1.0, 1, 12, 2048, 9),
)
INITIALIZATIONS = (
    Initialization(FROM_SCRATCH, "", 0.0, 1e-3, 0.1, 0.4),
    Initialization("masked_lm", "masked_lm", 1e-2, 5e-4, 0.01, 0.1),
    Initialization("replaced_token_detection", "replaced_token_detection", 1e-2, 5e-4, 0.01, 0.1),
)


def plan_runs(plan: StudyPlan) -> list[StudyRun]:
    """The two pretraining runs, then every initialization with every fraction of the labels."""
    if len(plan.data) == 1:
        raise RunRefused(
            f"pretraining needs text and labeled data, got only {plan.data[0]}; "
            "give the text first and the labeled data last, or neither."
        )
    pretraining_runs = [
        make_pretraining_run(plan, initialization) for initialization in INITIALIZATIONS if initialization.objective
    ]
    total_weight = sum(label_fraction.time_weight * label_fraction.samples for label_fraction in LABEL_FRACTIONS) * len(
        INITIALIZATIONS
    )
    finetuning_runs = []
    for label_fraction in LABEL_FRACTIONS:
        minutes = round(FINETUNING_TIME_FRACTION * plan.minutes * label_fraction.time_weight / total_weight, 4)
        finetuning_runs += [
            make_finetuning_run(plan, initialization, label_fraction, sample_index, minutes)
            for sample_index in range(label_fraction.samples)
            for initialization in INITIALIZATIONS
        ]
    return pretraining_runs + finetuning_runs


def make_pretraining_run(plan: StudyPlan, initialization: Initialization) -> StudyRun:
    """The pretraining run of an objective; both objectives have the same time."""
    train = {**PRETRAINING_CONFIG, "lr": initialization.pretraining_lr, "seed": plan.seed}
    train["max_minutes"] = round(PRETRAINING_TIME_FRACTION * plan.minutes, 4)
    task = {**TASK_CONFIG, **ELECTRA_CONFIG.get(initialization.objective, {}), "objective": initialization.objective}
    job = Job("pretrain", plan.data[:-1], model=str(plan.out / INITIAL_MODEL), task_fields=task, train_fields=train)
    return StudyRun(initialization.name, job, f"pretraining with {initialization.objective}")


def make_finetuning_run(
    plan: StudyPlan, initialization: Initialization, label_fraction: LabelFraction, sample_index: int, minutes: float
) -> StudyRun:
    """The fine-tuning run of an initialization on sample `sample_index` of the labels, which all initializations share."""
    train = {
        **FINETUNING_CONFIG,
        "epochs": label_fraction.epochs,
        "batch_tokens": label_fraction.batch_tokens,
        "seed": plan.seed + sample_index,
    }
    train |= {"lr": initialization.lr, "weight_decay": initialization.weight_decay, "max_minutes": minutes}
    data = (label_file(plan, label_fraction, sample_index), held_out_file(plan, "dev"), held_out_file(plan, "test"))
    model = str(plan.out / (initialization.name if initialization.objective else INITIAL_MODEL))
    task, dropout = {"max_tokens": 64, "label_smoothing": 0.1}, {"dropout": initialization.dropout}
    job = Job("label", tuple(map(str, data)), model=model, model_fields=dropout, task_fields=task, train_fields=train)
    name = run_name(initialization, label_fraction, sample_index)
    return StudyRun(name, job, f"fine-tuning on {label_fraction.fraction:.0%} of the labels")


def run_name(initialization: Initialization, label_fraction: LabelFraction, sample_index: int) -> str:
    return f"{label_fraction.name}-{initialization.name}-{sample_index}"


def label_file(plan: StudyPlan, label_fraction: LabelFraction, sample_index: int) -> Path:
    return plan.out / "data" / f"{label_fraction.name}-{sample_index}" / "train.jsonl"


def held_out_file(plan: StudyPlan, split: str) -> Path:
    return plan.out / "data" / f"{split}.jsonl"


def prepare_data(plan: StudyPlan) -> None:
    """Write the samples of labels, the held-out data, and the initial model with its tokenizer."""
    splits = read_labeled_data(plan)
    for split, records in splits.as_dict().items():
        if split != "train":
            _write_labeled_texts(held_out_file(plan, split), records.examples)
    for label_fraction in LABEL_FRACTIONS:
        for sample_index in range(label_fraction.samples):
            _write_labeled_texts(
                label_file(plan, label_fraction, sample_index),
                sample_labels(splits.train.examples, label_fraction.fraction, plan.seed + sample_index),
            )
    if not (plan.out / INITIAL_MODEL / "config.json").is_file():
        save_initial_model(plan)


def save_initial_model(plan: StudyPlan) -> None:
    """Initialize the weights and train the tokenizer, once."""
    task, train = {**TASK_CONFIG, "objective": "masked_lm"}, {"seed": plan.seed}
    job = Job("pretrain", plan.data[:-1], "electra", model_fields=MODEL_CONFIG, task_fields=task, train_fields=train)
    model = ready(job).model
    model.head, model.head_name = None, None
    model.save(plan.out / INITIAL_MODEL)


def _write_labeled_texts(path: Path, examples: Sequence[Example]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_examples(path, [Example({"text": example["text"], "label": example["label"]}) for example in examples])


def read_labeled_data(plan: StudyPlan) -> Splits:
    """The labeled data with a test split."""
    roles = Label().roles(plan.data[-1:])
    if plan.data:
        splits = open_data(plan.data[-1:], roles)
    else:
        sample = get_sample("topics")
        records = Records(sample.make(sample.default_count, plan.seed), digest=f"sample {sample.name}")
        splits = split_records(records, roles)
    if splits.test is not None:
        return splits
    half = len(splits.dev.examples) // 2
    dev, test = splits.dev.examples[:half], splits.dev.examples[half:]
    return Splits(splits.train, Records(dev), Records(test), splits.notes, splits.digest)


def sample_labels(examples: Sequence[Example], fraction: float, seed: int) -> list[Example]:
    """A stratified sample of the examples, at least one per label; smaller fractions with the same seed are subsets of it."""
    by_label: dict[str, list[Example]] = {}
    for example in examples:
        by_label.setdefault(example["label"], []).append(example)
    sample = []
    for label, label_examples in sorted(by_label.items()):
        shuffled = random.Random(f"{seed}:{label}").sample(label_examples, len(label_examples))
        sample += shuffled[: max(1, round(fraction * len(label_examples)))]
    return sample


def measure(plan: StudyPlan, study_runs: Sequence[StudyRun], on_progress: OnProgress) -> Record:
    """The test accuracy of every run, as learning curves."""
    results = {study_run.name: load_result(plan.out / study_run.name) for study_run in study_runs}
    curves: dict[str, list[CurvePoint]] = {initialization.name: [] for initialization in INITIALIZATIONS}
    for label_fraction in LABEL_FRACTIONS:
        scores = {
            initialization.name: [
                _find_accuracy(results, initialization, label_fraction, n) for n in range(label_fraction.samples)
            ]
            for initialization in INITIALIZATIONS
        }
        count = results[run_name(INITIALIZATIONS[0], label_fraction, 0)]["examples"]["train"]
        for name, point in make_points(scores, count, baseline=FROM_SCRATCH).items():
            curves[name].append(point)
    on_progress(f"read {len(results)} runs")
    gold = [example["label"] for example in (read_labeled_data(plan).test or Records([])).examples]
    return {
        "curves": {name: [vars(point) for point in line] for name, line in curves.items()},
        "majority": max(map(gold.count, set(gold))) / len(gold),
        "pretraining": {
            initialization.name: _summarize_pretraining(plan, initialization, results)
            for initialization in INITIALIZATIONS
            if initialization.objective
        },
        "model_config": MODEL_CONFIG,
        "electra_config": ELECTRA_CONFIG,
        "parameters": results[run_name(INITIALIZATIONS[0], LABEL_FRACTIONS[0], 0)]["parameters"],
        "stopped_early": sorted(
            name for name, facts in results.items() if "max_minutes" in facts["stop_reason"] and "-" in name
        ),
    }


def _find_accuracy(
    results: Mapping[str, Record], initialization: Initialization, label_fraction: LabelFraction, sample_index: int
) -> Record:
    return find_score(results[run_name(initialization, label_fraction, sample_index)], "test", "accuracy")


def _summarize_pretraining(plan: StudyPlan, initialization: Initialization, results: Mapping[str, Record]) -> Record:
    result = results[initialization.name]
    minutes = round(total_minutes(plan.out / initialization.name), 1)
    return {"steps": result["steps"], "minutes": minutes, "scores": result["scores"]["dev"]}


STUDY = Study(
    "How much do masked LM and replaced token detection gain, at equal time, when fine-tuned on few or many labels?",
    60.0,
    plan_runs,
    measure,
    make_tables,
    draw_plot,
    prepare_data,
)
