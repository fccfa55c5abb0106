"""Peptides that a language model invents, judged by a classifier: do they look antimicrobial, and more so than chance would?

The writer learns the active peptides that the judge learnt from too, so the judge is no stranger to them: what counts is the
share of new peptides that it takes for active beside its share of the same residues in another order, of held-out active
peptides and of held-out others.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from saccade.audit.stats import mean, share
from saccade.audit.suite import Figure
from saccade.data import Example
from saccade.data.split import Splits, open_data
from saccade.decoding.settings import Decoding
from saccade.decoding.ways import Ways
from saccade.errors import DataError, UsageError
from saccade.models.model import Model
from saccade.studies.peptides_shown import draw, tables
from saccade.studies.residues import apart, lengths, looks, nearest, shuffled
from saccade.studies.study import Member, Plan, Record, Study, Told, recipe, result, score_of, write
from saccade.tasks.answering import answers
from saccade.tasks.label import Label
from saccade.tasks.opening import open_run
from saccade.tasks.records import write_records
from saccade.tasks.task import Task, need_tokenizer
from saccade.tasks.validity import judge, kind_of
from saccade.training.events import Refused
from saccade.training.job import Job, data_of

RECIPE, JUDGE, WRITER = "peptides", "judge", "writer"
ACTIVE = "1"  # the label of antimicrobial peptides in modlAMP's files
COUNT = 1_000  # peptides that are invented
LENGTH = 140  # residues of the longest that may be invented
SETTINGS: dict[str, dict[str, Any]] = {
    "model_fields": {"width": 128, "layers": 2, "heads": 4, "inner": 512, "dropout": 0.2, "position": "rotary"},
    "task_fields": {"pieces": "characters", "length": 128, "check": "protein"},
    "train_fields": {"epochs": 40, "tokens": 2048, "rate": 2e-3, "average": 0.99, "look_every": 60, "patience": 5},
}


def members(plan: Plan) -> list[Member]:
    """The judge, unless a run is named that is one, and the writer."""
    if not (plan.runs or plan.data):
        raise Refused(
            "peptides needs a judge, --runs RUN, or labelled peptides to train one on, --data DIR with train, dev and test; "
            "saccade recipes show peptides says where there are some."
        )
    count = 1 if plan.runs else 2
    own = [] if plan.runs else [Member(JUDGE, judge_job(plan, plan.share(count)), "tells active peptides from others")]
    task, model, train = (SETTINGS[name] for name in ("task_fields", "model_fields", "train_fields"))
    written = tuple(str(path) for path in _texts(plan).values())
    timed = {**train, "seed": plan.seed, "max_time": plan.share(count)}
    job = Job("language", written, "transformer", model_fields=model, task_fields=task, train_fields=timed)
    return [*own, Member(WRITER, job, "invents active peptides")]


def judge_job(plan: Plan, minutes: float) -> Job:
    """The recipe's training, on the data of the plan."""
    raw = recipe(RECIPE)
    train = {**raw["train"], "max_time": min(minutes, raw["train"]["max_time"]), "seed": plan.seed}
    tables = {"model_fields": raw["model"], "task_fields": raw["task"], "train_fields": train}
    return Job(raw["run"]["task"], plan.data, raw["run"]["model"], raw["run"]["columns"], **tables)


def _texts(plan: Plan) -> dict[str, Path]:
    return {split: plan.out / "data" / f"{split}.txt" for split in ("train", "dev")}


def prepare(plan: Plan) -> None:
    """Write the active peptides of training and development, one on a line."""
    splits = read(plan)
    for split, path in _texts(plan).items():
        write(path, "".join(f"{peptide}\n" for peptide in peptides(splits, split, active=True)))


def read(plan: Plan) -> Splits:
    """The labelled peptides: those of the plan, or those that the judge learnt from."""
    if not plan.data:
        found = data_of(plan.runs[0])
        if found is None:
            raise DataError("is no run with data of its own", file=plan.runs[0], cure="give them with --data as well")
        return found
    columns = judge_job(plan, plan.minutes).columns
    return open_data(plan.data, Label().roles(plan.data), columns=columns, on_bad="skip")


def peptides(splits: Splits, split: str, *, active: bool) -> list[str]:
    """The peptides of one split that are active, or are not."""
    table = splits.tables().get(split)
    found = [
        example["text"].strip()
        for example in (table.examples if table else ())
        if (example["label"] == ACTIVE) == active
    ]
    if not found:
        what = f"no peptide of {split} has {'the' if active else 'another label than the'} label {ACTIVE!r}"
        raise DataError(what, cure="give train, dev and test with labels 1 (active) and 0")
    return found


def measure(plan: Plan, trained: Sequence[Member], told: Told) -> Record:
    """Invent peptides, and let the judge say of them and of three other sets what it takes for active."""
    splits = read(plan)
    learnt = peptides(splits, "train", active=True)
    task, writer = open_run(plan.out / WRITER, "language")
    texts, verdict = invented(task, writer, learnt, plan.seed)
    told(f"{len(texts):,} new peptides of {COUNT:,} that were written")
    sets = {
        "invented": texts,
        "shuffled": shuffled(texts, plan.seed),
        "held-out active": peptides(splits, "test", active=True),
        "held-out others": peptides(splits, "test", active=False),
    }
    where = plan.runs[0] if plan.runs else plan.out / JUDGE
    judged = {name: chances(*open_run(where, "label"), some) for name, some in sets.items()}
    told(f"{sum(map(len, sets.values())):,} peptides judged")
    near = {name: nearest(sets[name], learnt) for name in ("invented", "held-out active")}
    write(plan.out / "invented.tsv", listed(texts, judged["invented"], near["invented"]))
    known, seen = looks(learnt), {name: looks(some) for name, some in sets.items()}
    return {
        "judge": score_of(result(Path(where)), "test", "mcc"),
        "writer": result(plan.out / WRITER)["scores"]["dev"][0],
        "verdict": {key: value for key, value in verdict.items() if key != "faults"},
        "shares": {name: asdict(share(name, [chance > 0.5 for chance in some])) for name, some in judged.items()},
        "gain": asdict(gain(judged["invented"], judged["shuffled"])),
        "nearest": {name: asdict(mean(name, some)) for name, some in near.items()},
        "looks": {"learnt": asdict(known)} | {name: asdict(look) for name, look in seen.items()},
        "apart": {name: apart(look, known) for name, look in seen.items()},
        "lengths": {"learnt": lengths(learnt), "invented": lengths(texts)},
        "examples": texts[:5],
    }


def gain(judged: Sequence[float], others: Sequence[float]) -> Figure:
    """How many more of some peptides are taken for active than of others, each compared with its own other.

    >>> print(gain([0.9, 0.8, 0.1, 0.7], [0.2, 0.9, 0.1, 0.3]).value)
    0.5
    """
    return mean("gain", [float(one > 0.5) - float(other > 0.5) for one, other in zip(judged, others, strict=True)])


def invented(task: Task, writer: Model, learnt: Sequence[str], seed: int) -> tuple[list[str], dict[str, Any]]:
    """Different, valid and new peptides among COUNT drawn as likely as the writer holds them, and what was left out."""
    ways = Ways(Decoding(temperature=1.0, seed=seed), writer, need_tokenizer(writer))
    kind = kind_of(task.config.check)
    found = write_records(writer, COUNT, ways.choose, border=kind.border, length=LENGTH, rules=ways.rules)
    unended = {one.text for one in found if not one.ended}
    verdict = judge([one.text for one in found], kind, learnt, unended=unended)
    known = set(map(kind.same, learnt))
    good = [kind.same(one.text) for one in found if one.ended and not kind.fault(one.text)]
    new = [text for text in dict.fromkeys(good) if text not in known]
    if not new:
        raise UsageError(f"None of {COUNT:,} peptides is valid and new, so there is nothing to judge; train longer.")
    return new, verdict.as_dict()


def chances(task: Task, model: Model, texts: Sequence[str]) -> list[float]:
    """How likely each peptide is active, as the judge says."""
    if ACTIVE not in task.labels:
        raise UsageError(f"The judge tells {', '.join(task.labels)} apart; a label {ACTIVE!r} for active is needed.")
    found, _ = answers(task, model, [Example({"text": text}) for text in texts])
    return [answer["scores"][ACTIVE] for answer in found]


def listed(texts: Sequence[str], judged: Sequence[float], near: Sequence[float]) -> str:
    """The invented peptides as a table, the likeliest first."""
    rows = sorted(zip(judged, near, texts, strict=True), reverse=True)
    body = "".join(f"{text}\t{chance:.4f}\t{like:.4f}\n" for chance, like, text in rows)
    return f"peptide\tactive\tlike_a_learnt_one\n{body}"


STUDY = Study(
    "does a judge take invented peptides for antimicrobial, and more often than the same residues shuffled",
    6.0,
    members,
    measure,
    tables,
    draw,
    prepare,
)
