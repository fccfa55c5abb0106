"""A training as a person asks for it, and everything that has to be there before it begins: data, task, model, settings."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch

from saccade.attention.table import nearest
from saccade.data import Example, Table, examine
from saccade.data.long import Long
from saccade.data.samples import sample
from saccade.data.shards import Shards
from saccade.data.split import Splits, open_data, split_table
from saccade.errors import DataError, UsageError
from saccade.models.load import family_and_config, load
from saccade.models.model import Model
from saccade.models.new import new
from saccade.models.sound import copy_weights
from saccade.tasks.feed import Feed, feed, shelving
from saccade.tasks.hidden import revealed
from saccade.tasks.needs import check_fit, find_family
from saccade.tasks.run_settings import read_run_settings
from saccade.tasks.table import task_class
from saccade.tasks.task import Choices, Task
from saccade.tasks.twins import Learnt, with_twins
from saccade.tasks.words import learn_tokenizer
from saccade.text.tokenizer import LIMIT
from saccade.training.config import FREE, Config
from saccade.training.precision import settled

EVERY = 5.0  # seconds between words about a long piece of work


@dataclass(frozen=True)
class Job:
    """What is to be trained on what. The three tables hold what was said; all else is chosen."""

    task: str
    data: tuple[str, ...] = ()  # files or directories; none: the task's own sample
    model: str = ""  # a family, a run or a name on the hub; none: what the task would choose
    columns: Mapping[str, str] = field(default_factory=dict)
    on_bad: str = "error"
    model_fields: Mapping[str, Any] = field(default_factory=dict)
    task_fields: Mapping[str, Any] = field(default_factory=dict)
    train_fields: Mapping[str, Any] = field(default_factory=dict)
    max_bad: float = 0.01  # the share of bad records that may be skipped


@dataclass
class Ready:
    """All that a training needs, and what was said while it was brought together."""

    job: Job
    task: Task
    model: Model
    splits: Splits
    config: Config
    chosen: Choices
    said: list[str]
    shelf: Shards | None = None  # the tokens of a text that is too large to be held
    learnt: Learnt | None = None  # the training examples with their twins, where the settings ask for them

    @property
    def examples(self) -> Sequence[Example]:
        """What is learnt from."""
        return self.splits.train.examples if self.learnt is None else self.learnt.examples

    def feed(self, model: Model | None = None) -> Feed:
        """The training examples in batches, for its own model or for a copy of it.

        Of a text that is too large to be held these are the tokens that `shelve` wrote, or, before that, some of the text.
        """
        config, examples = self.config, self.examples
        rows = config.rows or None
        if isinstance(examples, Long) and self.shelf is None:
            examples = examples.some
        read = examples if self.shelf is None else self.shelf
        return feed(self.task, read, model or self.model, tokens=config.tokens, rows=rows, seed=config.seed)

    def shelve(self, where: Path) -> Iterator[str]:
        """Tokenise a text that is too large to be held, once, into files from which `feed` reads; says how far it is."""
        texts = self.examples
        if not isinstance(texts, Long):
            return
        work = shelving(self.task, texts, self.model, where, key=self.splits.digest)
        told = time.monotonic()
        yield f"tokenising {len(texts):,} lines, once, into {where}"
        for tokens in work:
            if isinstance(tokens, Shards):
                self.shelf = tokens
                yield f"{len(tokens):,} tokens in {where}"
            elif time.monotonic() - told > EVERY:
                told = time.monotonic()
                yield f"{tokens:,} tokens so far"

    def fixed(self) -> dict[str, Any]:
        """What has to be the same when a run goes on, by name."""
        facts: dict[str, Any] = {"task": self.task.name, "data": self.splits.digest, "family": self.model.family.name}
        facts |= {f"task.{key}": value for key, value in asdict(self.task.config).items()}
        facts |= {f"model.{key}": value for key, value in asdict(self.model.config).items()}
        facts |= {f"train.{key}": value for key, value in asdict(self.config).items() if key not in FREE}
        facts |= {} if self.learnt is None else {"twins": self.learnt.record}
        return facts | {"labels": list(self.task.labels), "weights": self.job.model}


def prepare(job: Job) -> Ready:
    """Read the data, fit the task to it, and build or load the model; the same job gives the same model."""
    kind = task_class(job.task)
    task: Task = kind(filled(kind.Config, job.task_fields, f"task {job.task}"))
    stored = is_stored(job.model)
    _check_model(job, task)
    splits = _data(job, task)
    task.fit(splits.train.examples)
    splits = revealed(task, splits)
    _check_model(job, task)  # again, since the data decide whether texts or images are read
    learnt = with_twins(task, splits.train.examples)
    chosen = task.choices(splits.train.examples, stored)
    config = settled(filled(Config, {**chosen.train, **job.train_fields}, "train"))
    if task.lone and config.parts > 1:
        raise UsageError(f"{task.name} learns from whole steps; leave out train.parts, or lower train.rows instead.")
    torch.manual_seed(config.seed)
    said: list[str] = []
    if stored:
        model = copy_weights(
            load(job.model, head=task.needs.head, labels=task.labels or None, settings=job.model_fields)
        )
        said += str(model.report).split("\n")
    else:
        model = _fresh(job, task, chosen, splits.train.examples if learnt is None else learnt.examples)
        said.append(f"a new {model.family.name} of {sum(p.numel() for p in model.parameters()):,} parameters")
    model.many = task.many
    task.equip(model)
    twins = [] if learnt is None else [learnt.said]
    if job.train_fields.get("precision") == "auto":
        said.append(f"products in {config.precision}: bfloat16 where the machine has instructions for it, else float32")
    said = [*_examined(task, model, splits, job), *task.noticed, *twins, *said]
    return Ready(job, task, model, splits, config, chosen, said, learnt=learnt)


def _examined(task: Task, model: Model, splits: Splits, job: Job) -> list[str]:
    """What there is to know of the data, in lines: counts, labels, lengths, repeats, and what will be cut."""
    roles, tokenizer = task.roles(job.data), model.tokenizer
    if tokenizer is None or task.running or not any(role.kind in ("text", "texts", "words") for role in roles):
        return examine(splits, roles).lines()
    name = next(role.name for role in roles if role.kind in ("text", "texts", "words"))
    several = any(role.kind == "texts" for role in roles)

    def length(example: Example) -> int:
        if several:  # the longest of several captions
            found = [example[name]] if isinstance(example[name], str) else example[name]
            return max(len(tokenizer.encode(text, truncate=LIMIT)) for text in found)
        value, pair = example[name], next((example[key] for key in ("second", "question") if key in example), None)
        text = value if isinstance(value, str) else " ".join(value)
        return len(tokenizer.encode(text, pair, truncate=LIMIT))  # of a text beyond that, at least so many

    limit = min(task.config.length, model.limit or task.config.length)
    return examine(splits, roles, lengths=length, limit=limit if task.cuts else None).lines()


def filled(kind: type, given: Mapping[str, Any], where: str) -> Any:
    """A config with some of its fields set; a name that it does not have fails with the nearest that it has."""
    known = [item.name for item in fields(kind)]
    for name in given:
        if name not in known:
            raise UsageError(f"{where} has no setting {name!r}; {nearest(name, known)}")
    return kind(**given)


def _check_model(job: Job, task: Task) -> None:
    """Refuse a family, or a stored model, that cannot do the task; of a model on the hub nothing but its config is fetched."""
    if is_stored(job.model):
        check_fit(task, *family_and_config(job.model))
    else:
        check_fit(task, find_family(job.model or task.usual(), task))


def is_stored(model: str) -> bool:
    """A directory, or a name on the hub; anything else is the name of a family."""
    return bool(model) and (Path(model).exists() or "/" in model)


def _data(job: Job, task: Task) -> Splits:
    if job.data:
        task.named = job.columns
        return open_data(
            job.data,
            task.roles(job.data),
            columns=job.columns,
            on_bad=job.on_bad,
            max_bad=job.max_bad,
            contiguous=task.running,
        )
    own = sample(task.sample)
    made = split_table(
        Table(own.make(own.count, 0), digest=f"sample {own.name}"), task.roles(()), contiguous=task.running
    )
    return replace(made, said=[f"no --data: the package's own sample {own.name} ({own.said})", *made.said])


def _fresh(job: Job, task: Task, chosen: Choices, examples: Sequence[Example]) -> Model:
    family = find_family(job.model or chosen.family, task)
    given = dict(job.model_fields)
    tokenizer = None
    known = {item.name for item in fields(family.config)}
    if "vocab" in known:
        shown = examples.some if isinstance(examples, Long) else examples
        texts = list(task.texts(shown))
        frame = family.frame if task.frame == "both" and family.frame else task.frame
        tokenizer = learn_tokenizer(
            texts, task.config.pieces, given.get("vocab"), frame=frame, running=task.running, extra=task.extra
        )
        given |= {"vocab": tokenizer.vocab}
        if "padding" in known:
            given["padding"] = tokenizer.pad
        if "begin" in known:
            given["begin"] = tokenizer.begin
    suited = chosen.model if family.config is find_family(chosen.family, task).config else {}
    config = filled(family.config, {**suited, **given}, f"model {family.name}")
    if "length" in known and "length" not in given and config.length < task.config.length:
        config = replace(config, length=task.config.length)
    model = new(family, config, head=task.needs.head, labels=task.labels)
    model.tokenizer = tokenizer
    task.teach(model, examples)
    return model


def held_out(where: str | Path) -> Sequence[Example]:
    """What the run did not learn from: its test data, or else its dev data."""
    splits = data_of(where)
    if splits is None:
        raise UsageError(f"{where}: is no run, so it has no held-out data of its own; give some with --data.")
    return (splits.test or splits.dev).examples


def data_of(where: str | Path) -> Splits | None:
    """The data of a run, read again and split as in training; None for what is no run, DataError where they have changed."""
    stored = read_run_settings(where)
    run = stored.get("run", {})
    if not run.get("task"):
        return None
    kind = task_class(run["task"])
    given = {key: value for key, value in stored["task"].items() if key != "labels"}
    job = Job(run["task"], tuple(run["data"]), columns=run["columns"], on_bad="skip", max_bad=1.0)
    task = kind(filled(kind.Config, given, "task"), stored["task"].get("labels", ()))
    splits = _data(job, task)
    check_digest(splits, run, where)
    return revealed(task, splits)


def check_digest(splits: Splits, stored: Mapping[str, Any], where: str | Path) -> None:
    """Refuse data that have changed since a run was trained on them: what is held out now may have been trained on then.

    `stored` is the table `run` of its config.toml.
    """
    if splits.digest != stored.get("digest"):
        raise DataError(
            f"the data of {where} have changed since it was trained, so that its held-out examples are not known any more",
            file=next(iter(stored["data"]), None),
            cure="restore the file as it was, name examples that the model was not trained on with --data, "
            "or train it again",
        )
