"""What pretraining is worth: learning curves of a reader from nothing, after masked words, and after replaced words.

All three begin with the same new weights and the same tokenizer. Two of them first read the text for equally many minutes; then
each learns from 1 %, 10 % and 100 % of the labels, several times with other labels where they are few. The development set
chooses nothing: with a hundredth of the labels it would be the larger lesson.

    saccade study pretraining --data wikitext2/train.raw.txt.gz wikitext2/valid.raw.txt.gz sst2/

The last of the data are labelled, the others are the text; without data it is the package's own docs and topics.
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

FROM_SCRATCH = "from_scratch"  # the beginning without pretraining
INITIAL_MODEL = "init"  # the weights that all begin with
PRETRAINING_TIME_FRACTION = 0.27  # of all minutes, for each of the two
FINETUNING_TIME_FRACTION = 0.40  # for all trainings on labels together; the rest is for reading, testing and reports
MODEL_CONFIG: dict[str, Any] = {
    "embedding_width": 128,
    "width": 128,
    "layers": 2,
    "heads": 4,
    "ffn_width": 512,
    "vocab": 8000,
}
MODEL_CONFIG |= {"position": "rotary"}  # with learned ones, context is hardly looked at in so little time
TASK_CONFIG: dict[str, Any] = {"max_tokens": 128, "tokenizer": "bpe"}
# a generator that both losses leave time to learn, and that draws words which are worth a second look
ELECTRA_CONFIG: dict[str, dict[str, Any]] = {
    "replaced_token_detection": {"discriminator_weight": 5.0, "generator_divisor": 2}
}
# the clock ends it, and the schedule with it; a mean of the weights is kept
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
    """A part of the labels: how often it is drawn, and how it is learnt."""

    fraction: float
    samples: int
    epochs: int
    batch_tokens: int
    time_weight: int  # of one training in the time for all

    @property
    def name(self) -> str:
        """
        >>> LabelFraction(0.01, 5, 60, 512, 1).name
        '1pc'
        """
        return f"{100 * self.fraction:g}pc"


@dataclass(frozen=True)
class Initialization:
    """What a reader has behind it before it sees a label, and the rates that suit it."""

    name: str
    objective: str  # none: nothing
    pretraining_lr: float
    lr: float
    weight_decay: float
    dropout: float  # of labels, which are soon learnt by heart


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
    """Two pretrainings, then every beginning with every share of the labels."""
    if len(plan.data) == 1:
        raise RunRefused(
            f"pretraining needs a text and labelled data, and got {plan.data[0]} alone; "
            "give the text first and the labelled data last, or neither."
        )
    first = [make_pretraining_run(plan, one) for one in INITIALIZATIONS if one.objective]
    whole = sum(share.time_weight * share.samples for share in LABEL_FRACTIONS) * len(INITIALIZATIONS)
    then = []
    for share in LABEL_FRACTIONS:
        minutes = round(FINETUNING_TIME_FRACTION * plan.minutes * share.time_weight / whole, 4)
        then += [
            make_finetuning_run(plan, one, share, number, minutes)
            for number in range(share.samples)
            for one in INITIALIZATIONS
        ]
    return first + then


def make_pretraining_run(plan: StudyPlan, initialization: Initialization) -> StudyRun:
    """The text, read for as long as the other objective reads it."""
    train = {**PRETRAINING_CONFIG, "lr": initialization.pretraining_lr, "seed": plan.seed}
    train["max_minutes"] = round(PRETRAINING_TIME_FRACTION * plan.minutes, 4)
    task = {**TASK_CONFIG, **ELECTRA_CONFIG.get(initialization.objective, {}), "objective": initialization.objective}
    job = Job("pretrain", plan.data[:-1], str(plan.out / INITIAL_MODEL), task_fields=task, train_fields=train)
    return StudyRun(initialization.name, job, f"reads the text, objective {initialization.objective}")


def make_finetuning_run(
    plan: StudyPlan, initialization: Initialization, label_fraction: LabelFraction, sample_index: int, minutes: float
) -> StudyRun:
    """Labels learnt from one beginning; `sample_index` says which of the draws, so all beginnings learn from the same labels."""
    train = {
        **FINETUNING_CONFIG,
        "epochs": label_fraction.epochs,
        "batch_tokens": label_fraction.batch_tokens,
        "seed": plan.seed + sample_index,
    }
    train |= {"lr": initialization.lr, "weight_decay": initialization.weight_decay, "max_minutes": minutes}
    data = (label_file(plan, label_fraction, sample_index), held_out_file(plan, "dev"), held_out_file(plan, "test"))
    model, task = (
        str(plan.out / (initialization.name if initialization.objective else INITIAL_MODEL)),
        {"max_tokens": 64, "label_smoothing": 0.1},
    )
    dropped = {"dropout": initialization.dropout}
    job = Job("label", tuple(map(str, data)), model, model_fields=dropped, task_fields=task, train_fields=train)
    return StudyRun(
        run_name(initialization, label_fraction, sample_index),
        job,
        f"learns from {label_fraction.fraction:.0%} of the labels",
    )


def run_name(initialization: Initialization, label_fraction: LabelFraction, sample_index: int) -> str:
    return f"{label_fraction.name}-{initialization.name}-{sample_index}"


def label_file(plan: StudyPlan, label_fraction: LabelFraction, sample_index: int) -> Path:
    return plan.out / "data" / f"{label_fraction.name}-{sample_index}" / "train.jsonl"


def held_out_file(plan: StudyPlan, split: str) -> Path:
    return plan.out / "data" / f"{split}.jsonl"


def prepare_data(plan: StudyPlan) -> None:
    """Write the labels in their shares, the held-out data, and the new weights with the tokenizer that all begin with."""
    splits = read_labeled_data(plan)
    for split, table in splits.as_dict().items():
        if split != "train":
            _write_labeled_texts(held_out_file(plan, split), table.examples)
    for share in LABEL_FRACTIONS:
        for number in range(share.samples):
            _write_labeled_texts(
                label_file(plan, share, number),
                sample_labels(splits.train.examples, share.fraction, plan.seed + number),
            )
    if not (plan.out / INITIAL_MODEL / "config.json").is_file():
        save_initial_model(plan)


def save_initial_model(plan: StudyPlan) -> None:
    """Draw the weights and learn the tokenizer, once."""
    task, train = {**TASK_CONFIG, "objective": "masked_lm"}, {"seed": plan.seed}
    job = Job("pretrain", plan.data[:-1], "electra", model_fields=MODEL_CONFIG, task_fields=task, train_fields=train)
    model = ready(job).model
    model.head, model.head_name = None, None
    model.save(plan.out / INITIAL_MODEL)


def _write_labeled_texts(path: Path, examples: Sequence[Example]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_examples(path, [Example({"text": one["text"], "label": one["label"]}) for one in examples])


def read_labeled_data(plan: StudyPlan) -> Splits:
    """The labelled data, with a part to test on."""
    roles = Label().roles(plan.data[-1:])
    if plan.data:
        found = open_data(plan.data[-1:], roles)
    else:
        own = get_sample("topics")
        found = split_records(Records(own.make(own.default_count, plan.seed), digest=f"sample {own.name}"), roles)
    if found.test is not None:
        return found
    half = len(found.dev.examples) // 2
    dev, test = found.dev.examples[:half], found.dev.examples[half:]
    return Splits(found.train, Records(dev), Records(test), found.notes, found.digest)


def sample_labels(examples: Sequence[Example], fraction: float, seed: int) -> list[Example]:
    """A part of the examples, the same part of each label and one at least; a smaller part of the same seed lies within it."""
    kinds: dict[str, list[Example]] = {}
    for example in examples:
        kinds.setdefault(example["label"], []).append(example)
    found = []
    for label, some in sorted(kinds.items()):
        order = random.Random(f"{seed}:{label}").sample(some, len(some))
        found += order[: max(1, round(fraction * len(some)))]
    return found


def measure(plan: StudyPlan, study_runs: Sequence[StudyRun], on_progress: OnProgress) -> Record:
    """The accuracy of every member on the test data, and the learning curves that they make."""
    ended = {member.name: load_result(plan.out / member.name) for member in study_runs}
    curves: dict[str, list[CurvePoint]] = {one.name: [] for one in INITIALIZATIONS}
    for share in LABEL_FRACTIONS:
        scores = {
            one.name: [_find_accuracy(ended, one, share, n) for n in range(share.samples)] for one in INITIALIZATIONS
        }
        count = ended[run_name(INITIALIZATIONS[0], share, 0)]["examples"]["train"]
        for name, point in make_points(scores, count, baseline=FROM_SCRATCH).items():
            curves[name].append(point)
    on_progress(f"{len(ended)} runs read")
    gold = [example["label"] for example in (read_labeled_data(plan).test or Records([])).examples]
    return {
        "curves": {name: [vars(point) for point in line] for name, line in curves.items()},
        "majority": max(map(gold.count, set(gold))) / len(gold),
        "pretraining": {one.name: _summarize_pretraining(plan, one, ended) for one in INITIALIZATIONS if one.objective},
        "model_config": MODEL_CONFIG,
        "electra_config": ELECTRA_CONFIG,
        "parameters": ended[run_name(INITIALIZATIONS[0], LABEL_FRACTIONS[0], 0)]["parameters"],
        "stopped_early": sorted(
            name for name, facts in ended.items() if "max_minutes" in facts["stop_reason"] and "-" in name
        ),
    }


def _find_accuracy(
    results: Mapping[str, Record], initialization: Initialization, label_fraction: LabelFraction, sample_index: int
) -> Record:
    return find_score(results[run_name(initialization, label_fraction, sample_index)], "test", "accuracy")


def _summarize_pretraining(plan: StudyPlan, initialization: Initialization, results: Mapping[str, Record]) -> Record:
    facts = results[initialization.name]
    minutes = round(total_minutes(plan.out / initialization.name), 1)
    return {"steps": facts["steps"], "minutes": minutes, "scores": facts["scores"]["dev"]}


STUDY = Study(
    "what reading without labels is worth: masked and replaced words at equal minutes, then few and many labels",
    60.0,
    plan_runs,
    measure,
    make_tables,
    draw_plot,
    prepare_data,
)
