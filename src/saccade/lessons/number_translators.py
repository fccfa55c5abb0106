"""Two models that translate rows of numbers, with attention and with one fixed vector, and their accuracy by length.

    for name, job in make_jobs(Path("demo")).items():
        ...                                     # train as usual, into demo/NAME
    run = open_run("demo/lengths-attention")
    measure_accuracy(run.task, run.model, length=12)

`saccade demo lengths` trains them, and the lesson `lengths` shows them. Both are trained for the same number of steps on any
machine, until the model with attention reaches its target accuracy: models stopped by the clock could not be compared.
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

DECODER_CONFIGS = {  # name of the run -> decoder
    "lengths-attention": {"decoder": "bahdanau", "mechanism": "additive"},
    "lengths-fixed": {"decoder": "sutskever"},
}
RUN_DESCRIPTIONS = {
    "lengths-attention": "a GRU that attends to all encoder states (Bahdanau 2014)",
    "lengths-fixed": "a GRU with one fixed vector for the source (Sutskever 2014)",
}
MODEL_CONFIG = {"width": 96, "layers": 1, "cell": "gru", "dropout": 0.0}
TASK_CONFIG = {"tokenizer": "words", "metric": "exact_match", "label_smoothing": 0.0}
TRAIN_CONFIG = {"batch_tokens": 2048, "lr": 4e-3, "max_eval_examples": 300}
DEFAULT_EPOCHS, MAX_EPOCHS = 4, 16  # epochs of the first attempt, and the most after doubling
TARGET_ACCURACY = (
    0.95  # share of correct numbers in rows of sixteen, below which the model with attention is undertrained
)
DATA_FILE = "counts.jsonl"
TEXTS_PER_LENGTH = 40  # test examples of each length


def make_jobs(out: Path, minutes: float = 0.0, epochs: int = DEFAULT_EPOCHS) -> dict[str, Job]:
    """The training jobs by run name; writes their data file into `out`. `minutes` limits the training time, 0 does not."""
    sample = get_sample("counts")
    out.mkdir(parents=True, exist_ok=True)
    write_examples(out / DATA_FILE, sample.make(sample.default_count, 0))
    train = {**TRAIN_CONFIG, "epochs": epochs, "max_minutes": minutes / len(DECODER_CONFIGS)}
    return {
        name: Job(
            "translate",
            (str(out / DATA_FILE),),
            "rnn",
            model_fields=MODEL_CONFIG | decoder,
            task_fields=TASK_CONFIG,
            train_fields=train,
        )
        for name, decoder in DECODER_CONFIGS.items()
    }


def format_undertrained(accuracy: float) -> str:
    """What is wrong with a model with attention that has this accuracy on the longest rows; empty if it is trained.

    >>> format_undertrained(0.96)
    ''
    """
    if accuracy >= TARGET_ACCURACY:
        return ""
    return (
        f"undertrained: with attention {accuracy:.0%} of {MAX_NUMBERS_PER_ROW} numbers are correct, and full training reaches "
        f"{TARGET_ACCURACY:.0%}, so this comparison is not meaningful yet"
    )


def sample_rows(length: int, count: int = TEXTS_PER_LENGTH) -> list[Example]:
    """Test rows of one length, drawn independently of the training data."""
    random = Random(f"asked:{length}")
    return [Example(make_count_row(random, length)) for _ in range(count)]


def measure_accuracy(task: Task, model: Model, length: int) -> float:
    """Mean share of numbers that are correct at their position, over rows of one length."""
    examples = sample_rows(length)
    predictions, _ = predict(task, model, examples)
    pairs = zip(examples, predictions, strict=True)
    return sum(position_accuracy(example["target"], predicted) for example, predicted in pairs) / len(examples)


def position_accuracy(gold: str, predicted: str) -> float:
    """The share of the numbers of `gold` that `predicted` has at the same position.

    >>> position_accuracy("1 2 3 4", "1 2 4"), position_accuracy("7", "7 7")
    (0.5, 1.0)
    """
    numbers = gold.split()
    return sum(a == b for a, b in zip(numbers, predicted.split(), strict=False)) / len(numbers)
