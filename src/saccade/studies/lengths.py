"""The study `lengths`: a recurrent translator with attention and one without, on texts of one to six sentences, by their length.

Bahdanau et al. 2014 (arXiv 1409.0473) showed it first: one fixed vector has to hold the whole text, and fails as texts grow;
attention looks back and holds. Single sentences of Tatoeba are too short to show it, so some are joined.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from saccade.data import Example
from saccade.data.item import SOURCE, TARGET
from saccade.data.parting import Parts, part
from saccade.data.read import read
from saccade.studies import lengths_shown
from saccade.studies.study import Member, Plan, Record, Study, Told, recipe
from saccade.tasks.answering import answers
from saccade.tasks.metrics import bleu
from saccade.tasks.opening import open_run
from saccade.tasks.run_settings import read_run_settings
from saccade.training.events import Refused
from saccade.training.job import Job, held_out

RECIPES = {"attention": "tatoeba-en-fr-rnn", "fixed vector": "tatoeba-en-fr-rnn-fixed"}
JOIN = 6  # sentences of a text, at most
HELD = 2_000  # sentences for dev, and for test
BORDERS = (5, 10, 15, 20, 30, 40)  # words of the source
FEW = 20  # texts, below which a group is not scored
ENDS = re.compile(r"[.!?…]+[\"'”’»)]*(?=\s|$)")


@dataclass(frozen=True)
class Group:
    """Texts of like length: how they are called, and their numbers."""

    name: str
    middle: float  # of the texts' own lengths: where the group stands on an axis
    numbers: list[int]


def members(plan: Plan) -> list[Member]:
    """The two recipes on the joined texts, unless runs are named."""
    if plan.runs:
        if len(plan.runs) != len(RECIPES):
            raise Refused(
                f"lengths compares two runs, with attention and without; got {len(plan.runs)}: {', '.join(plan.runs)}."
            )
        return []
    if not plan.data:
        raise Refused(
            "lengths needs two runs, --runs RUN RUN, or sentence pairs to train them on, --data fra.txt, with a pair a line and "
            "a tab between them; saccade recipes show tatoeba-en-fr-rnn says where there are some."
        )
    return [_member(plan, kind, name) for kind, name in RECIPES.items()]


def _member(plan: Plan, kind: str, name: str) -> Member:
    raw = recipe(name)
    job = Job(
        raw["run"]["task"],
        (str(_parted(plan)),),
        raw["run"]["model"],
        raw["run"]["columns"],
        model_fields=raw["model"],
        task_fields=raw["task"],
        train_fields={**raw["train"], "seed": plan.seed, "max_time": plan.share(len(RECIPES))},
    )
    return Member(kind.replace(" ", "-"), job, f"recipe {name}, texts of 1 to {JOIN} sentences")


def _parted(plan: Plan) -> Path:
    """Where the parts are: a directory that was given, or the one that `prepare` writes."""
    given = Path(plan.data[0])
    return given if len(plan.data) == 1 and given.is_dir() else plan.out / "data"


def prepare(plan: Plan) -> None:
    """Join the sentences of a file into texts and part them, once; a directory is taken as it is."""
    given = plan.runs or _parted(plan) != plan.out / "data"
    if given or any((plan.out / "data").glob("train*")):
        return
    part(plan.data, plan.out / "data", Parts(HELD, HELD, by="1", seed=plan.seed, join=JOIN))


def measure(plan: Plan, trained: Sequence[Member], told: Told) -> Record:
    """BLEU of both runs for texts of like length, once by words and once by sentences."""
    runs = [Path(run) for run in plan.runs] or [plan.out / member.name for member in trained]
    names = list(RECIPES) if not plan.runs else [run.name for run in runs]
    examples = _examples(plan, runs[0])
    said = {}
    for name, run in zip(names, runs, strict=True):
        told(f"translating {len(examples):,} texts with {name}")
        task, model = open_run(run, "translate")
        said[name] = answers(task, model, examples)[0]
    return {"texts": len(examples), **scored(examples, said)}


def scored(examples: Sequence[Example], said: dict[str, list[str]]) -> Record:
    """BLEU of each translator, over all texts and over groups of like length."""
    gold = [example["target"] for example in examples]
    whole = {name: vars(bleu(gold, texts)) for name, texts in said.items()}
    found: Record = {"runs": list(said), "whole": whole}
    for key, groups in (("by_words", by_words(examples)), ("by_sentences", by_sentences(examples))):
        found[key] = [
            {
                "name": group.name,
                "middle": group.middle,
                "texts": len(group.numbers),
                "bleu": {
                    name: vars(bleu([gold[i] for i in group.numbers], [texts[i] for i in group.numbers]))
                    for name, texts in said.items()
                },
            }
            for group in groups
        ]
    return found


def _examples(plan: Plan, run: Path) -> Sequence[Example]:
    """The test texts: of a file that is given with runs, or those that a run kept apart."""
    if plan.runs and plan.data:
        settings = read_run_settings(run)
        return read(plan.data, (SOURCE, TARGET), columns=settings["run"].get("columns") or None).examples
    return held_out(run)


def by_words(examples: Sequence[Example]) -> list[Group]:
    """Groups by the words of the source: 1 to 5, 6 to 10 and so on; groups of few are left out."""
    names = [f"{low + 1} to {high}" for low, high in zip((0, *BORDERS), BORDERS, strict=False)]
    names.append(f"over {BORDERS[-1]}")

    def place(words: int) -> str:
        return names[sum(words > border for border in BORDERS)]

    return _groups(examples, lambda example: len(example["source"].split()), place)


def by_sentences(examples: Sequence[Example]) -> list[Group]:
    """Groups by the sentences of the source, told by the marks at their ends."""
    return _groups(examples, lambda example: sentences(example["source"]), str)


def sentences(text: str) -> int:
    """How many sentences a text has; one without a mark at its end is one, too.

    >>> sentences("Go. Why? Because!"), sentences("Mr T"), sentences("Wait... what?"), sentences("Come in. Sit down")
    (3, 1, 2, 2)
    """
    ends = list(ENDS.finditer(text))
    rest = text[ends[-1].end() :].strip() if ends else text
    return len(ends) + bool(rest)


def _groups(examples: Sequence[Example], length: Callable[[Example], int], name: Callable[[int], str]) -> list[Group]:
    lengths = [length(example) for example in examples]
    found: dict[str, list[int]] = {}
    for number in sorted(range(len(examples)), key=lengths.__getitem__):
        found.setdefault(name(lengths[number]), []).append(number)
    return [
        Group(called, sum(lengths[i] for i in numbers) / len(numbers), numbers)
        for called, numbers in found.items()
        if len(numbers) >= FEW
    ]


STUDY = Study(
    "Does attention hold on long texts, where one fixed vector fails?",
    90.0,
    members,
    measure,
    lengths_shown.tables,
    lengths_shown.draw,
    prepare,
)
