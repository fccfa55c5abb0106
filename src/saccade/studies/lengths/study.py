"""The study `lengths`: a recurrent translator with attention and one without, on texts of one to six sentences, by their length.

Bahdanau et al. 2014 (arXiv 1409.0473) showed it first: one fixed vector has to hold the whole text, and fails as texts grow;
attention looks back and holds. Single sentences of Tatoeba are too short to show it, so some are joined.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from saccade.data import Example
from saccade.data.example import SOURCE, TARGET
from saccade.data.read import read_examples
from saccade.data.split_files import SplitSpec, split_files
from saccade.metrics import bleu
from saccade.studies.lengths import show
from saccade.studies.study import OnProgress, Record, Study, StudyPlan, StudyRun, load_recipe
from saccade.tasks.predict import predict
from saccade.tasks.runs.run import Run, open_run
from saccade.training.events import RunRefused
from saccade.training.prepare import Job

RECIPES = {"attention": "tatoeba-en-fr-rnn", "fixed vector": "tatoeba-en-fr-rnn-fixed"}
MAX_CONCAT_SENTENCES = 6  # sentences of a text, at most
HELD_OUT_SENTENCES = 2_000  # sentences for dev, and for test
LENGTH_BINS = (5, 10, 15, 20, 30, 40)  # words of the source
MIN_TEXTS_PER_GROUP = 20  # texts, below which a group is not scored
SENTENCE_END = re.compile(r"[.!?…]+[\"'”’»)]*(?=\s|$)")


@dataclass(frozen=True)
class LengthGroup:
    """Texts of like length: how they are called, and their numbers."""

    name: str
    mean_length: float  # of the texts' own lengths: where the group stands on an axis
    text_indices: list[int]


def plan_runs(plan: StudyPlan) -> list[StudyRun]:
    """The two recipes on the joined texts, unless runs are named."""
    if plan.trained_runs:
        if len(plan.trained_runs) != len(RECIPES):
            raise RunRefused(
                f"lengths compares two runs, with attention and without; got {len(plan.trained_runs)}: {', '.join(plan.trained_runs)}."
            )
        return []
    if not plan.data:
        raise RunRefused(
            "lengths needs two runs, --trained-runs RUN RUN, or sentence pairs to train them on, --data fra.txt, with a pair a line and "
            "a tab between them; saccade recipes show tatoeba-en-fr-rnn says where there are some."
        )
    return [_make_run(plan, kind, name) for kind, name in RECIPES.items()]


def _make_run(plan: StudyPlan, kind: str, name: str) -> StudyRun:
    raw = load_recipe(name)
    job = Job(
        raw["run"]["task"],
        (str(_split_dir(plan)),),
        raw["run"]["model"],
        raw["run"]["columns"],
        model_fields=raw["model"],
        task_fields=raw["task"],
        train_fields={**raw["train"], "seed": plan.seed, "max_minutes": plan.minutes_per_run(len(RECIPES))},
    )
    return StudyRun(kind.replace(" ", "-"), job, f"recipe {name}, texts of 1 to {MAX_CONCAT_SENTENCES} sentences")


def _split_dir(plan: StudyPlan) -> Path:
    """Where the parts are: a directory that was given, or the one that `prepare_data` writes."""
    given = Path(plan.data[0])
    return given if len(plan.data) == 1 and given.is_dir() else plan.out / "data"


def prepare_data(plan: StudyPlan) -> None:
    """Join the sentences of a file into texts and part them, once; a directory is taken as it is."""
    given = plan.trained_runs or _split_dir(plan) != plan.out / "data"
    if given or any((plan.out / "data").glob("train*")):
        return
    split_files(
        plan.data,
        plan.out / "data",
        SplitSpec(
            HELD_OUT_SENTENCES, HELD_OUT_SENTENCES, group_column="1", seed=plan.seed, max_concat=MAX_CONCAT_SENTENCES
        ),
    )


def measure(plan: StudyPlan, study_runs: Sequence[StudyRun], on_progress: OnProgress) -> Record:
    """BLEU of both runs for texts of like length, once by words and once by sentences."""
    runs = [Path(run) for run in plan.trained_runs] or [plan.out / member.name for member in study_runs]
    names = list(RECIPES) if not plan.trained_runs else [run.name for run in runs]
    examples = _load_test_texts(plan, runs[0])
    said = {}
    for name, run in zip(names, runs, strict=True):
        on_progress(f"translating {len(examples):,} texts with {name}")
        translator = open_run(run, "translate")
        said[name] = predict(translator.task, translator.model, examples)[0]
    return {"texts": len(examples), **score_by_length(examples, said)}


def score_by_length(examples: Sequence[Example], translations: dict[str, list[str]]) -> Record:
    """BLEU of each translator, over all texts and over groups of like length."""
    gold = [example["target"] for example in examples]
    whole = {name: vars(bleu(gold, texts)) for name, texts in translations.items()}
    found: Record = {"runs": list(translations), "overall": whole}
    for key, groups in (("by_words", group_by_words(examples)), ("by_sentences", group_by_sentences(examples))):
        found[key] = [
            {
                "name": group.name,
                "mean_length": group.mean_length,
                "texts": len(group.text_indices),
                "bleu": {
                    name: vars(bleu([gold[i] for i in group.text_indices], [texts[i] for i in group.text_indices]))
                    for name, texts in translations.items()
                },
            }
            for group in groups
        ]
    return found


def _load_test_texts(plan: StudyPlan, run: Path) -> Sequence[Example]:
    """The test texts: of a file that is given with runs, or those that a run kept apart."""
    if plan.trained_runs and plan.data:
        return read_examples(plan.data, (SOURCE, TARGET), columns=Run(run).columns or None).examples
    return Run(run).held_out


def group_by_words(examples: Sequence[Example]) -> list[LengthGroup]:
    """Groups by the words of the source: 1 to 5, 6 to 10 and so on; groups of few are left out."""
    names = [f"{low + 1} to {high}" for low, high in zip((0, *LENGTH_BINS), LENGTH_BINS, strict=False)]
    names.append(f"over {LENGTH_BINS[-1]}")

    def place(words: int) -> str:
        return names[sum(words > border for border in LENGTH_BINS)]

    return _group_by_length(examples, lambda example: len(example["source"].split()), place)


def group_by_sentences(examples: Sequence[Example]) -> list[LengthGroup]:
    """Groups by the sentences of the source, told by the marks at their ends."""
    return _group_by_length(examples, lambda example: count_sentences(example["source"]), str)


def count_sentences(text: str) -> int:
    """How many sentences a text has; one without a mark at its end is one, too.

    >>> count_sentences("Go. Why? Because!"), count_sentences("Mr T"), count_sentences("Wait... what?"), count_sentences("Come in. Sit down")
    (3, 1, 2, 2)
    """
    ends = list(SENTENCE_END.finditer(text))
    rest = text[ends[-1].end() :].strip() if ends else text
    return len(ends) + bool(rest)


def _group_by_length(
    examples: Sequence[Example], length: Callable[[Example], int], name: Callable[[int], str]
) -> list[LengthGroup]:
    lengths = [length(example) for example in examples]
    found: dict[str, list[int]] = {}
    for number in sorted(range(len(examples)), key=lengths.__getitem__):
        found.setdefault(name(lengths[number]), []).append(number)
    return [
        LengthGroup(called, sum(lengths[i] for i in numbers) / len(numbers), numbers)
        for called, numbers in found.items()
        if len(numbers) >= MIN_TEXTS_PER_GROUP
    ]


STUDY = Study(
    "Does attention hold on long texts, where one fixed vector fails?",
    90.0,
    plan_runs,
    measure,
    show.make_tables,
    show.draw_plot,
    prepare_data,
)
