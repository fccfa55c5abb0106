"""Flags of other training tools (Hugging Face Trainer, fairseq, spaCy, Lightning) and their equivalents in saccade.

A setting of the table [train] may be given without its table: `--lr 1e-3` is `--train.lr 1e-3`. A flag of another tool is an
error that names the flag of saccade, because the meaning may differ in details: `--learning-rate` names `--train.lr`.
"""

import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from difflib import get_close_matches

from saccade.errors import UsageError

_NO_WORKERS = "Batches are created in the training process, without data loader workers; leave the flag out."
_FIXED_BETAS = "The betas of AdamW are fixed at 0.9 and 0.98; leave the flag out."
_ALWAYS_EVALUATES = "`saccade train` trains and evaluates; leave the flag out."
SYNONYMS = {  # name in another tool -> flag of saccade, or a sentence if there is none
    "accumulate-grad-batches": "--train.micro-batches",
    "adam-beta1": _FIXED_BETAS,
    "adam-beta2": _FIXED_BETAS,
    "amp": "--train.precision bfloat16",
    "batch-tokens": "--train.batch-tokens",
    "betas": _FIXED_BETAS,
    "bf16": "--train.precision bfloat16",
    "checkpoint": "--model RUN",
    "checkpoint-every": "--train.save-every",
    "clip-norm": "--train.clip-grad-norm",
    "cpu": "--train.device cpu",
    "cuda": "--train.device cuda",
    "d-model": "--model.width",
    "dataloader-num-workers": _NO_WORKERS,
    "dataset": "--data",
    "dataset-name": "--data",
    "dataset-path": "--data",
    "devices": "--processes",
    "do-eval": _ALWAYS_EVALUATES,
    "do-predict": "Use a separate command for predictions: saccade predict RUN --data FILE",
    "do-train": _ALWAYS_EVALUATES,
    "early-stopping": "--train.patience",
    "early-stopping-patience": "--train.patience",
    "ema-decay": "--train.ema",
    "embed-dim": "--model.width",
    "epoch": "--train.epochs",
    "eval-batch-size": "--train.batch-size",
    "eval-steps": "--train.eval-every",
    "eval-strategy": "--train.eval-every",
    "evaluate-every": "--train.eval-every",
    "evaluation-strategy": "--train.eval-every",
    "fp16": "--train.precision bfloat16",
    "freeze": "--train.freeze-layers",
    "gpu": "--train.device cuda",
    "gpus": "--processes",
    "grad-accum-steps": "--train.micro-batches",
    "grad-clip": "--train.clip-grad-norm",
    "gradient-accumulation": "--train.micro-batches",
    "gradient-accumulation-steps": "--train.micro-batches",
    "gradient-clip-val": "--train.clip-grad-norm",
    "gradient-clipping": "--train.clip-grad-norm",
    "hidden-dim": "--model.width",
    "hidden-size": "--model.width",
    "label-smoothing": "--task.label-smoothing",
    "label-smoothing-factor": "--task.label-smoothing",
    "layerwise-lr-decay": "--train.layer-decay",
    "learning-rate": "--train.lr",
    "logging-steps": "The loss of every step is in metrics.jsonl of the run; leave the flag out.",
    "lr-schedule": "--train.schedule",
    "lr-scheduler": "--train.schedule",
    "lr-scheduler-type": "--train.schedule",
    "max-epochs": "--train.epochs",
    "max-grad-norm": "--train.clip-grad-norm",
    "max-length": "--task.max-tokens",
    "max-seq-length": "--task.max-tokens",
    "max-source-length": "--task.max-tokens",
    "max-time": "--train.max-minutes",
    "max-tokens": "--task.max-tokens",
    "max-update": "--train.max-steps",
    "mixed-precision": "--train.precision bfloat16",
    "model-name": "--model",
    "model-name-or-path": "--model",
    "n-epochs": "--train.epochs",
    "n-heads": "--model.heads",
    "n-layers": "--model.layers",
    "no-cuda": "--train.device cpu",
    "nproc-per-node": "--processes",
    "num-attention-heads": "--model.heads",
    "num-epochs": "--train.epochs",
    "num-heads": "--model.heads",
    "num-hidden-layers": "--model.layers",
    "num-layers": "--model.layers",
    "num-train-epochs": "--train.epochs",
    "num-train-steps": "--train.max-steps",
    "num-workers": _NO_WORKERS,
    "optim": "--train.optimizer",
    "optimizer-type": "--train.optimizer",
    "output": "--out",
    "output-dir": "--out",
    "output-path": "--out",
    "overwrite-output-dir": "A finished run is never overwritten; give another directory with --out.",
    "per-device-eval-batch-size": "--train.batch-size",
    "per-device-train-batch-size": "--train.batch-size",
    "random-seed": "--train.seed",
    "report-to": "Training writes report.html, metrics.jsonl and config.toml into the run; leave the flag out.",
    "resume": "Run the same command again to resume; leave the flag out.",
    "resume-from-checkpoint": "Run the same command again to resume; leave the flag out.",
    "save-dir": "--out",
    "save-interval": "--train.save-every",
    "save-steps": "--train.save-every",
    "save-strategy": "--train.save-every",
    "scheduler": "--train.schedule",
    "source-lang": "Name the source column instead: --columns source=en,target=de",
    "steps": "--train.max-steps",
    "target-lang": "Name the target column instead: --columns source=en,target=de",
    "time-limit": "--train.max-minutes",
    "tokenizer-name": "--task.tokenizer",
    "train-batch-size": "--train.batch-size",
    "train-data": "--data",
    "train-file": "--data",
    "training-steps": "--train.max-steps",
    "update-freq": "--train.micro-batches",
    "use-cpu": "--train.device cpu",
    "val-check-interval": "--train.eval-every",
    "validation-file": "Give it with --data; a file named dev, valid or test is held out: --data train.tsv dev.tsv",
    "vocab-size": "--model.vocab",
    "warmup-proportion": "--train.warmup",
    "warmup-ratio": "--train.warmup",
    "warmup-steps": "--train.warmup",
    "warmup-updates": "--train.warmup",
    "wd": "--train.weight-decay",
}


def normalize_flags(command: str, argv: Sequence[str], flag_class: type) -> list[str]:
    """The arguments of a training command, with settings under their full flags; exits with an error on an unknown flag."""
    from saccade.training.config import Config

    settings = [item.name for item in fields(Config)]
    command_flags = [item.name for item in fields(flag_class)]
    try:
        return expand_train_flags(argv, settings, command_flags)
    except UnknownFlag as error:
        task = argv[0] if argv and not argv[0].startswith("-") else "TASK"
        hint = describe_unknown_flag(error.flag, [*command_flags, *settings])
        print(f"saccade {command}: {error}{hint} saccade {command} {task} --help lists all flags.", file=sys.stderr)
        raise SystemExit(2) from None
    except UsageError as error:
        print(f"saccade {command}: {error}", file=sys.stderr)
        raise SystemExit(2) from None


class UnknownFlag(UsageError):
    """A flag that is neither one of saccade nor in SYNONYMS."""

    def __init__(self, flag: str):
        super().__init__(f"there is no flag {flag}")
        self.flag = flag


def expand_train_flags(argv: Sequence[str], settings: Collection[str], own: Collection[str]) -> list[str]:
    """Expand training settings to their full flags; a flag of another tool is an error that names the flag of saccade.

    `settings` are the fields of the table [train], `own` the flags of the command itself.

    >>> expand_train_flags(["label", "--lr", "1e-3", "--batch-size=8", "--out", "x"], ("lr", "batch_size"), ("out",))
    ['label', '--train.lr', '1e-3', '--train.batch-size=8', '--out', 'x']
    >>> expand_train_flags(["label", "--num_train_epochs", "3"], ("epochs",), ("out",))
    Traceback (most recent call last):
        ...
    saccade.errors.UsageError: there is no flag --num_train_epochs; use --train.epochs.
    """
    command_flags = {name.replace("_", "-") for name in own}
    train_flags = {name.replace("_", "-") for name in settings} - command_flags
    expanded: list[str] = []
    for word in argv:
        name, equals, value = word.partition("=")
        bare = name[2:].replace("_", "-") if name.startswith("--") else ""
        if bare in train_flags or bare.removeprefix("no-") in train_flags:
            expanded.append(f"--train.{bare}{equals}{value}")
        elif not bare or bare in command_flags or bare == "help" or "." in bare:
            expanded.append(word)
        elif bare in SYNONYMS:
            raise UsageError(f"there is no flag {name}{describe_synonym(bare)}")
        else:
            raise UnknownFlag(name)
    return expanded


def describe_unknown_flag(flag: str, known: Collection[str]) -> str:
    """The end of an error message about an unknown flag: a setting of that name in another table, or the nearest name.

    >>> describe_unknown_flag("--width", ("out", "lr")), describe_unknown_flag("--ot", ("out", "lr"))
    ('; use --model.width.', '; did you mean --out?')
    >>> describe_unknown_flag("--lerning-rate", ("out", "lr"))
    '; use --train.lr.'
    """
    from saccade.models.registry import FAMILIES
    from saccade.tasks.registry import TASKS

    bare = flag.removeprefix("--").replace("_", "-")
    tables = {"task": [task.Config for task in TASKS], "model": [family.config_class for family in FAMILIES]}
    settings = {
        item.name.replace("_", "-"): f"--{table}.{item.name.replace('_', '-')}"
        for table, classes in tables.items()
        for config_class in classes
        for item in fields(config_class)
    }
    if bare in settings:
        return f"; use {settings[bare]}."
    plain = {name.replace("_", "-"): f"--{name.replace('_', '-')}" for name in known}
    near = get_close_matches(bare, [*plain, *settings, *SYNONYMS], n=1)
    if not near:
        return "."
    if near[0] in plain or near[0] in settings:
        return f"; did you mean {plain.get(near[0]) or settings[near[0]]}?"
    return describe_synonym(near[0])


def check_dotted_flags(dotted: Iterable[str], known: Collection[str]) -> None:
    """Raise a UsageError for a dotted flag of another tool, such as --train.learning-rate, unless it is in `known` (train.lr)."""
    for word in dotted:
        name = word.partition("=")[0][2:].replace("_", "-") if word.startswith("--") else ""
        last = name.rpartition(".")[2]
        exists = {item.replace("_", "-") for item in known}
        if name and not {name, name.replace(".no-", ".")} & exists and last in SYNONYMS:
            raise UsageError(f"there is no flag --{name}{describe_synonym(last)}")


def describe_synonym(name: str) -> str:
    """The end of an error message about a flag of another tool.

    >>> describe_synonym("learning-rate"), describe_synonym("resume")
    ('; use --train.lr.', '. Run the same command again to resume; leave the flag out.')
    """
    equivalent = SYNONYMS[name]
    return f"; use {equivalent}." if equivalent.startswith("--") else f". {equivalent}"
