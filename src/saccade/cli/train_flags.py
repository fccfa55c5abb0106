"""The settings of a run as flags: --model.width, --task.max-tokens, --train.lr, over those of a recipe."""

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

Overrides = dict[str, dict[str, Any]]  # what dotted flags have set, by table
Flag = tyro.conf.FlagCreatePairsOff[bool]


@dataclass(frozen=True)
class BaseTrainFlags:
    """Flags of all commands that train; settings of model, task and training are dotted flags."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK|RECIPE")]
    """A task (label, grade, tag, pair, span, translate, summarize, language, caption, paint, pretrain, regress),
    a recipe (saccade recipes) or a config.toml."""
    data: FileFlag = ()
    """Data files or directories; default: the built-in sample of the task."""
    model: Annotated[str, optional_argument("FAMILY|RUN|NAME")] = ""
    """Model to train: a family (saccade models), a run or a hub name; default: a family that suits the task."""
    columns: ColumnsFlag = ""
    """Columns of the data by role, by name or number: text=review,label=2."""
    on_bad_record: Literal["error", "skip"] = "error"
    """Bad records: stop at the first one (error) or leave them out (skip)."""
    max_bad_fraction: float = 0.01
    """Maximum fraction of bad records that may be skipped."""
    json: Flag = False
    """Print the result as JSON; everything else goes to standard error."""

    def log(self, text: str) -> None:
        """Print a line for a person: with --json to standard error, so that a program reads the result alone."""
        print(text, file=sys.stderr if self.json else sys.stdout, flush=True)


FlagsT = TypeVar("FlagsT", bound=BaseTrainFlags)


def split_dotted_flags(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Plain arguments, and dotted flags with their values.

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
    """A flag, not a negative number."""
    return arg.startswith("-") and not arg[1:2].isdigit()


@dataclass(frozen=True)
class TrainRequest:
    """A training that was asked for: the job, and which of its settings came from where."""

    job: "Job"
    recipe: Recipe
    overrides: Overrides

    def prepare(self, log: Callable[[str], None]) -> "PreparedRun":
        """Read the data and build the model, and say so."""
        from saccade.training.prepare import prepare

        log(f"reading    {', '.join(self.job.data) or 'the sample'}")
        ready = prepare(self.job)
        for line in ready.notes:
            log(line)
        return ready


def parse_command(
    command: str, argv: Sequence[str], flag_class: type[FlagsT], description: str
) -> tuple[FlagsT, list[str], bool]:
    """The flags of a command that trains, its dotted flags, and whether the call asks for the help of its task.

    Without a task, --help prints the flags of the command alone and exits; it imports nothing of a model.
    """
    plain, dotted = split_dotted_flags(normalize_flags(command, argv, flag_class))
    others = [word for word in plain if word not in ("-h", "--help")]
    if others != plain:
        with suppress(SystemExit):
            return tyro.cli(flag_class, args=others, console_outputs=False), dotted, True
    return tyro.cli(flag_class, prog=f"saccade {command}", description=description, args=plain), dotted, False


def print_help(command: str, flags: BaseTrainFlags, dotted: list[str]) -> int:
    """Print every flag of the command and every setting of its task, with the values that this call would use."""
    from saccade.cli.train_help import print_train_help

    return print_train_help(command, flags, dotted)


def lacks_requirements(recipe: Recipe, model: str, data: Sequence[str]) -> bool:
    """Whether a recipe needs data or weights that the call does not name."""
    need = recipe.requirements
    return bool((need.dataset and not data) or (need.weights and not model))


def make_request(command: str, flags: BaseTrainFlags, dotted: list[str], *, complete: bool = True) -> TrainRequest:
    """The settings of a recipe, overridden by those of flags; refuse a call that lacks what its recipe needs if `complete`."""
    from saccade.data.read import parse_columns
    from saccade.models.check_weights import check_fields
    from saccade.models.override import override_dropout
    from saccade.tasks.runs.stored_config import check_setting_values
    from saccade.training.prepare import Job, is_stored_model

    found = load_recipe(flags.task)
    model, data = flags.model or found.model, flags.data or found.data
    need = found.requirements
    if complete and lacks_requirements(found, model, data):
        raise UsageError(f"the recipe {found.name} needs {need}.")
    data = need.select_files(tuple(data))
    _check_augment(found, dotted)
    usual = _default_configs(found, model, data, dotted)
    _check_recipe_settings(
        found, {name: config for name, config in usual.items() if name != "model" or not is_stored_model(model)}
    )
    prog = f"saccade {command} {flags.task}" + (f" --model {flags.model}" if flags.model else "")
    given = _parse_overrides(usual, dotted, prog=prog)
    columns = parse_columns(flags.columns) if flags.columns else found.columns
    tables = {name: {**found.tables[name], **given[name]} for name in SETTING_TABLES}
    if is_stored_model(model) and tables["model"]:
        _find_or_usage_error(lambda: override_dropout(usual["model"], tables["model"], model))
    elif "model" in usual:
        _find_or_usage_error(lambda: check_fields(replace(usual["model"], **tables["model"]), "--model."))
    _find_or_usage_error(lambda: check_setting_values(type(usual["task"]), tables["task"], "--task"))
    job = Job(
        found.task,
        data,
        model,
        columns,
        flags.on_bad_record,
        tables["model"],
        tables["task"],
        tables["train"],
        flags.max_bad_fraction,
    )
    return TrainRequest(job, found, given)


def _parse_overrides(defaults: Mapping[str, Any], dotted: list[str], *, prog: str) -> Overrides:
    """What the dotted flags set, by table; `prog` is the command whose --help lists them."""
    settings_class = make_dataclass(
        "Settings", [(name, type(config), field(default=config)) for name, config in defaults.items()]
    )
    check_dotted_flags(dotted, [f"{name}.{item.name}" for name, config in defaults.items() for item in fields(config)])
    parsed = tyro.cli(settings_class, prog=prog, args=dotted, registry=NAME_REGISTRY)
    given: Overrides = {name: {} for name in SETTING_TABLES}
    for word in dotted:
        if word.startswith("--"):
            table, _, name = word[2:].partition("=")[0].replace("-", "_").partition(".")
            name = name if any(item.name == name for item in fields(defaults[table])) else name.removeprefix("no_")
            given[table][name] = getattr(getattr(parsed, table), name)
    return given


def _default_configs(recipe: Recipe, model: str, data: Sequence[str], dotted: Sequence[str] = ()) -> dict[str, Any]:
    """The settings of the family, of the task and of the training as they are before anybody sets them.

    Those of a name on the hub are asked for only where something is said of them.
    """
    from saccade.models.load import read_family_and_config
    from saccade.tasks.needs import find_family
    from saccade.tasks.registry import task_class
    from saccade.training.config import Config
    from saccade.training.prepare import is_stored_model

    kind = _find_or_usage_error(lambda: task_class(recipe.task))
    made = _find_or_usage_error(lambda: kind(_partial_task_config(kind.Config, recipe, dotted)))
    usual = {"task": kind.Config(), "train": Config()}
    if is_stored_model(model):
        said = Path(model).exists() or recipe.tables["model"] or any(word.startswith("--model.") for word in dotted)
        return ({"model": read_family_and_config(model)[1]} if said else {}) | usual
    made.roles(data)
    return {
        "model": _find_or_usage_error(lambda: find_family(model or made.default_family(), made)).config_class()
    } | usual


def _partial_task_config(config_class: type, recipe: Recipe, dotted: Sequence[str]) -> Any:
    """The settings of a task that choose a family, such as an objective: its names, of flags or else of the recipe."""
    names = {item.name for item in fields(config_class) if item.type in ("str", str)}
    words = [part for word in dotted for part in word.split("=", 1)]
    flags = {word[len("--task.") :].replace("-", "_"): value for word, value in pairwise(words) if "--task." in word}
    given = {**recipe.tables["task"], **flags}
    return config_class(**{name: value for name, value in given.items() if name in names})


def _find_or_usage_error(find: Callable[[], Any]) -> Any:
    """What a name stands for; a name that nobody knows is a wrong call."""
    try:
        return find()
    except ValueError as error:
        raise UsageError(str(error)) from None


def _check_augment(recipe: Recipe, dotted: Sequence[str]) -> None:
    """A task that takes no twins says why, and which take them."""
    from saccade.tasks.counterfactual_augment import unsupported_augment_reason

    asked = "augment" in recipe.tables["task"] or any(word.split("=")[0] == "--task.augment" for word in dotted)
    if asked and (why := unsupported_augment_reason(recipe.task)):
        raise UsageError(why)


def _check_recipe_settings(recipe: Recipe, defaults: Mapping[str, Any]) -> None:
    """A recipe's settings exist; a misspelt one fails with the nearest."""
    from saccade.suggest import suggest

    for table, config in defaults.items():
        known = [item.name for item in fields(config)]
        for name in recipe.tables[table]:
            if name not in known:
                raise UsageError(
                    f"{recipe.name or 'The recipe'}: [{table}] has no setting {name!r}; {suggest(name, known)}"
                )
