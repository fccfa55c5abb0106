"""The Trainer of transformers on classification and tagging, as its own task guides set it up, scored while it trains.

Twice: once as the guides say, two epochs, which are soon over; and once with as many epochs as fill the time, as a user with
40 minutes would do.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

GUIDE = {"learning_rate": 2e-5, "per_device_train_batch_size": 16, "weight_decay": 0.01}
EPOCHS = 2  # of both guides
PACE = 60  # steps by which the number of steps that fill the time is foreseen
SOURCES = {
    "label": "the task guide Text classification of its documentation",
    "tag": "the task guide Token classification of its documentation",
}
UNASKED = -100  # a token that speaks for no word


def rivals(task: str) -> list[tuple[str, dict[str, Any], Any]]:
    """(name, settings, how it is trained) of both."""
    said = {"from": SOURCES[task], **GUIDE, "max_length": 256}
    kinds = {"label": Labels, "tag": Tags}
    return [
        ("Trainer, two epochs", {**said, "epochs": EPOCHS}, partial(train, kinds[task], fill=False)),
        ("Trainer, all the time", {**said, "epochs": "as many as fit"}, partial(train, kinds[task], fill=True)),
    ]


@dataclass
class Labels:
    """Texts with a label."""

    asked: Any
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding

        self.names = sorted({example["label"] for example in self.asked.splits.train.examples})
        self.tokenizer = AutoTokenizer.from_pretrained(self.asked.weights)
        make = AutoModelForSequenceClassification.from_pretrained
        self.model = make(self.asked.weights, num_labels=len(self.names))
        self.collate = DataCollatorWithPadding(self.tokenizer)

    def rows(self, examples: Sequence[Any], *, gold: bool) -> list[dict[str, Any]]:
        read = self.tokenizer([example["text"] for example in examples], truncation=True, max_length=256)
        found = [{key: read[key][i] for key in read} for i in range(len(examples))]
        if gold:
            found = [row | {"label": self.names.index(one["label"])} for row, one in zip(found, examples, strict=True)]
        return found

    def answers(self, examples: Sequence[Any], scores: list[torch.Tensor]) -> list[str]:
        return [self.names[int(row.argmax())] for row in scores]


@dataclass
class Tags:
    """Words with tags; the first token of a word speaks for it."""

    asked: Any
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        from transformers import AutoModelForTokenClassification, AutoTokenizer, DataCollatorForTokenClassification

        self.names = sorted({tag for example in self.asked.splits.train.examples for tag in example["tags"]})
        self.tokenizer = AutoTokenizer.from_pretrained(self.asked.weights)
        make = AutoModelForTokenClassification.from_pretrained
        self.model = make(self.asked.weights, num_labels=len(self.names))
        self.collate = DataCollatorForTokenClassification(self.tokenizer)

    def rows(self, examples: Sequence[Any], *, gold: bool) -> list[dict[str, Any]]:
        found = []
        for example in examples:
            read = self.tokenizer(example["words"], is_split_into_words=True, truncation=True, max_length=256)
            row = {key: read[key] for key in read}
            if gold:
                tags, first = [self.names.index(tag) for tag in example["tags"]], set(firsts(read.word_ids()))
                row["labels"] = [
                    tags[word] if word is not None and place in first else UNASKED
                    for place, word in enumerate(read.word_ids())
                ]
            found.append(row)
        return found

    def answers(self, examples: Sequence[Any], scores: list[torch.Tensor]) -> list[list[str]]:
        """The tag of each word; a word that was cut off has none, which is O."""
        found = []
        for example, row in zip(examples, scores, strict=True):
            read = self.tokenizer(example["words"], is_split_into_words=True, truncation=True, max_length=256)
            tags = ["O"] * len(example["words"])
            words = read.word_ids()
            for place in firsts(words):
                tags[words[place]] = self.names[int(row[place].argmax())]
            found.append(tags)
        return found


def firsts(words: Sequence[int | None]) -> list[int]:
    """The places at which a word begins.

    >>> firsts([None, 0, 0, 1, 2, 2, None])
    [1, 3, 4]
    """
    return [i for i, word in enumerate(words) if word is not None and (i == 0 or words[i - 1] != word)]


def train(kind: type, asked: Any, *, fill: bool) -> Iterator[tuple[float, list[Any]]]:
    """Train to the last of the times, or to the end of the epochs; the answers at each time, and at the end."""
    from transformers import set_seed

    steps = -1
    if fill:
        set_seed(0)
        steps = foreseen(kind(asked), asked)
    set_seed(0)
    made = kind(asked)
    test = asked.splits.test.examples
    clock = _clock(asked.minutes, lambda: made.answers(test, ask(made, test)))
    _trainer(made, asked.out, steps, [clock]).train()
    yield from clock.found
    if not clock.found or clock.found[-1][0] < clock.passed() - 0.05:  # it ended before the last of the times
        yield clock.passed(), made.answers(test, ask(made, test))


def foreseen(made: Any, asked: Any) -> int:
    """How many steps fill the time, told from PACE of them after as many to warm up."""
    spent = []
    for _ in range(2):
        trainer = _trainer(made, asked.out, PACE, [])
        began = time.monotonic()
        trainer.train()
        spent.append(time.monotonic() - began)
    return max(1, int(60 * asked.minutes[-1] / (spent[-1] / PACE)))


def _trainer(made: Any, out: Path, steps: int, callbacks: list[Any]) -> Any:
    from transformers import Trainer, TrainingArguments

    quiet: dict[str, Any] = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True, "use_cpu": True}
    told = {**GUIDE, "num_train_epochs": EPOCHS, "max_steps": steps, "seed": 0, "logging_strategy": "no"}
    arguments = TrainingArguments(output_dir=str(out), **told, **quiet)
    rows = made.rows(made.asked.splits.train.examples, gold=True)
    return Trainer(made.model, arguments, train_dataset=rows, data_collator=made.collate, callbacks=callbacks or None)


def _clock(minutes: Sequence[float], answers: Any) -> Any:
    """A callback that asks the model when a time has come, off the clock, and ends the training after the last."""
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.left, self.found = list(minutes), []
            self.began, self.ended, self.asking = time.monotonic(), 0.0, 0.0

        def passed(self) -> float:
            return ((self.ended or time.monotonic()) - self.began - self.asking) / 60

        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            self.began = time.monotonic()

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if self.left and self.passed() >= self.left[0]:
                now, stopped = time.monotonic(), self.passed()
                self.left.pop(0)
                self.found.append((stopped, answers()))
                self.asking += time.monotonic() - now
            control.should_training_stop = control.should_training_stop or not self.left

        def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            self.ended = time.monotonic()

    return Clock()


@torch.inference_mode()
def ask(made: Any, examples: Sequence[Any], size: int = 64) -> list[torch.Tensor]:
    """The scores of each example, in their order."""
    rows = made.rows(examples, gold=False)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]["input_ids"]))
    found: dict[int, torch.Tensor] = {}
    was = made.model.training
    made.model.eval()
    for start in range(0, len(order), size):
        some = order[start : start + size]
        batch = made.tokenizer.pad([rows[i] for i in some], return_tensors="pt")
        found |= dict(zip(some, made.model(**batch).logits, strict=True))
    made.model.train(was)
    return [found[i] for i in range(len(rows))]
