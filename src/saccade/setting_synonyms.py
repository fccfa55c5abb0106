"""Settings by their names in other tools (Hugging Face Trainer, fairseq, spaCy, Lightning), for flags and for Python keywords.

This module imports nothing from the rest of saccade, so that every package can use it.
"""

_NO_WORKERS = "Batches are created in the training process, without data loader workers; leave it out."
_FIXED_BETAS = "The betas of AdamW are fixed at 0.9 and 0.98; leave it out."
_ALWAYS_EVALUATES = "`saccade train` trains and evaluates; leave it out."
SYNONYMS: dict[str, str] = {  # name in another tool -> flag of saccade, or a sentence if there is none
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
    "logging-steps": "The loss of every step is in metrics.jsonl of the run; leave it out.",
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
    "report-to": "Training writes report.html, metrics.jsonl and config.toml into the run; leave it out.",
    "resume": "Run the same command again to resume; leave it out.",
    "resume-from-checkpoint": "Run the same command again to resume; leave it out.",
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
GENERATION_SYNONYMS: dict[str, str] = {  # keyword of another library's generate -> field of GenerationConfig
    "beam_size": "beams",
    "max_gen_len": "max_new_tokens",
    "max_length": "max_new_tokens",
    "max_tokens": "max_new_tokens",
    "min_length": "min_new_tokens",
    "num_beam_groups": "beam_groups",
    "num_beams": "beams",
    "num_return_sequences": "n_best",
    "penalty_alpha": "contrastive_alpha",
    "random_seed": "seed",
    "stop_strings": "stop",
    "streamer": "stream",
    "temp": "temperature",
}
KEYWORD_TABLES = {
    "model": "architecture",
    "task": "task",
    "train": "train",
}  # table of a flag -> keyword of saccade.train


def describe_synonym(name: str) -> str:
    """The end of an error message about a flag of another tool.

    >>> describe_synonym("learning-rate"), describe_synonym("resume")
    ('; use --train.lr.', '. Run the same command again to resume; leave it out.')
    """
    equivalent = SYNONYMS[name]
    return f"; use {equivalent}." if equivalent.startswith("--") else f". {equivalent}"


def as_keyword(flag: str) -> str:
    """A flag of `saccade train` as a keyword of `saccade.train`.

    >>> as_keyword("--train.lr"), as_keyword("--model.width"), as_keyword("--train.device cpu"), as_keyword("--out")
    ('train={"lr": ...}', 'architecture={"width": ...}', 'train={"device": "cpu"}', 'out=...')
    """
    name, _, value = flag.removeprefix("--").replace("-", "_").partition(" ")
    table, dot, setting = name.partition(".")
    value = f'"{value}"' if value and not value.isupper() else "..."
    return f'{KEYWORD_TABLES[table]}={{"{setting}": {value}}}' if dot else f"{name}={value}"


def find_equivalent(name: str, table: str) -> str:
    """The setting of a table that another tool calls by this name; "" if there is none.

    >>> find_equivalent("learning_rate", "train"), find_equivalent("hidden_size", "model"), find_equivalent("lr", "train")
    ('lr', 'width', '')
    """
    flag, _, value = SYNONYMS.get(name.replace("_", "-"), "").partition(" ")
    prefix = f"--{table}."
    return flag.removeprefix(prefix).replace("-", "_") if flag.startswith(prefix) and not value else ""
