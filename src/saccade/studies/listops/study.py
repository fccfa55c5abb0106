"""The study `listops`: six readers of nested lists at equal parameters and equal time, on short and on long ones.

Every reader is trained on the short lists and again on the long ones. Those of the short ones are asked about the long ones,
too, as they are: a mechanism that has a limit refuses. Beside the accuracy stand the time of a step, tokens a second and
peak memory.
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

DEFAULT_SETS = (("short", 2_000, (50, 200)), ("long", 500, (500, 2_000)))  # what is made where no data are given
MAX_SETS = 2  # short and long
TRAIN_CONFIG = {
    "lr": 1e-3,
    "fit_schedule": True,  # the clock ends a training, and the schedule with it
    "warmup": 0.05,
    "batch_tokens": 4096,
    "ema": 0.999,
    "epochs": 400,
    "eval_every": 100,
    "max_eval_examples": 200,
}


@cache
def load_sets(data: tuple[str, ...]) -> tuple[ListOpsSet, ...]:
    """The sets that are given, from short to long, or those that the package makes."""
    if not data:
        return tuple(lists.make_set(*own) for own in DEFAULT_SETS)
    found = lists.read_sets(data)
    if len(found) > MAX_SETS:
        raise RunRefused(f"listops compares short lists with long ones, in one or two files; got {len(found)}.")
    return tuple(found)


def plan_runs(plan: StudyPlan) -> list[StudyRun]:
    """Every reader on every set, all for the same time."""
    found = load_sets(plan.data)
    minutes = plan.minutes_per_run(len(found) * len(MODEL_SPECS))
    return [_make_run(plan, one, fitted, minutes) for one in found for fitted in _matched_models(one)]


def _matched_models(dataset: ListOpsSet) -> tuple[MatchedModel, ...]:
    return _match_models(fit_max_tokens(dataset), len(set(dataset.labels)))


@cache
def _match_models(max_tokens: int, labels: int) -> tuple[MatchedModel, ...]:
    vocab = learn_tokenizer(
        [" ".join(lists.VOCABULARY)], "words", None, token_template="bos_eos", is_text_stream=False
    ).vocab
    return tuple(match_parameters(MODEL_SPECS, {"vocab": vocab, "max_positions": max_tokens, "dropout": 0.1}, labels))


def fit_max_tokens(dataset: ListOpsSet) -> int:
    """A power of two that holds every list with the marks at its ends."""
    return 1 << (dataset.max_words + 1).bit_length()


def _make_run(plan: StudyPlan, dataset: ListOpsSet, matched: MatchedModel, minutes: float) -> StudyRun:
    length = fit_max_tokens(dataset)
    job = Job(
        "label",
        (str(plan.out / "data" / dataset.name),),
        matched.spec.family,
        model_fields={name: value for name, value in matched.fields.items() if name != "vocab"},
        task_fields={"max_tokens": length, "tokenizer": "words"},
        train_fields={**TRAIN_CONFIG, "max_minutes": minutes, "seed": plan.seed},
    )
    name = f"{dataset.name}-{matched.spec.name}".replace(" ", "-")
    return StudyRun(name, job, f"{matched.spec.name}, {matched.parameters:,} parameters, {dataset.name}")


def prepare_data(plan: StudyPlan) -> None:
    """Write each set into train, dev and test, once."""
    for one in load_sets(plan.data):
        where = plan.out / "data" / one.name
        rows = "".join(f"{text}\t{label}\n" for text, label in zip(one.texts, one.labels, strict=True))
        text, kept = "text\tlabel\n" + rows, plan.out / "data" / f"{one.name}.tsv"
        if kept.is_file():
            continue
        test, dev = min(1_000, 3 * len(one.texts) // 10), min(500, len(one.texts) // 10)
        if min(test, dev) < 1:
            what = f"{len(one.texts)} lists are too few to hold some out"
            raise DataError(what, file=Path(one.name), hint="give some hundreds at least")
        beside = kept.with_suffix(".new.tsv")
        write_atomically(beside, text)
        split_files([beside], where, SplitSpec(dev, test, seed=plan.seed))
        beside.replace(kept)


def measure(plan: StudyPlan, study_runs: Sequence[StudyRun], on_progress: OnProgress) -> Record:
    """A line for each reader and set, and what always giving the commonest answer would score."""
    found = load_sets(plan.data)
    lines = []
    pairs = [(one, fitted) for one in found for fitted in _matched_models(one)]
    for member, (read, fitted) in zip(study_runs, pairs, strict=True):
        on_progress(f"memory of {member.name}")
        lines.append(_measure_run(plan.out, member, fitted, read))
        if read is not found[-1]:
            on_progress(f"{member.name} on {found[-1].name}")
            examples = Run(plan.out / f"{found[-1].name}-full").held_out
            lines[-1]["longer_lists"] = evaluate_on_longer(plan.out / member.name, examples, found[-1])
    facts = [
        {
            "name": one.name,
            "lists": len(one.texts),
            "max_words": one.max_words,
            "majority": majority_baseline(plan, one),
        }
        for one in found
    ]
    return {"sets": facts, "models": lines}


def _measure_run(out: Path, run: StudyRun, matched: MatchedModel, dataset: ListOpsSet) -> Record:
    facts = load_result(out / run.name)
    rows = read_speed_log(out / run.name)
    return {
        "model": matched.spec.name,
        "set": dataset.name,
        "parameters": facts["parameters"],
        "accuracy": find_score(facts, "test", "accuracy"),
        "steps": facts["steps"],
        "minutes": run.minutes,
        "seconds_per_step": round(statistics.median(row["seconds"] for row in rows), 4),
        "tokens_per_second": round(sum(row["tokens"] for row in rows) / sum(row["seconds"] for row in rows)),
        "peak_mb": peak_memory.measure_peak_cached(run.job, out / run.name / "peak.json"),
    }


def evaluate_on_longer(run: Path, examples: Sequence[Any], dataset: ListOpsSet) -> Record:
    """The accuracy on lists longer than any that a reader has learnt from, or why it cannot read them."""
    from saccade.tasks.predict import evaluate

    opened = open_run(run)
    opened.change_settings({"max_tokens": fit_max_tokens(dataset)})
    try:
        return vars(next(score for score in evaluate(opened.task, opened.model, examples) if score.name == "accuracy"))
    except ValueError as error:
        return {"refused": str(error)}


def majority_baseline(plan: StudyPlan, dataset: ListOpsSet) -> Record:
    """What the commonest label of the training lists scores on those held out for the test."""
    from saccade.metrics import accuracy

    splits = Run(plan.out / f"{dataset.name}-full").data
    assert splits is not None, "the members of a study are runs"
    assert splits.test is not None, "and have a test part"
    label = Counter(example["label"] for example in splits.train.examples).most_common(1)[0][0]
    gold = [example["label"] for example in splits.test.examples]
    return {"label": label, **vars(accuracy(gold, [label] * len(gold)))}


STUDY = Study(
    "Which attention reads nested lists best at equal parameters and equal time, and what does it cost?",
    90.0,
    plan_runs,
    measure,
    show.make_tables,
    show.draw_plot,
    prepare_data,
)
