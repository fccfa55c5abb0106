"""Baseline: the Trainer of transformers on classification and tagging, with the settings of its own task guides.

It is trained twice: for two epochs, as the guides do, which are over early; and for as many epochs as fit into the time, as a
user with 40 minutes would.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

GUIDE = {"learning_rate": 2e-5, "per_device_train_batch_size": 16, "weight_decay": 0.01}
EPOCHS = 2  # as in both guides
TIMED_STEPS = 60  # steps that are timed to estimate how many fit into the time
SOURCES = {
    "label": "the task guide on text classification in its documentation",
    "tag": "the task guide on token classification in its documentation",
}
IGNORED = -100  # the label of a token that is not the first of its word


def make_baselines(task: str) -> list[tuple[str, dict[str, Any], Any]]:
    """(name, settings, training function) of both variants."""
    settings = {"from": SOURCES[task], **GUIDE, "max_length": 256}
    recipe = {"label": LabelRecipe, "tag": TagRecipe}[task]
    return [
        ("Trainer, two epochs", {**settings, "epochs": EPOCHS}, partial(train, recipe, fill_time=False)),
        ("Trainer, all the time", {**settings, "epochs": "as many as fit"}, partial(train, recipe, fill_time=True)),
    ]


@dataclass
class LabelRecipe:
    """Text classification: model, tokenizer and collator of the guide."""

    job: Any
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding

        self.names = sorted({example["label"] for example in self.job.splits.train.examples})
        self.tokenizer = AutoTokenizer.from_pretrained(self.job.weights)
        load = AutoModelForSequenceClassification.from_pretrained
        self.model = load(self.job.weights, num_labels=len(self.names))
        self.collate = DataCollatorWithPadding(self.tokenizer)

    def encode(self, examples: Sequence[Any], *, labels: bool) -> list[dict[str, Any]]:
        encoding = self.tokenizer([example["text"] for example in examples], truncation=True, max_length=256)
        rows = [{key: encoding[key][i] for key in encoding} for i in range(len(examples))]
        if labels:
            for row, example in zip(rows, examples, strict=True):
                row["label"] = self.names.index(example["label"])
        return rows

    def decode(self, examples: Sequence[Any], logits: list[torch.Tensor]) -> list[str]:
        return [self.names[int(row.argmax())] for row in logits]


@dataclass
class TagRecipe:
    """Token classification: the label of a word is that of its first token."""

    job: Any
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        from transformers import AutoModelForTokenClassification, AutoTokenizer, DataCollatorForTokenClassification

        self.names = sorted({tag for example in self.job.splits.train.examples for tag in example["tags"]})
        self.tokenizer = AutoTokenizer.from_pretrained(self.job.weights)
        load = AutoModelForTokenClassification.from_pretrained
        self.model = load(self.job.weights, num_labels=len(self.names))
        self.collate = DataCollatorForTokenClassification(self.tokenizer)

    def encode(self, examples: Sequence[Any], *, labels: bool) -> list[dict[str, Any]]:
        rows = []
        for example in examples:
            encoding = self._tokenize(example)
            row = {key: encoding[key] for key in encoding}
            if labels:
                word_ids, tags = encoding.word_ids(), [self.names.index(tag) for tag in example["tags"]]
                row["labels"] = [IGNORED] * len(word_ids)
                for position in first_tokens(word_ids):
                    row["labels"][position] = tags[word_ids[position]]
            rows.append(row)
        return rows

    def _tokenize(self, example: Any) -> Any:
        return self.tokenizer(example["words"], is_split_into_words=True, truncation=True, max_length=256)

    def decode(self, examples: Sequence[Any], logits: list[torch.Tensor]) -> list[list[str]]:
        """The predicted tag of each word; a word that was truncated is tagged O."""
        predictions = []
        for example, row in zip(examples, logits, strict=True):
            tags, word_ids = ["O"] * len(example["words"]), self._tokenize(example).word_ids()
            for position in first_tokens(word_ids):
                tags[word_ids[position]] = self.names[int(row[position].argmax())]
            predictions.append(tags)
        return predictions


def first_tokens(word_ids: Sequence[int | None]) -> list[int]:
    """The positions of the first token of each word.

    >>> first_tokens([None, 0, 0, 1, 2, 2, None])
    [1, 3, 4]
    """
    return [i for i, word in enumerate(word_ids) if word is not None and (i == 0 or word_ids[i - 1] != word)]


def train(recipe_class: type, job: Any, *, fill_time: bool) -> Iterator[tuple[float, list[Any]]]:
    """Train until the last time limit or the last epoch; yields (minutes, predictions) at each limit and at the end."""
    from transformers import set_seed

    max_steps = -1  # as many as the epochs have
    if fill_time:
        set_seed(0)
        max_steps = estimate_steps(recipe_class(job), job)
    set_seed(0)
    recipe = recipe_class(job)
    test = job.splits.test.examples
    clock = _make_clock(job.minutes, lambda: recipe.decode(test, predict(recipe, test)))
    _make_trainer(recipe, job.out, max_steps, [clock]).train()
    yield from clock.predictions
    if (
        not clock.predictions or clock.predictions[-1][0] < clock.minutes() - 0.05
    ):  # it ended before the last time limit
        yield clock.minutes(), recipe.decode(test, predict(recipe, test))


def estimate_steps(recipe: Any, job: Any) -> int:
    """The number of steps that fit into the time, estimated from TIMED_STEPS after a warmup of the same length."""
    seconds = 0.0
    for _ in range(2):
        trainer = _make_trainer(recipe, job.out, TIMED_STEPS, [])
        start = time.monotonic()
        trainer.train()
        seconds = time.monotonic() - start
    return max(1, int(60 * job.minutes[-1] / (seconds / TIMED_STEPS)))


def _make_trainer(recipe: Any, out: Path, max_steps: int, callbacks: list[Any]) -> Any:
    from transformers import Trainer, TrainingArguments

    quiet: dict[str, Any] = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True, "use_cpu": True}
    settings = {**GUIDE, "num_train_epochs": EPOCHS, "max_steps": max_steps, "seed": 0, "logging_strategy": "no"}
    arguments = TrainingArguments(output_dir=str(out), **settings, **quiet)
    rows = recipe.encode(recipe.job.splits.train.examples, labels=True)
    return Trainer(
        recipe.model, arguments, train_dataset=rows, data_collator=recipe.collate, callbacks=callbacks or None
    )


def _make_clock(limits: Sequence[float], predict_test: Any) -> Any:
    """A callback that predicts at each time limit, with the clock stopped, and ends the training at the last one."""
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.limits, self.predictions = list(limits), []
            self.start, self.end, self.paused = time.monotonic(), 0.0, 0.0

        def minutes(self) -> float:
            return ((self.end or time.monotonic()) - self.start - self.paused) / 60

        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            self.start = time.monotonic()

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if self.limits and self.minutes() >= self.limits[0]:
                pause_start, minutes = time.monotonic(), self.minutes()
                self.limits.pop(0)
                self.predictions.append((minutes, predict_test()))
                self.paused += time.monotonic() - pause_start
            control.should_training_stop = control.should_training_stop or not self.limits

        def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            self.end = time.monotonic()

    return Clock()


@torch.inference_mode()
def predict(recipe: Any, examples: Sequence[Any], batch_size: int = 64) -> list[torch.Tensor]:
    """The logits of each example, in the order of the examples."""
    rows = recipe.encode(examples, labels=False)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]["input_ids"]))
    logits: dict[int, torch.Tensor] = {}
    was_training = recipe.model.training
    recipe.model.eval()
    for start in range(0, len(order), batch_size):
        indices = order[start : start + batch_size]
        batch = recipe.tokenizer.pad([rows[i] for i in indices], return_tensors="pt")
        logits |= dict(zip(indices, recipe.model(**batch).logits, strict=True))
    recipe.model.train(was_training)
    return [logits[i] for i in range(len(rows))]
