"""The study `lengths`: BLEU by source length of a recurrent encoder-decoder with and without attention.

Bahdanau et al. 2014 (arXiv 1409.0473) showed it first: without attention one fixed context vector has to represent the whole
source, and BLEU falls as texts get longer. Single sentences of Tatoeba are too short to show it, so one to six are joined.
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
MAX_CONCAT_SENTENCES = 6  # maximum number of sentences per text
HELD_OUT_SENTENCES = 2_000  # sentences for dev, and the same for test
LENGTH_BINS = (5, 10, 15, 20, 30, 40)  # upper bounds in source words
MIN_TEXTS_PER_GROUP = 20  # smaller groups are not scored
SENTENCE_END = re.compile(r"[.!?…]+[\"'”’»)]*(?=\s|$)")


@dataclass(frozen=True)
class LengthGroup:
    """Texts of similar length: the name of the group, and the indices of its texts."""

    name: str
    mean_length: float  # position of the group on the axis of the plot
    text_indices: list[int]


def plan_runs(plan: StudyPlan) -> list[StudyRun]:
    """The two recipes on the joined texts; no runs if trained ones are given."""
    if plan.trained_runs:
        if len(plan.trained_runs) != len(RECIPES):
            raise RunRefused(
                f"lengths compares two runs, with and without attention; got {', '.join(plan.trained_runs)}."
            )
        return []
    if not plan.data:
        raise RunRefused(
            "lengths needs two runs, --trained-runs RUN RUN, or sentence pairs to train them on, --data fra.txt, with one "
            "tab-separated pair per line; saccade recipes show tatoeba-en-fr-rnn names a dataset."
        )
    return [_make_run(plan, kind, name) for kind, name in RECIPES.items()]


def _make_run(plan: StudyPlan, kind: str, name: str) -> StudyRun:
    raw = load_recipe(name)
    job = Job(
        raw["run"]["task"],
        (str(_split_dir(plan)),),
        raw["run"]["family"],
        raw["run"]["columns"],
        model_fields=raw["model"],
        task_fields=raw["task"],
        train_fields={**raw["train"], "seed": plan.seed, "max_minutes": plan.minutes_per_run(len(RECIPES))},
    )
    return StudyRun(kind.replace(" ", "-"), job, f"recipe {name}, texts of 1 to {MAX_CONCAT_SENTENCES} sentences")


def _split_dir(plan: StudyPlan) -> Path:
    """The directory of the splits: the one given by the user, or the one that `prepare_data` writes."""
    path = Path(plan.data[0])
    return path if len(plan.data) == 1 and path.is_dir() else plan.out / "data"


def prepare_data(plan: StudyPlan) -> None:
    """Join the sentences of a file into texts and split them, once; a directory is used unchanged."""
    has_splits = plan.trained_runs or _split_dir(plan) != plan.out / "data"
    if has_splits or any((plan.out / "data").glob("train*")):
        return
    split_files(
        plan.data,
        plan.out / "data",
        SplitSpec(
            HELD_OUT_SENTENCES, HELD_OUT_SENTENCES, group_column="1", seed=plan.seed, max_concat=MAX_CONCAT_SENTENCES
        ),
    )


def measure(plan: StudyPlan, study_runs: Sequence[StudyRun], on_progress: OnProgress) -> Record:
    """BLEU of both runs for groups of texts by words and by sentences."""
    runs = [Path(run) for run in plan.trained_runs] or [plan.out / study_run.name for study_run in study_runs]
    names = list(RECIPES) if not plan.trained_runs else [run.name for run in runs]
    examples = _load_test_texts(plan, runs[0])
    translations = {}
    for name, run in zip(names, runs, strict=True):
        on_progress(f"translating {len(examples):,} texts with {name}")
        translator = open_run(run, "translate")
        translations[name] = predict(translator.task, translator.model, examples)[0]
    return {"texts": len(examples), **score_by_length(examples, translations)}


def score_by_length(examples: Sequence[Example], translations: dict[str, list[str]]) -> Record:
    """BLEU of each run, over all texts and by length."""
    gold = [example["target"] for example in examples]
    overall = {name: vars(bleu(gold, texts)) for name, texts in translations.items()}
    record: Record = {"runs": list(translations), "overall": overall}
    for key, groups in (("by_words", group_by_words(examples)), ("by_sentences", group_by_sentences(examples))):
        record[key] = [
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
    return record


def _load_test_texts(plan: StudyPlan, run: Path) -> Sequence[Example]:
    """The test texts: from files given with trained runs, or else the held-out data of a run."""
    if plan.trained_runs and plan.data:
        return read_examples(plan.data, (SOURCE, TARGET), columns=Run(run).columns or None).examples
    return Run(run).held_out


def group_by_words(examples: Sequence[Example]) -> list[LengthGroup]:
    """Groups by source words: 1 to 5, 6 to 10 and so on; small groups are left out."""
    names = [f"{low + 1} to {high}" for low, high in zip((0, *LENGTH_BINS), LENGTH_BINS, strict=False)]
    names.append(f"over {LENGTH_BINS[-1]}")

    def group_name(words: int) -> str:
        return names[sum(words > bound for bound in LENGTH_BINS)]

    return _group_by_length(examples, lambda example: len(example["source"].split()), group_name)


def group_by_sentences(examples: Sequence[Example]) -> list[LengthGroup]:
    """Groups by source sentences, which end with punctuation."""
    return _group_by_length(examples, lambda example: count_sentences(example["source"]), str)


def count_sentences(text: str) -> int:
    """The number of sentences of a text; a last sentence without punctuation counts.

    >>> [count_sentences(text) for text in ("Go. Why? Because!", "Mr T", "Wait... what?", "Come in. Sit down")]
    [3, 1, 2, 2]
    """
    ends = list(SENTENCE_END.finditer(text))
    rest = text[ends[-1].end() :].strip() if ends else text
    return len(ends) + bool(rest)


def _group_by_length(
    examples: Sequence[Example], length: Callable[[Example], int], name: Callable[[int], str]
) -> list[LengthGroup]:
    lengths = [length(example) for example in examples]
    groups: dict[str, list[int]] = {}
    for index in sorted(range(len(examples)), key=lengths.__getitem__):
        groups.setdefault(name(lengths[index]), []).append(index)
    return [
        LengthGroup(group_name, sum(lengths[i] for i in indices) / len(indices), indices)
        for group_name, indices in groups.items()
        if len(indices) >= MIN_TEXTS_PER_GROUP
    ]


STUDY = Study(
    "Does attention keep its BLEU on long texts, where one fixed context vector fails?",
    90.0,
    plan_runs,
    measure,
    show.make_tables,
    show.draw_plot,
    prepare_data,
)
