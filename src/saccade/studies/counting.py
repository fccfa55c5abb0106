"""Two translators of rows of numbers, one that looks back and one that has a single vector: what each holds, by length.

    for name, job in jobs(Path("demo")).items():
        ...                                     # an ordinary training, into demo/NAME
    right(*open_run("demo/lengths-attention"), length=12)

`saccade demo lengths` trains them, and the lesson of that name shows them. Both take the same steps, whatever the machine, until
the one with attention has reached its score: a comparison of two that were stopped by the clock would compare nothing.
"""

from pathlib import Path
from random import Random

from saccade.data import Example, write
from saccade.data.samples import sample
from saccade.data.samples.numbers import LONGEST, counted
from saccade.models.model import Model
from saccade.tasks.answering import answers
from saccade.tasks.task import Task
from saccade.training.job import Job

DECODERS = {  # name of a run -> how it writes
    "lengths-attention": {"decoder": "bahdanau", "mechanism": "additive"},
    "lengths-fixed": {"decoder": "sutskever"},
}
SAID = {
    "lengths-attention": "a GRU that looks back at every word it read (Bahdanau 2014)",
    "lengths-fixed": "the same, with one vector for all it read (Sutskever 2014)",
}
MODEL = {"width": 96, "layers": 1, "cell": "gru", "dropout": 0.0}
TASK = {"pieces": "words", "metric": "exact_match", "smoothing": 0.0}
TRAIN = {"tokens": 2048, "rate": 4e-3, "look_at": 300}
EPOCHS, MAX_EPOCHS = 4, 16  # passes through the data at first, and when they are doubled no more
TARGET = 0.95  # of sixteen numbers, right and in their place: below that the reader with attention is undertrained
DATA = "counts.jsonl"
TEXTS = 40  # of each length that is asked about


def jobs(out: Path, minutes: float = 0.0, epochs: int = EPOCHS) -> dict[str, Job]:
    """What is trained, by the name of its run; the rows of numbers are written beside the runs. 0 minutes: to the end."""
    entry = sample("counts")
    out.mkdir(parents=True, exist_ok=True)
    write(out / DATA, entry.make(entry.count, 0))
    train = {**TRAIN, "epochs": epochs, "max_time": minutes / len(DECODERS)}
    return {
        name: Job(
            "translate", (str(out / DATA),), "rnn", model_fields=MODEL | how, task_fields=TASK, train_fields=train
        )
        for name, how in DECODERS.items()
    }


def undertrained(share: float) -> str:
    """What is wrong with a reader that has attention and gets this share of the longest rows right; nothing if it is trained.

    >>> undertrained(0.96)
    ''
    """
    if share >= TARGET:
        return ""
    return (
        f"undertrained: with attention {share:.0%} of {LONGEST} numbers are right where {TARGET:.0%} are reached in full "
        "training, so this comparison shows nothing yet"
    )


def rows(length: int, count: int = TEXTS) -> list[Example]:
    """Rows of one length that are drawn apart from those that were learnt."""
    random = Random(f"asked:{length}")
    return [Example(counted(random, length)) for _ in range(count)]


def right(task: Task, model: Model, length: int) -> float:
    """The share of numbers that stand right and in their place, over rows of one length."""
    asked = rows(length)
    found, _ = answers(task, model, asked)
    return sum(agreeing(example["target"], said) for example, said in zip(asked, found, strict=True)) / len(asked)


def agreeing(gold: str, said: str) -> float:
    """The share of the numbers of `gold` that stand in the same place of `said`.

    >>> agreeing("1 2 3 4", "1 2 4"), agreeing("7", "7 7")
    (0.5, 1.0)
    """
    wanted = gold.split()
    return sum(one == other for one, other in zip(wanted, said.split(), strict=False)) / len(wanted)
