"""The study `listops`: six readers of nested lists at equal parameters and equal time, on short and on long ones.

Every reader is trained on the short lists and again on the long ones. Those of the short ones are asked about the long ones,
too, as they are: a mechanism that has a limit refuses. Beside the accuracy stand the time of a step, tokens a second and
peak memory.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from saccade.data.parting import Parts, part
from saccade.errors import DataError
from saccade.studies import listops_shown, lists, peak
from saccade.studies.lists import Lists
from saccade.studies.readers import READERS, Fitted, equal
from saccade.studies.study import Member, Plan, Record, Study, Told, result, score_of, speeds, write
from saccade.tasks.words import learn_tokenizer
from saccade.training.events import Refused
from saccade.training.job import Job, held_out

OWN = (("short", 2_000, (50, 200)), ("long", 500, (500, 2_000)))  # what is made where no data are given
SETS = 2  # short and long
TRAIN = {
    "rate": 1e-3,
    "fit": True,  # the clock ends a training, and the schedule with it
    "warmup": 0.05,
    "tokens": 4096,
    "average": 0.999,
    "epochs": 400,
    "look_every": 100,
    "look_at": 200,
}


@cache
def sets(data: tuple[str, ...]) -> tuple[Lists, ...]:
    """The sets that are given, from short to long, or those that the package makes."""
    if not data:
        return tuple(lists.make(*own) for own in OWN)
    found = lists.opened(data)
    if len(found) > SETS:
        raise Refused(f"listops compares short lists with long ones, in one or two files; got {len(found)}.")
    return tuple(found)


def members(plan: Plan) -> list[Member]:
    """Every reader on every set, all for the same time."""
    found = sets(plan.data)
    minutes = plan.share(len(found) * len(READERS))
    return [_member(plan, one, fitted, minutes) for one in found for fitted in _fitted(one)]


def _fitted(one: Lists) -> tuple[Fitted, ...]:
    return _equal(room(one), len(set(one.labels)))


@cache
def _equal(length: int, labels: int) -> tuple[Fitted, ...]:
    vocab = learn_tokenizer([" ".join(lists.WORDS)], "words", None, frame="both", running=False).vocab
    return tuple(equal(READERS, {"vocab": vocab, "length": length, "dropout": 0.1}, labels))


def room(one: Lists) -> int:
    """A power of two that holds every list with the marks at its ends."""
    return 1 << (one.longest + 1).bit_length()


def _member(plan: Plan, one: Lists, fitted: Fitted, minutes: float) -> Member:
    length = room(one)
    job = Job(
        "label",
        (str(plan.out / "data" / one.name),),
        fitted.reader.family,
        model_fields={name: value for name, value in fitted.fields.items() if name != "vocab"},
        task_fields={"length": length, "pieces": "words"},
        train_fields={**TRAIN, "max_time": minutes, "seed": plan.seed},
    )
    name = f"{one.name}-{fitted.reader.name}".replace(" ", "-")
    return Member(name, job, f"{fitted.reader.name}, {fitted.parameters:,} parameters, {one.name}")


def prepare(plan: Plan) -> None:
    """Write each set into train, dev and test, once."""
    for one in sets(plan.data):
        where = plan.out / "data" / one.name
        rows = "".join(f"{text}\t{label}\n" for text, label in zip(one.texts, one.labels, strict=True))
        text, kept = "text\tlabel\n" + rows, plan.out / "data" / f"{one.name}.tsv"
        if kept.is_file():
            continue
        test, dev = min(1_000, 3 * len(one.texts) // 10), min(500, len(one.texts) // 10)
        if min(test, dev) < 1:
            what = f"{len(one.texts)} lists are too few to hold some out"
            raise DataError(what, file=Path(one.name), cure="give some hundreds at least")
        beside = kept.with_suffix(".new.tsv")
        write(beside, text)
        part([beside], where, Parts(dev, test, seed=plan.seed))
        beside.replace(kept)


def measure(plan: Plan, trained: Sequence[Member], told: Told) -> Record:
    """A line for each reader and set, and what always giving the commonest answer would score."""
    found = sets(plan.data)
    lines = []
    pairs = [(one, fitted) for one in found for fitted in _fitted(one)]
    for member, (read, fitted) in zip(trained, pairs, strict=True):
        told(f"memory of {member.name}")
        lines.append(_line(plan.out, member, fitted, read))
        if read is not found[-1]:
            told(f"{member.name} on {found[-1].name}")
            examples = held_out(plan.out / f"{found[-1].name}-full")
            lines[-1]["beyond"] = beyond(plan.out / member.name, examples, found[-1])
    facts = [
        {"name": one.name, "lists": len(one.texts), "longest": one.longest, "majority": majority(plan, one)}
        for one in found
    ]
    return {"sets": facts, "readers": lines}


def _line(out: Path, member: Member, fitted: Fitted, one: Lists) -> Record:
    facts = result(out / member.name)
    rows = speeds(out / member.name)
    return {
        "reader": fitted.reader.name,
        "set": one.name,
        "parameters": facts["parameters"],
        "accuracy": score_of(facts, "test", "accuracy"),
        "steps": facts["steps"],
        "minutes": member.minutes,
        "seconds_a_step": round(statistics.median(row["seconds"] for row in rows), 4),
        "tokens_a_second": round(sum(row["tokens"] for row in rows) / sum(row["seconds"] for row in rows)),
        "peak_mb": peak.measured(member.job, out / member.name / "peak.json"),
    }


def beyond(run: Path, examples: Sequence[Any], one: Lists) -> Record:
    """The accuracy on lists longer than any that a reader has learnt from, or why it cannot read them."""
    from saccade.tasks.answering import evaluate
    from saccade.tasks.opening import open_run

    task, model = open_run(run)
    task.config = replace(task.config, length=room(one))
    try:
        return vars(next(score for score in evaluate(task, model, examples) if score.name == "accuracy"))
    except ValueError as error:
        return {"refused": str(error)}


def majority(plan: Plan, one: Lists) -> Record:
    """What the commonest label of the training lists scores on those held out for the test."""
    from saccade.tasks.metrics import accuracy
    from saccade.training.job import data_of

    splits = data_of(plan.out / f"{one.name}-full")
    assert splits is not None, "the members of a study are runs"
    assert splits.test is not None, "and have a test part"
    label = Counter(example["label"] for example in splits.train.examples).most_common(1)[0][0]
    gold = [example["label"] for example in splits.test.examples]
    return {"label": label, **vars(accuracy(gold, [label] * len(gold)))}


STUDY = Study(
    "Which attention reads nested lists best at equal parameters and equal time, and what does it cost?",
    90.0,
    members,
    measure,
    listops_shown.tables,
    listops_shown.draw,
    prepare,
)
