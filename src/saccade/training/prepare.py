"""Prepares a training run from a `Job`: reads the data, fits the task, builds or loads the model, resolves the settings."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch

from saccade.data import Example, inspect_data
from saccade.data.splits import Splits
from saccade.data.streaming.text import StreamedExamples
from saccade.data.streaming.token_shards import TokenShards
from saccade.errors import KeywordError, UsageError
from saccade.models.build import new
from saccade.models.check_weights import copy_weights
from saccade.models.family import Family
from saccade.models.load import load, read_family_and_config
from saccade.models.model import Model
from saccade.setting_synonyms import find_equivalent
from saccade.suggest import suggest
from saccade.tasks.base import Defaults, Task
from saccade.tasks.batches import BatchSource, make_batches, write_token_shards
from saccade.tasks.counterfactual_augment import AugmentedExamples, augment_examples
from saccade.tasks.learn_tokenizer import learn_tokenizer
from saccade.tasks.needs import check_fit, find_family
from saccade.tasks.registry import task_class
from saccade.tasks.runs.read_data import read_splits
from saccade.tasks.unlabeled import drop_unlabeled
from saccade.text.tokenizer import MAX_TEXT_CHARACTERS
from saccade.training.autocast import resolve_precision
from saccade.training.config import CHANGEABLE_ON_RESUME, Config

SECONDS_BETWEEN_MESSAGES = 5.0  # between progress messages


@dataclass(frozen=True)
class Job:
    """What to train, on what data. The three `*_fields` tables hold the settings given by the user; all others have defaults."""

    task: str
    data: tuple[str, ...] = ()  # files or directories; empty: the sample dataset of the task
    family: str = ""  # the family of a new model; empty: the default of the task
    columns: Mapping[str, str] = field(default_factory=dict)
    on_bad: str = "error"
    model_fields: Mapping[str, Any] = field(default_factory=dict)
    task_fields: Mapping[str, Any] = field(default_factory=dict)
    train_fields: Mapping[str, Any] = field(default_factory=dict)
    max_bad_fraction: float = 0.01  # maximum fraction of bad records that may be skipped
    model: str = ""  # a run, a model directory or a name on the hub to fine-tune; empty: a new model


@dataclass
class PreparedRun:
    """Everything that a training run needs, and the notes made while preparing it."""

    job: Job
    task: Task
    model: Model
    splits: Splits
    config: Config
    defaults: Defaults
    notes: list[str]
    token_shards: TokenShards | None = None  # tokens on disk, of a text that is too large for memory
    augmented_examples: AugmentedExamples | None = (
        None  # training examples with counterfactual augmentation, if switched on
    )

    @property
    def train_examples(self) -> Sequence[Example]:
        """The training examples, augmented if switched on."""
        return self.splits.train.examples if self.augmented_examples is None else self.augmented_examples.examples

    def make_batches(self, model: Model | None = None) -> BatchSource:
        """The training batches, for the prepared model or for a copy of it.

        A text that is too large for memory is read from the token shards, or, before they are written, from a sample of it.
        """
        config, examples = self.config, self.train_examples
        rows = config.batch_size or None
        if isinstance(examples, StreamedExamples) and self.token_shards is None:
            examples = examples.sample
        source = examples if self.token_shards is None else self.token_shards
        return make_batches(
            self.task, source, model or self.model, batch_tokens=config.batch_tokens, batch_size=rows, seed=config.seed
        )

    def write_token_shards(self, directory: Path) -> Iterator[str]:
        """Tokenize a text that is too large for memory into shards, which `make_batches` reads; yields progress messages."""
        texts = self.train_examples
        if not isinstance(texts, StreamedExamples):
            return
        progress = write_token_shards(self.task, texts, self.model, directory, digest=self.splits.digest)
        last_message_at = time.monotonic()
        yield f"tokenizing {len(texts):,} lines into {directory} (done once)"
        for tokens in progress:
            if isinstance(tokens, TokenShards):
                self.token_shards = tokens
                yield f"tokenized {len(tokens):,} tokens into {directory}"
            elif time.monotonic() - last_message_at > SECONDS_BETWEEN_MESSAGES:
                last_message_at = time.monotonic()
                yield f"tokenized {tokens:,} tokens so far"

    def resume_facts(self) -> dict[str, Any]:
        """What must be unchanged when a run resumes, by name."""
        facts: dict[str, Any] = {"task": self.task.name, "data": self.splits.digest, "family": self.model.family.name}
        facts |= {f"task.{key}": value for key, value in asdict(self.task.config).items()}
        facts |= {f"model.{key}": value for key, value in asdict(self.model.config).items()}
        facts |= {
            f"train.{key}": value for key, value in asdict(self.config).items() if key not in CHANGEABLE_ON_RESUME
        }
        facts |= {} if self.augmented_examples is None else {"augmentation": self.augmented_examples.resume_facts}
        return facts | {"labels": list(self.task.labels), "weights": self.job.model}


def prepare(job: Job) -> PreparedRun:
    """Read the data, fit the task to it, and build or load the model; deterministic for the same job."""
    kind = task_class(job.task)
    task: Task = kind(make_config(kind.Config, job.task_fields, f"task {job.task}"))
    is_stored = bool(job.model)
    _check_model(job, task)
    held_out = make_config(Config, job.train_fields, "train").held_out
    splits = read_splits(
        task, job.data, job.columns, on_bad=job.on_bad, max_bad_fraction=job.max_bad_fraction, held_out=held_out
    )
    task.fit(splits.train.examples)
    splits = drop_unlabeled(task, splits)
    _check_model(job, task)  # again, since the data decide whether the inputs are texts, images or recordings
    augmented = augment_examples(task, splits.train.examples)
    defaults = task.defaults(splits.train.examples, is_stored)
    fields_given = {**defaults.train, **job.train_fields, "test_size": splits.test_size}
    config = resolve_precision(make_config(Config, fields_given, "train"))
    if task.needs_unsplit_batch and config.micro_batches > 1:
        raise UsageError(
            f"{task.name} cannot split a step into micro-batches; drop train.micro_batches, or lower train.batch_size instead."
        )
    torch.manual_seed(config.seed)
    notes: list[str] = []
    if is_stored:
        model = copy_weights(
            load(job.model, head=task.needs.head, labels=task.labels or None, overrides=job.model_fields)
        )
        notes += str(model.report).split("\n")
    else:
        model = _build_model(job, task, defaults, splits.train.examples if augmented is None else augmented.examples)
        notes.append(f"new {model.family.name} model with {sum(p.numel() for p in model.parameters()):,} parameters")
    model.multi_label = task.multi_label
    task.attach_training_modules(model)
    augmentation_notes = [] if augmented is None else [augmented.note]
    if job.train_fields.get("precision") == "auto":
        notes.append(f"precision: {config.precision} (auto takes bfloat16 if the hardware supports it, else float32)")
    notes = [*_report_data(task, model, splits, job), *task.notes, *augmentation_notes, *notes]
    return PreparedRun(job, task, model, splits, config, defaults, notes, augmented_examples=augmented)


def _report_data(task: Task, model: Model, splits: Splits, job: Job) -> list[str]:
    """The lines of the data report: counts, labels, lengths, duplicates, and how many texts will be truncated."""
    roles, tokenizer = task.roles(job.data), model.tokenizer
    if tokenizer is None or task.is_text_stream or not any(role.kind in ("text", "texts", "words") for role in roles):
        return inspect_data(splits, roles).to_lines()
    name = next(role.name for role in roles if role.kind in ("text", "texts", "words"))
    has_multiple_texts = any(role.kind == "texts" for role in roles)

    def length(example: Example) -> int:
        if has_multiple_texts:  # the longest of several captions
            texts = [example[name]] if isinstance(example[name], str) else example[name]
            return max(len(tokenizer.encode(text, max_tokens=MAX_TEXT_CHARACTERS)) for text in texts)
        value, pair = example[name], next((example[key] for key in ("second", "question") if key in example), None)
        text = value if isinstance(value, str) else " ".join(value)
        return len(tokenizer.encode(text, pair, max_tokens=MAX_TEXT_CHARACTERS))  # a lower bound for longer texts

    limit = min(task.token_limit, model.max_positions or task.token_limit)
    return inspect_data(splits, roles, measure_length=length, max_length=limit if task.truncates else None).to_lines()


def make_config(config_class: type, values: Mapping[str, Any], config_name: str) -> Any:
    """A config with some of its fields set; an unknown name raises UsageError with the nearest known one."""
    known = [item.name for item in fields(config_class)]
    for name in values:
        if name not in known:
            equivalent = find_equivalent(name, config_name.split()[0])
            hint = f"use {equivalent!r}." if equivalent in known else suggest(name, known)
            raise KeywordError(f"{config_name} has no setting {name!r}; {hint}")
    return config_class(**values)


def make_model_config(family: Family, task: Task, defaults: Defaults, values: Mapping[str, Any]) -> Any:
    """The config of a new model: the given values, then the task's defaults for its family, then the defaults of the family."""
    task_defaults = defaults.model if family.config_class is find_family(defaults.family, task).config_class else {}
    config = make_config(family.config_class, {**task_defaults, **values}, f"model {family.name}")
    has_limit = "max_positions" in {item.name for item in fields(family.config_class)}
    if has_limit and "max_positions" not in values and config.max_positions < task.token_limit:
        config = replace(config, max_positions=task.token_limit)
    return config


def _check_model(job: Job, task: Task) -> None:
    """Raise if the family or the stored model does not fit the task; of a model on the hub, only the config is downloaded."""
    if job.model:
        check_fit(task, *read_family_and_config(job.model))
    else:
        check_fit(task, find_family(job.family or task.default_family(), task))


def _build_model(job: Job, task: Task, defaults: Defaults, examples: Sequence[Example]) -> Model:
    family = find_family(job.family or defaults.family, task)
    values = dict(job.model_fields)
    tokenizer = None
    known = {item.name for item in fields(family.config_class)}
    if "vocab" in known and task.has_texts:
        texts = list(task.tokenizer_texts(examples.sample if isinstance(examples, StreamedExamples) else examples))
        template = task.token_template
        if template == "bos_eos" and family.token_template:
            template = family.token_template
        tokenizer = learn_tokenizer(
            texts,
            task.config.tokenizer,
            values.get("vocab"),
            token_template=template,
            is_text_stream=task.is_text_stream,
            extra_special_tokens=task.extra_special_tokens,
        )
        values |= {"vocab": tokenizer.vocab}
        if "pad_id" in known:
            values["pad_id"] = tokenizer.pad_id
        if "decoder_start_id" in known:
            values["decoder_start_id"] = tokenizer.bos_id
    config = make_model_config(family, task, defaults, values)
    model = new(family, config, head=task.needs.head, labels=task.labels)
    model.tokenizer = tokenizer
    task.prepare_model(model, examples)
    return model
