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
from saccade.data import write as write_examples
from saccade.data.item import Table
from saccade.data.samples import sample
from saccade.data.split import Splits, open_data, split_table
from saccade.studies.learning import Point, draw, points, tables
from saccade.studies.study import Member, Plan, Record, Study, Told, clock, result, score_of
from saccade.tasks.label import Label
from saccade.training.events import Refused
from saccade.training.job import Job
from saccade.training.job import prepare as ready

NOTHING = "nothing"  # the beginning without pretraining
NEW = "new"  # the weights that all begin with
PRETRAINING = 0.27  # of all minutes, for each of the two
TEACHING = 0.40  # for all trainings on labels together; the rest is for reading, testing and reports
SIZES: dict[str, Any] = {"word_width": 128, "width": 128, "layers": 2, "heads": 4, "inner": 512, "vocab": 8000}
SIZES |= {"position": "rotary"}  # with learned ones, context is hardly looked at in so little time
WORDS: dict[str, Any] = {"length": 128, "pieces": "bpe"}
# a generator that both losses leave time to learn, and that draws words which are worth a second look
GAME: dict[str, dict[str, Any]] = {"replaced": {"weight": 5.0, "shrink": 2}}
# the clock ends it, and the schedule with it; a mean of the weights is kept
READING: dict[str, Any] = {"epochs": 1000, "tokens": 4096, "fit": True, "warmup": 0.03, "optimizer": "muon"}
READING |= {"average": 0.999, "look_every": 500, "look_at": 200, "decay": 0.1, "precision": "auto"}
LEARNING: dict[str, Any] = {"average": 0.99, "warmup": 0.1, "fit": True, "look_every": 10**9}


@dataclass(frozen=True)
class Share:
    """A part of the labels: how often it is drawn, and how it is learnt."""

    part: float
    draws: int
    epochs: int
    tokens: int
    weight: int  # of one training in the time for all

    @property
    def name(self) -> str:
        """
        >>> Share(0.01, 5, 60, 512, 1).name
        '1pc'
        """
        return f"{100 * self.part:g}pc"


@dataclass(frozen=True)
class Beginning:
    """What a reader has behind it before it sees a label, and the rates that suit it."""

    name: str
    objective: str  # none: nothing
    reading_rate: float
    rate: float
    decay: float
    dropout: float  # of labels, which are soon learnt by heart


SHARES = (Share(0.01, 5, 50, 512, 1), Share(0.1, 3, 25, 1024, 3), Share(1.0, 1, 12, 2048, 9))
BEGINNINGS = (
    Beginning(NOTHING, "", 0.0, 1e-3, 0.1, 0.4),
    Beginning("masked", "masked", 1e-2, 5e-4, 0.01, 0.1),
    Beginning("replaced", "replaced", 1e-2, 5e-4, 0.01, 0.1),
)


def members(plan: Plan) -> list[Member]:
    """Two pretrainings, then every beginning with every share of the labels."""
    if len(plan.data) == 1:
        raise Refused(
            f"pretraining needs a text and labelled data, and got {plan.data[0]} alone; "
            "give the text first and the labelled data last, or neither."
        )
    first = [pretraining(plan, one) for one in BEGINNINGS if one.objective]
    whole = sum(share.weight * share.draws for share in SHARES) * len(BEGINNINGS)
    then = []
    for share in SHARES:
        minutes = round(TEACHING * plan.minutes * share.weight / whole, 4)
        then += [taught(plan, one, share, number, minutes) for number in range(share.draws) for one in BEGINNINGS]
    return first + then


def pretraining(plan: Plan, beginning: Beginning) -> Member:
    """The text, read for as long as the other objective reads it."""
    train = {**READING, "rate": beginning.reading_rate, "seed": plan.seed}
    train["max_time"] = round(PRETRAINING * plan.minutes, 4)
    task = {**WORDS, **GAME.get(beginning.objective, {}), "objective": beginning.objective}
    job = Job("pretrain", plan.data[:-1], str(plan.out / NEW), task_fields=task, train_fields=train)
    return Member(beginning.name, job, f"reads the text, objective {beginning.objective}")


def taught(plan: Plan, beginning: Beginning, share: Share, number: int, minutes: float) -> Member:
    """Labels learnt from one beginning; `number` says which of the draws, so all beginnings learn from the same labels."""
    train = {**LEARNING, "epochs": share.epochs, "tokens": share.tokens, "seed": plan.seed + number}
    train |= {"rate": beginning.rate, "decay": beginning.decay, "max_time": minutes}
    data = (labels_of(plan, share, number), held(plan, "dev"), held(plan, "test"))
    model, task = str(plan.out / (beginning.name if beginning.objective else NEW)), {"length": 64, "smoothing": 0.1}
    dropped = {"dropout": beginning.dropout}
    job = Job("label", tuple(map(str, data)), model, model_fields=dropped, task_fields=task, train_fields=train)
    return Member(run_of(beginning, share, number), job, f"learns from {share.part:.0%} of the labels")


def run_of(beginning: Beginning, share: Share, number: int) -> str:
    return f"{share.name}-{beginning.name}-{number}"


def labels_of(plan: Plan, share: Share, number: int) -> Path:
    return plan.out / "data" / f"{share.name}-{number}" / "train.jsonl"


def held(plan: Plan, split: str) -> Path:
    return plan.out / "data" / f"{split}.jsonl"


def prepare(plan: Plan) -> None:
    """Write the labels in their shares, the held-out data, and the new weights with the tokenizer that all begin with."""
    splits = read(plan)
    for split, table in splits.tables().items():
        if split != "train":
            _write(held(plan, split), table.examples)
    for share in SHARES:
        for number in range(share.draws):
            _write(labels_of(plan, share, number), drawn(splits.train.examples, share.part, plan.seed + number))
    if not (plan.out / NEW / "config.json").is_file():
        begin(plan)


def begin(plan: Plan) -> None:
    """Draw the weights and learn the tokenizer, once."""
    task, train = {**WORDS, "objective": "masked"}, {"seed": plan.seed}
    job = Job("pretrain", plan.data[:-1], "electra", model_fields=SIZES, task_fields=task, train_fields=train)
    model = ready(job).model
    model.head, model.kind = None, None
    model.save(plan.out / NEW)


def _write(path: Path, examples: Sequence[Example]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_examples(path, [Example({"text": one["text"], "label": one["label"]}) for one in examples])


def read(plan: Plan) -> Splits:
    """The labelled data, with a part to test on."""
    roles = Label().roles(plan.data[-1:])
    if plan.data:
        found = open_data(plan.data[-1:], roles)
    else:
        own = sample("topics")
        found = split_table(Table(own.make(own.count, plan.seed), digest=f"sample {own.name}"), roles)
    if found.test is not None:
        return found
    half = len(found.dev.examples) // 2
    dev, test = found.dev.examples[:half], found.dev.examples[half:]
    return Splits(found.train, Table(dev), Table(test), found.said, found.digest)


def drawn(examples: Sequence[Example], part: float, seed: int) -> list[Example]:
    """A part of the examples, the same part of each label and one at least; a smaller part of the same seed lies within it."""
    kinds: dict[str, list[Example]] = {}
    for example in examples:
        kinds.setdefault(example["label"], []).append(example)
    found = []
    for label, some in sorted(kinds.items()):
        order = random.Random(f"{seed}:{label}").sample(some, len(some))
        found += order[: max(1, round(part * len(some)))]
    return found


def measure(plan: Plan, trained: Sequence[Member], told: Told) -> Record:
    """The accuracy of every member on the test data, and the learning curves that they make."""
    ended = {member.name: result(plan.out / member.name) for member in trained}
    curves: dict[str, list[Point]] = {one.name: [] for one in BEGINNINGS}
    for share in SHARES:
        scores = {one.name: [_accuracy(ended, one, share, n) for n in range(share.draws)] for one in BEGINNINGS}
        count = ended[run_of(BEGINNINGS[0], share, 0)]["examples"]["train"]
        for name, point in points(scores, count, against=NOTHING).items():
            curves[name].append(point)
    told(f"{len(ended)} runs read")
    gold = [example["label"] for example in (read(plan).test or Table([])).examples]
    return {
        "curves": {name: [vars(point) for point in line] for name, line in curves.items()},
        "majority": max(map(gold.count, set(gold))) / len(gold),
        "pretraining": {one.name: _reading(plan, one, ended) for one in BEGINNINGS if one.objective},
        "sizes": SIZES,
        "game": GAME,
        "parameters": ended[run_of(BEGINNINGS[0], SHARES[0], 0)]["parameters"],
        "cut": sorted(name for name, facts in ended.items() if "max_time" in facts["why"] and "-" in name),
    }


def _accuracy(ended: Mapping[str, Record], beginning: Beginning, share: Share, number: int) -> Record:
    return score_of(ended[run_of(beginning, share, number)], "test", "accuracy")


def _reading(plan: Plan, beginning: Beginning, ended: Mapping[str, Record]) -> Record:
    facts = ended[beginning.name]
    minutes = round(clock(plan.out / beginning.name), 1)
    return {"steps": facts["steps"], "minutes": minutes, "scores": facts["scores"]["dev"]}


STUDY = Study(
    "what reading without labels is worth: masked and replaced words at equal minutes, then few and many labels",
    60.0,
    members,
    measure,
    tables,
    draw,
    prepare,
)
