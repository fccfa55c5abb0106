"""`saccade train TASK --help`: every setting, with the value that this call would use and its source."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields, is_dataclass, make_dataclass, replace
from itertools import islice
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

import tyro

from saccade.cli.argument_types import NAME_REGISTRY
from saccade.cli.train_flags import SETTING_TABLES, BaseTrainFlags, TrainRequest, lacks_requirements, make_request
from saccade.data import Example
from saccade.errors import DataError, SaccadeError
from saccade.tasks.base import Defaults, Task

if TYPE_CHECKING:
    from saccade.models.family import Family

# flags and settings that most runs change; the help lists them first
MAIN_FLAGS = ("data", "model", "columns", "out")
MAIN_SETTINGS = ("epochs", "max_minutes", "batch_size", "batch_tokens", "lr", "seed")
TOKENIZER_SETTINGS = ("vocab", "pad_id", "decoder_start_id")  # of a new model, determined by the trained tokenizer
MAX_EXAMPLES_READ = 20  # examples that the help reads, to choose sizes that depend on the data
DATA_DEFAULT = "(default: chosen from the data)"


@dataclass(frozen=True)
class SettingHelp:
    """Help of a setting: type, description, value, and a hint in parentheses about its value in this call."""

    annotation: Any
    description: str
    value: Any
    hint: str
    metavar: str | None = None  # None: that of the type


def print_train_help(command: str, flags: BaseTrainFlags, dotted: list[str]) -> int:
    """Print the help of a training command: the main settings, then those of the command, the model, the task and training."""
    notes = []
    try:
        request, settings = _resolve_call(command, flags, dotted)
    except DataError as error:  # print the help even if a file cannot be read
        notes.append(f"{error} The values below are for the built-in sample.")
        request, settings = _resolve_call(command, replace(flags, data=(), columns=""), dotted)
    recipe = request.recipe
    if lacks_requirements(recipe, request.job.model, request.job.data):
        notes.append(f"The recipe {recipe.name} needs {recipe.requirements}.")
    description = "\n\n".join([_describe_call(command, flags, request), *notes])
    tyro.cli(
        _make_help_class(flags, request, settings),
        prog=flags.describe_call(command),
        description=description,
        args=["--help"],
        registry=NAME_REGISTRY,
    )
    return 0


def _resolve_call(
    command: str, flags: BaseTrainFlags, dotted: list[str]
) -> tuple[TrainRequest, dict[str, dict[str, SettingHelp]]]:
    """The request and the settings of a call, without model settings if the recipe needs weights that the call does not name."""
    request = make_request(command, flags, dotted, complete=False)
    settings = resolve_settings(request)
    if request.recipe.requirements.weights and not request.job.model:
        settings.pop("model")
    return request, settings


def _describe_call(command: str, flags: BaseTrainFlags, request: TrainRequest) -> str:
    from saccade.tasks.registry import task_class

    recipe = request.recipe
    name, description = ("Recipe " + recipe.name, recipe.description) if recipe.name else ("Task " + recipe.task, "")
    description = description or task_class(recipe.task).description
    return (
        f"{name}. {description[0].upper()}{description[1:].rstrip('.')}.\n\n"
        "The value of each setting in this call is shown in parentheses. It depends on the other arguments; for the settings of "
        f"another model, for example, use saccade {command} {flags.task} --family FAMILY --help."
    )


def resolve_settings(request: TrainRequest) -> dict[str, dict[str, SettingHelp]]:
    """Every setting by table, as training would resolve it; reads a few examples of the data, and trains no tokenizer."""
    from saccade.models.load import read_family_and_config
    from saccade.tasks.needs import find_family
    from saccade.tasks.registry import task_class
    from saccade.training.config import Config
    from saccade.training.prepare import make_config, make_model_config

    job = request.job
    kind = task_class(job.task)
    task = kind(make_config(kind.Config, job.task_fields, f"task {job.task}"))
    stored = bool(job.model)
    initial_config = task.config
    examples = _read_some_examples(task, job.data, job.columns)
    chosen = task.defaults(examples, stored)
    unsettled = _find_unsettled(chosen, task.defaults(examples[: len(examples) // 2], stored))
    unsettled |= {("task", name) for name, value in vars(initial_config).items() if getattr(task.config, name) != value}
    unsettled.add(("train", "test_size"))  # small files have no test set
    train_config = make_config(Config, {**chosen.train, **job.train_fields}, "train")
    configs: dict[str, Any] = {"task": task.config, "train": train_config}
    if stored:
        if Path(job.model).exists() or job.model_fields:
            configs["model"] = replace(read_family_and_config(job.model)[1], **job.model_fields)
    else:
        family: Family = find_family(job.family or chosen.family, task)
        configs["model"] = make_model_config(family, task, chosen, job.model_fields)
        unsettled |= {("model", name) for name in TOKENIZER_SETTINGS if hasattr(configs["model"], name)}

    def describe(table: str, name: str, value: Any) -> str:
        text = _format_value(value)
        if name in request.overrides[table]:
            return f"(your value: {text})"
        if name in request.recipe.tables[table]:
            return f"(recipe {request.recipe.name}: {text})" if request.recipe.name else f"(recipe: {text})"
        if (table, name) in unsettled:
            return DATA_DEFAULT
        if table == "model" and stored:
            return f"(value of {job.model}: {text})"
        if value != getattr(type(configs[table])(), name):
            return f"(default for {task.name}: {text})"
        return "" if value is None else f"(default: {text})"

    resolved: dict[str, dict[str, SettingHelp]] = {}
    for table in (name for name in SETTING_TABLES if name in configs):
        config = configs[table]
        types, docs = get_type_hints(type(config), include_extras=True), read_field_docs(type(config))
        resolved[table] = {}
        for item in fields(config):
            value, metavar = getattr(config, item.name), _choose_metavar(item, types[item.name])
            hint = describe(table, item.name, value)
            resolved[table][item.name] = SettingHelp(types[item.name], docs.get(item.name, ""), value, hint, metavar)
    return resolved


def _choose_metavar(item: Field, annotation: Any) -> str | None:
    """The metavar that a setting declares, or for an optional one that of its type; None leaves it to tyro."""
    if "metavar" in item.metadata:
        return item.metadata["metavar"]
    types = [kind for kind in get_args(annotation) if kind is not NoneType]
    if get_origin(annotation) not in (Union, UnionType) or len(types) != 1:
        return None
    return "NAME" if types[0] is str else types[0].__name__.upper() if types[0] in (int, float) else None


def _read_some_examples(task: Task, data: Sequence[str], columns: Mapping[str, str]) -> list[Example]:
    """Read the first examples of the data or of the built-in sample, and fit the task to them (texts or images)."""
    from saccade.data.samples import get_sample
    from saccade.tasks.runs.read_data import stream_task_examples

    roles = task.roles(data)
    if data:
        task.column_names = columns
        examples = list(islice(stream_task_examples(task, data, roles, columns), MAX_EXAMPLES_READ))
    else:
        sample = get_sample(task.sample).make(MAX_EXAMPLES_READ, 0)
        examples = [example for example in sample if all(role.name in example for role in roles if role.required)]
    with suppress(SaccadeError):  # a few examples may all have the same label
        task.fit(examples)
    return examples


def _find_unsettled(chosen: Defaults, of_fewer: Defaults) -> set[tuple[str, str]]:
    """The settings whose default depends on the number of examples, so that a few examples cannot determine it."""
    pairs = {"model": (chosen.model, of_fewer.model), "train": (chosen.train, of_fewer.train)}
    return {(table, name) for table, (many, few) in pairs.items() for name in many if many[name] != few.get(name)}


def _format_value(value: Any) -> str:
    """
    >>> _format_value((1, 2)), _format_value(True), _format_value(None), _format_value("")
    ('1 2', 'True', 'not set', "''")
    """
    if value is None:
        return "not set"
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value) if value != "" else "''"


def _make_help_class(
    flags: BaseTrainFlags, request: TrainRequest, settings: Mapping[str, Mapping[str, SettingHelp]]
) -> type:
    """A dataclass from which tyro prints the help: a group of the main flags, and a group for the rest of each table."""
    command_flags = dict(_flag_fields(flags, request))
    command_flags.pop("task")
    tables = {
        table: {
            name: _make_field(
                f"{table}.{name.replace('_', '-')}",
                item.annotation,
                item.description,
                item.hint,
                item.value,
                metavar=item.metavar,
            )
            for name, item in items.items()
        }
        for table, items in settings.items()
    }
    main = [command_flags.pop(name) for name in MAIN_FLAGS if name in command_flags]
    main += [tables["train"].pop(name) for name in MAIN_SETTINGS]
    groups = {
        "main": ("Data, model, length of training, batch size and learning rate.", main),
        "command": ("Other options of the command.", command_flags.values()),
        "model": ("Architecture of the model.", tables.pop("model", {}).values()),
        "task": (f"Data processing, loss and metrics of the task {request.job.task}.", tables["task"].values()),
        "train": ("Optimization, evaluation, checkpoints and hardware.", tables["train"].values()),
    }
    members = []
    for name, (description, items) in groups.items():
        if items:
            group = make_dataclass(name, list(items), frozen=True)
            members.append((name, Annotated[group, tyro.conf.arg(help=description)], field(default=group())))
    return make_dataclass("Settings", members, frozen=True)


def _flag_fields(flags: BaseTrainFlags, request: TrainRequest) -> Iterator[tuple[str, tuple[str, Any, Any]]]:
    """The flags of the command itself as fields of a help class."""
    hints, docs = get_type_hints(type(flags), include_extras=True), read_field_docs(type(flags))
    for item in fields(flags):
        value = getattr(flags, item.name)
        default = None if item.name == "task" else item.default
        hint = f"(your value: {_format_value(value)})" if value != default else None
        if item.name == "family" and not (request.job.family or request.job.model):
            hint = f"(default for {request.job.task}: {_default_family(request)})"
        if item.name == "out" and not value:
            hint = f"(default: {Path('runs') / (request.recipe.name or request.job.task)})"
        description = docs.get(item.name, "")
        if hint is not None and hint.startswith("(default"):  # of this call: it replaces the general one
            description = description.partition("; default:")[0].rstrip(".") + "."
        flag = item.name.replace("_", "-")
        yield item.name, _make_field(flag, hints[item.name], description, hint, value)


def _default_family(request: TrainRequest) -> str:
    from saccade.tasks.registry import task_class

    kind = task_class(request.job.task)
    task = kind(kind.Config(**request.job.task_fields))
    task.roles(request.job.data)
    return task.default_family()


def _make_field(
    flag: str, annotation: Any, description: str, hint: str | None, value: Any, *, metavar: str | None = None
) -> tuple[str, Any, Any]:
    argument = tyro.conf.arg(name=flag, help=description, help_behavior_hint=hint, prefix_name=False, metavar=metavar)
    return flag.replace("-", "_").replace(".", "_"), Annotated[annotation, argument], field(default=value)


def read_field_docs(config_class: type) -> dict[str, str]:
    """The description of each field of a dataclass, as in tyro: the string below the field, or the comment after it.

    >>> from saccade.training.config import Config
    >>> read_field_docs(Config)["lr"]
    'Peak learning rate, reached at the end of warmup.'
    """
    docs: dict[str, str] = {}
    for base in reversed(config_class.__mro__):
        if not is_dataclass(base):
            continue
        source = textwrap.dedent(inspect.getsource(base))
        lines, (definition, *_) = source.splitlines(), ast.parse(source).body
        assert isinstance(definition, ast.ClassDef)
        for node, following in zip(definition.body, [*definition.body[1:], None], strict=True):
            if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
                continue
            text = lines[(node.end_lineno or 0) - 1].encode()[node.end_col_offset :].decode().partition("#")[2]
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                text = str(following.value.value)
            if text.strip():
                docs[node.target.id] = " ".join(text.split())
    return docs
