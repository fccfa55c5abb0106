"""Two translators of rows of numbers, one that looks back and one that has a single vector: what each holds, by length.

    for name, job in jobs(Path("demo")).items():
        ...                                     # an ordinary training, into demo/NAME
    run = open_run("demo/lengths-attention")
    right(run.task, run.model, length=12)

`saccade demo lengths` trains them, and the lesson of that name shows them. Both take the same steps, whatever the machine, until
the one with attention has reached its score: a comparison of two that were stopped by the clock would compare nothing.
"""

from pathlib import Path
from random import Random

from saccade.data import Example, write_examples
from saccade.data.samples import get_sample
from saccade.data.samples.number_words import MAX_NUMBERS_PER_ROW, make_count_row
from saccade.models.model import Model
from saccade.tasks.base import Task
from saccade.tasks.predict import predict
from saccade.training.prepare import Job

DECODER_CONFIGS = {  # name of a run -> how it writes
    "lengths-attention": {"decoder": "bahdanau", "mechanism": "additive"},
    "lengths-fixed": {"decoder": "sutskever"},
}
RUN_DESCRIPTIONS = {
    "lengths-attention": "a GRU that looks back at every word it read (Bahdanau 2014)",
    "lengths-fixed": "the same, with one vector for all it read (Sutskever 2014)",
}
MODEL_CONFIG = {"width": 96, "layers": 1, "cell": "gru", "dropout": 0.0}
TASK_CONFIG = {"tokenizer": "words", "metric": "exact_match", "label_smoothing": 0.0}
TRAIN_CONFIG = {"batch_tokens": 2048, "lr": 4e-3, "max_eval_examples": 300}
DEFAULT_EPOCHS, MAX_EPOCHS = 4, 16  # passes through the data at first, and when they are doubled no more
TARGET_ACCURACY = (
    0.95  # of sixteen numbers, right and in their place: below that the reader with attention is undertrained
)
DATA_FILE = "counts.jsonl"
TEXTS_PER_LENGTH = 40  # of each length that is asked about


def make_jobs(out: Path, minutes: float = 0.0, epochs: int = DEFAULT_EPOCHS) -> dict[str, Job]:
    """What is trained, by the name of its run; the rows of numbers are written beside the runs. 0 minutes: to the end."""
    entry = get_sample("counts")
    out.mkdir(parents=True, exist_ok=True)
    write_examples(out / DATA_FILE, entry.make(entry.default_count, 0))
    train = {**TRAIN_CONFIG, "epochs": epochs, "max_minutes": minutes / len(DECODER_CONFIGS)}
    return {
        name: Job(
            "translate",
            (str(out / DATA_FILE),),
            "rnn",
            model_fields=MODEL_CONFIG | how,
            task_fields=TASK_CONFIG,
            train_fields=train,
        )
        for name, how in DECODER_CONFIGS.items()
    }


def format_undertrained(accuracy: float) -> str:
    """What is wrong with a reader that has attention and gets this share of the longest rows right; nothing if it is trained.

    >>> format_undertrained(0.96)
    ''
    """
    if accuracy >= TARGET_ACCURACY:
        return ""
    return (
        f"undertrained: with attention {accuracy:.0%} of {MAX_NUMBERS_PER_ROW} numbers are right where {TARGET_ACCURACY:.0%} are reached in full "
        "training, so this comparison shows nothing yet"
    )


def sample_rows(length: int, count: int = TEXTS_PER_LENGTH) -> list[Example]:
    """Rows of one length that are drawn apart from those that were learnt."""
    random = Random(f"asked:{length}")
    return [Example(make_count_row(random, length)) for _ in range(count)]


def measure_accuracy(task: Task, model: Model, length: int) -> float:
    """The share of numbers that stand right and in their place, over rows of one length."""
    asked = sample_rows(length)
    found, _ = predict(task, model, asked)
    return sum(position_accuracy(example["target"], said) for example, said in zip(asked, found, strict=True)) / len(
        asked
    )


def position_accuracy(gold: str, predicted: str) -> float:
    """The share of the numbers of `gold` that stand in the same place of `said`.

    >>> position_accuracy("1 2 3 4", "1 2 4"), position_accuracy("7", "7 7")
    (0.5, 1.0)
    """
    wanted = gold.split()
    return sum(one == other for one, other in zip(wanted, predicted.split(), strict=False)) / len(wanted)
