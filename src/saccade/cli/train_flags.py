"""Training settings as command-line flags (--model.width, --task.max-tokens, --train.lr), which override those of a recipe."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, make_dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import tyro

from saccade.cli.argument_types import NAME_REGISTRY, ColumnsFlag, FileFlag, optional_argument
from saccade.cli.flag_synonyms import check_dotted_flags, normalize_flags
from saccade.errors import UsageError
from saccade.plugins import describe_registrations
from saccade.recipes.recipe import SETTING_TABLES, Recipe, load_recipe, load_recipes

if TYPE_CHECKING:
    from saccade.training.prepare import Job, PreparedRun

__all__ = [
    "SETTING_TABLES",
    "BaseTrainFlags",
    "Flag",
    "Overrides",
    "Recipe",
    "TrainRequest",
    "lacks_requirements",
    "load_recipe",
    "load_recipes",
    "make_request",
    "parse_command",
    "print_help",
    "split_dotted_flags",
]

Overrides = dict[str, dict[str, Any]]  # values of dotted flags, by table
Flag = tyro.conf.FlagCreatePairsOff[bool]


@dataclass(frozen=True)
class BaseTrainFlags:
    """Flags of all training commands; settings of the model, the task and training are dotted flags."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK|RECIPE")]
    """Task (label, grade, tag, pair, span, translate, summarize, language, caption, transcribe, paint, pretrain, regress),
    recipe (saccade recipes lists them) or config.toml."""
    data: FileFlag = ()
    """Data files or directories; default: the built-in sample of the task."""
    model: Annotated[str, optional_argument("RUN|NAME")] = ""
    """Pretrained model to fine-tune: a run, a model directory, a hub name or a short name (minilm); default: a new model."""
    family: Annotated[str, optional_argument("FAMILY")] = ""
    """Family (architecture) of a new, untrained model, such as bert (saccade models); default: one that suits the task."""
    columns: ColumnsFlag = ""
    """Columns of the data by role, by name or number: text=review,label=2."""
    on_bad_record: Literal["error", "skip"] = "error"
    """Bad records: stop at the first one (error), or leave them out (skip)."""
    max_bad_fraction: float = 0.01
    """Maximum fraction of bad records that may be skipped."""
    json: Flag = False
    """Print the result as JSON; everything else goes to standard error."""

    def describe_call(self, command: str) -> str:
        """The command with the arguments on which its settings depend."""
        model = f" --model {self.model}" if self.model else f" --family {self.family}" if self.family else ""
        return f"saccade {command} {self.task}{model}"

    def log(self, text: str) -> None:
        """Print a progress line: with --json to standard error, so that standard output has only the result."""
        print(text, file=sys.stderr if self.json else sys.stdout, flush=True)


FlagsT = TypeVar("FlagsT", bound=BaseTrainFlags)


def split_dotted_flags(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split arguments into plain ones, and dotted flags with their values.

    >>> split_dotted_flags(["label", "--train.seed", "7", "--data", "a.tsv", "--task.multi-label", "--model.width=8"])
    (['label', '--data', 'a.tsv'], ['--train.seed', '7', '--task.multi-label', '--model.width=8'])
    """
    plain: list[str] = []
    dotted: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith(tuple(f"--{table}." for table in SETTING_TABLES)):
            plain.append(word)
            continue
        dotted.append(word)
        if "=" not in word and rest and not _is_flag(rest[0]):
            dotted.append(rest.pop(0))
    return plain, dotted


def _is_flag(arg: str) -> bool:
    """Whether an argument is a flag and not a negative number."""
    return arg.startswith("-") and not arg[1:2].isdigit()


@dataclass(frozen=True)
class TrainRequest:
    """A training job with the recipe and the flags that its settings come from."""

    job: "Job"
    recipe: Recipe
    overrides: Overrides

    def prepare(self, log: Callable[[str], None]) -> "PreparedRun":
        """Read the data and build the model, with progress lines."""
        from saccade.training.prepare import prepare

        log(f"reading    {', '.join(self.job.data) or 'the built-in sample'}")
        prepared = prepare(self.job)
        for line in prepared.notes:
            log(line)
        return prepared


def parse_command(
    command: str, argv: Sequence[str], flag_class: type[FlagsT], description: str
) -> tuple[FlagsT, list[str], bool]:
    """Parse a training command: its flags, its dotted flags, and whether to print the help of its task.

    Without a task, --help prints only the flags of the command and exits, without importing a model.
    """
    plain, dotted = split_dotted_flags(normalize_flags(command, argv, flag_class))
    description = "\n\n".join(text for text in (description, describe_registrations()) if text)
    others = [word for word in plain if word not in ("-h", "--help")]
    if others != plain:
        with suppress(SystemExit):
            return tyro.cli(flag_class, args=others, console_outputs=False), dotted, True
    return tyro.cli(flag_class, prog=f"saccade {command}", description=description, args=plain), dotted, False


def print_help(command: str, flags: BaseTrainFlags, dotted: list[str]) -> int:
    """Print every flag of the command and every setting of its task, with the values of this call."""
    from saccade.cli.train_help import print_train_help

    return print_train_help(command, flags, dotted)


def lacks_requirements(recipe: Recipe, model: str, data: Sequence[str]) -> bool:
    """Whether a recipe requires data or weights that the call does not name."""
    required = recipe.requirements
    return bool((required.dataset and not data) or (required.weights and not model))


def make_request(command: str, flags: BaseTrainFlags, dotted: list[str], *, complete: bool = True) -> TrainRequest:
    """The settings of a recipe, overridden by flags; if `complete`, the data and weights that the recipe needs must be given."""
    from saccade.data.read import parse_columns
    from saccade.models.check_weights import check_fields
    from saccade.models.override import override_dropout
    from saccade.tasks.runs.stored_config import check_setting_values
    from saccade.training.prepare import Job

    recipe = load_recipe(flags.task)
    model, family = _choose_model(flags, recipe)
    data = flags.data or recipe.data
    if complete and lacks_requirements(recipe, model, data):
        raise UsageError(f"The recipe {recipe.name} needs {recipe.requirements}.")
    data = recipe.requirements.select_files(tuple(data))
    _check_augment(recipe, dotted)
    defaults = _default_configs(recipe, model, family, data, dotted)
    new_configs = {name: config for name, config in defaults.items() if name != "model" or not model}
    _check_recipe_settings(recipe, new_configs)
    overrides = _parse_overrides(defaults, dotted, prog=flags.describe_call(command))
    columns = parse_columns(flags.columns) if flags.columns else recipe.columns
    tables = {name: {**recipe.tables[name], **overrides[name]} for name in SETTING_TABLES}
    if model and tables["model"]:
        _find_or_usage_error(lambda: override_dropout(defaults["model"], tables["model"], model))
    elif "model" in defaults:
        _find_or_usage_error(lambda: check_fields(replace(defaults["model"], **tables["model"]), "--model."))
    _find_or_usage_error(lambda: check_setting_values(type(defaults["task"]), tables["task"], "--task"))
    fields_by_table = {f"{name}_fields": table for name, table in tables.items()}
    on_bad, max_bad = flags.on_bad_record, flags.max_bad_fraction
    job = Job(recipe.task, data, family, columns, on_bad, max_bad_fraction=max_bad, model=model, **fields_by_table)
    return TrainRequest(job, recipe, overrides)


def _parse_overrides(defaults: Mapping[str, Any], dotted: list[str], *, prog: str) -> Overrides:
    """Parse the dotted flags, by table; `prog` is the command whose --help lists them."""
    settings_class = make_dataclass(
        "Settings", [(name, type(config), field(default=config)) for name, config in defaults.items()]
    )
    check_dotted_flags(dotted, [f"{name}.{item.name}" for name, config in defaults.items() for item in fields(config)])
    parsed = tyro.cli(settings_class, prog=prog, args=dotted, registry=NAME_REGISTRY)
    overrides: Overrides = {name: {} for name in SETTING_TABLES}
    for word in dotted:
        if word.startswith("--"):
            table, _, name = word[2:].partition("=")[0].replace("-", "_").partition(".")
            name = name if any(item.name == name for item in fields(defaults[table])) else name.removeprefix("no_")
            overrides[table][name] = getattr(getattr(parsed, table), name)
    return overrides


def _choose_model(flags: BaseTrainFlags, recipe: Recipe) -> tuple[str, str]:
    """The pretrained model and the family of a call; a flag for either replaces both of the recipe."""
    from saccade.models.published_names import resolve_model_name

    if flags.model and flags.family:
        raise UsageError(
            f"--model {flags.model} has a family already, and --family {flags.family} is for a new model. Leave one of them out."
        )
    if flags.model:
        return resolve_model_name(flags.model), ""
    return ("", flags.family) if flags.family else (recipe.model, recipe.family)


def _default_configs(
    recipe: Recipe, model: str, family_name: str, data: Sequence[str], dotted: Sequence[str] = ()
) -> dict[str, Any]:
    """The default settings of the family, the task and training, before flags and recipe.

    The config of a hub name is fetched only if the call or the recipe has settings of the model.
    """
    from saccade.models.load import read_family_and_config
    from saccade.tasks.needs import find_family
    from saccade.tasks.registry import task_class
    from saccade.training.config import Config

    kind = _find_or_usage_error(lambda: task_class(recipe.task))
    task = _find_or_usage_error(lambda: kind(_partial_task_config(kind.Config, recipe, dotted)))
    defaults = {"task": kind.Config(), "train": Config()}
    if model:
        has_settings = recipe.tables["model"] or any(word.startswith("--model.") for word in dotted)
        return ({"model": read_family_and_config(model)[1]} if Path(model).exists() or has_settings else {}) | defaults
    task.roles(data)
    family = _find_or_usage_error(lambda: find_family(family_name or task.default_family(), task))
    return {"model": family.config_class()} | defaults


def _partial_task_config(config_class: type, recipe: Recipe, dotted: Sequence[str]) -> Any:
    """The string settings of a task, from flags or the recipe: some of them, such as an objective, choose the family."""
    names = {item.name for item in fields(config_class) if item.type in ("str", str)}
    words = [part for word in dotted for part in (word.split("=", 1) if word.startswith("--") else [word])]
    flags = {word[len("--task.") :].replace("-", "_"): value for word, value in pairwise(words) if "--task." in word}
    settings = {**recipe.tables["task"], **flags}
    return config_class(**{name: value for name, value in settings.items() if name in names})


def _find_or_usage_error(find: Callable[[], Any]) -> Any:
    """The result of a lookup; its ValueError becomes a UsageError."""
    try:
        return find()
    except ValueError as error:
        raise UsageError(str(error)) from None


def _check_augment(recipe: Recipe, dotted: Sequence[str]) -> None:
    """Raise a UsageError if task.augment is set for a task without data augmentation."""
    from saccade.tasks.counterfactual_augment import unsupported_augment_reason

    is_set = "augment" in recipe.tables["task"] or any(word.split("=")[0] == "--task.augment" for word in dotted)
    if is_set and (reason := unsupported_augment_reason(recipe.task)):
        raise UsageError(reason)


def _check_recipe_settings(recipe: Recipe, defaults: Mapping[str, Any]) -> None:
    """Raise a UsageError for an unknown setting of a recipe, with the nearest known one."""
    from saccade.suggest import suggest

    for table, config in defaults.items():
        known = [item.name for item in fields(config)]
        for name in recipe.tables[table]:
            if name not in known:
                raise UsageError(
                    f"{recipe.name or 'The recipe'}: [{table}] has no setting {name!r}; {suggest(name, known)}"
                )
