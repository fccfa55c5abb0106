"""Flag names of other training tools (the Hugging Face Trainer, fairseq, spaCy, Lightning) and the flags of `saccade train` that do the same.

A setting of the table [train] may be given without its table: `--lr 1e-3` is `--train.lr 1e-3`. A flag of another tool is answered
with ours: `--learning-rate` is an error that names `--train.lr`, because its meaning may differ in a detail.
"""

import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields

from saccade.errors import UsageError

SYNONYMS = {  # name in another tool -> our flag, or a sentence where there is none
    "accumulate-grad-batches": "--train.micro-batches",
    "adam-beta1": "The betas of AdamW are fixed at 0.9 and 0.98.",
    "adam-beta2": "The betas of AdamW are fixed at 0.9 and 0.98.",
    "batch-tokens": "--train.batch-tokens",
    "bf16": "--train.precision bfloat16",
    "checkpoint-every": "--train.save-every",
    "clip-norm": "--train.clip-grad-norm",
    "cpu": "--train.device cpu",
    "dataset": "--data",
    "dataset-name": "--data",
    "do-train": "`saccade train` trains and evaluates; leave the flag out.",
    "do-eval": "`saccade train` trains and evaluates; leave the flag out.",
    "early-stopping-patience": "--train.patience",
    "eval-steps": "--train.eval-every",
    "fp16": "--train.precision bfloat16",
    "gradient-accumulation": "--train.micro-batches",
    "gradient-accumulation-steps": "--train.micro-batches",
    "gradient-clip-val": "--train.clip-grad-norm",
    "label-smoothing": "--task.label-smoothing",
    "label-smoothing-factor": "--task.label-smoothing",
    "learning-rate": "--train.lr",
    "logging-steps": "The loss of every step is in metrics.jsonl of the run; leave the flag out.",
    "lr-scheduler": "--train.schedule",
    "lr-scheduler-type": "--train.schedule",
    "max-epochs": "--train.epochs",
    "max-grad-norm": "--train.clip-grad-norm",
    "max-length": "--task.max-tokens",
    "max-seq-length": "--task.max-tokens",
    "max-tokens": "--task.max-tokens",
    "max-update": "--train.max-steps",
    "model-name": "--model",
    "model-name-or-path": "--model",
    "n-epochs": "--train.epochs",
    "no-cuda": "--train.device cpu",
    "num-epochs": "--train.epochs",
    "num-train-epochs": "--train.epochs",
    "num-workers": "Batches are made in the training process itself, so there are no data loader workers; leave the flag out.",
    "dataloader-num-workers": "Batches are made in the training process itself, so there are no data loader workers; leave the flag out.",
    "output": "--out",
    "output-dir": "--out",
    "overwrite-output-dir": "A finished run is never overwritten; give another directory with --out.",
    "per-device-train-batch-size": "--train.batch-size",
    "random-seed": "--train.seed",
    "resume": "Run the same command again to resume; leave the flag out.",
    "resume-from-checkpoint": "Run the same command again to resume; leave the flag out.",
    "save-dir": "--out",
    "save-steps": "--train.save-every",
    "source-lang": "The columns of the file say what is the source: --columns source=en,target=de",
    "steps": "--train.max-steps",
    "target-lang": "The columns of the file say what is the target: --columns source=en,target=de",
    "tokenizer-name": "--task.tokenizer",
    "train-batch-size": "--train.batch-size",
    "train-file": "--data",
    "update-freq": "--train.micro-batches",
    "validation-file": "--data FILE FILE: a file named dev, valid or test is held out",
    "warmup-steps": "--train.warmup",
    "warmup-ratio": "--train.warmup",
    "wd": "--train.weight-decay",
}


def normalize_flags(command: str, argv: Sequence[str], flag_class: type) -> list[str]:
    """The arguments of a command that trains, with settings under their full flags; ends the command where a flag is another tool's."""
    from saccade.training.config import Config

    settings = [item.name for item in fields(Config)]
    try:
        return expand_train_flags(argv, settings, [item.name for item in fields(flag_class)])
    except UsageError as error:
        print(f"saccade {command}: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def expand_train_flags(argv: Sequence[str], settings: Collection[str], own: Collection[str]) -> list[str]:
    """Settings of training that were given without their table, with it; a flag of another tool is refused with ours.

    `settings` are the fields of the table [train], `own` the flags of the command itself.

    >>> expand_train_flags(["label", "--lr", "1e-3", "--batch-size=8", "--out", "x"], ("lr", "batch_size"), ("out",))
    ['label', '--train.lr', '1e-3', '--train.batch-size=8', '--out', 'x']
    >>> expand_train_flags(["label", "--num_train_epochs", "3"], ("epochs",), ("out",))
    Traceback (most recent call last):
        ...
    saccade.errors.UsageError: there is no flag --num_train_epochs; use --train.epochs
    """
    mine = {name.replace("_", "-") for name in own}
    known = {name.replace("_", "-") for name in settings} - mine
    out: list[str] = []
    for word in argv:
        name, equals, value = word.partition("=")
        bare = name[2:].replace("_", "-") if name.startswith("--") else ""
        if bare in known or bare.removeprefix("no-") in known:
            out.append(f"--train.{bare}{equals}{value}")
            continue
        if bare in SYNONYMS and bare not in mine:
            raise UsageError(f"there is no flag {name}; {describe_synonym(bare)}")
        out.append(word)
    return out


def check_dotted_flags(dotted: Iterable[str], known: Collection[str]) -> None:
    """Refuse `--train.learning-rate` with `--train.lr`; `known` are the names that exist, such as train.lr."""
    for word in dotted:
        name = word.partition("=")[0][2:].replace("_", "-") if word.startswith("--") else ""
        last = name.rpartition(".")[2]
        exists = {one.replace("_", "-") for one in known}
        if name and not {name, name.replace(".no-", ".")} & exists and last in SYNONYMS:
            raise UsageError(f"there is no flag --{name}; {describe_synonym(last)}")


def describe_synonym(name: str) -> str:
    """
    >>> describe_synonym("learning-rate"), describe_synonym("resume")
    ('use --train.lr', 'Run the same command again to resume; leave the flag out.')
    """
    found = SYNONYMS[name]
    return f"use {found}" if found.startswith("--") else found
