"""The settings of a run as flags: --model.width, --task.length, --train.rate, over those of a recipe."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from saccade.cli.recipe import TABLES, Recipe, Wrong, recipe, recipes

if TYPE_CHECKING:
    from saccade.training.job import Job, Ready

__all__ = ["TABLES", "Call", "Flag", "Given", "Recipe", "Request", "Wrong", "recipe", "recipes", "request", "split"]

Given = dict[str, dict[str, Any]]  # what dotted flags have set, by table
Flag = tyro.conf.FlagCreatePairsOff[bool]


@dataclass(frozen=True)
class Call:
    """What every command that trains is told, beside the settings of the model, the task and the training."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK|RECIPE")]
    """A task (label, grade, tag, pair, span, translate, summarise, language, caption, paint, pretrain, regress),
    a recipe (saccade recipes) or a config.toml."""
    data: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE")] = ()
    """Files or directories; none: the package's own sample."""
    model: str = ""
    """A family, a run, or a name on the hub; none: what suits the task."""
    columns: str = ""
    """Which column is what, by name or number: text=review,label=2."""
    on_bad_record: Literal["error", "skip"] = "error"
    """Stop at a bad record, or leave it out and go on."""
    max_bad: float = 0.01
    """The share of bad records that may be skipped."""
    json: Flag = False
    """Print the result as JSON, and all else on the error stream."""
    settings: Flag = False
    """List the flags of the model, the task and the training."""

    def say(self, text: str) -> None:
        """Tell a person; a program that reads the result is not disturbed."""
        print(text, file=sys.stderr if self.json else sys.stdout, flush=True)


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Plain arguments, and dotted flags with their values.

    >>> split(["label", "--train.seed", "7", "--data", "a.tsv", "--task.many", "--model.width=8"])
    (['label', '--data', 'a.tsv'], ['--train.seed', '7', '--task.many', '--model.width=8'])
    """
    plain: list[str] = []
    dotted: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith(tuple(f"--{table}." for table in TABLES)):
            plain.append(word)
            continue
        dotted.append(word)
        if "=" not in word and rest and not _flag(rest[0]):
            dotted.append(rest.pop(0))
    return plain, dotted


def _flag(word: str) -> bool:
    """A flag, not a negative number."""
    return word.startswith("-") and not word[1:2].isdigit()


@dataclass(frozen=True)
class Request:
    """A training that was asked for: the job, and which of its settings came from where."""

    job: "Job"
    recipe: Recipe
    given: Given

    def prepare(self, say: Callable[[str], None]) -> "Ready":
        """Read the data and build the model, and say so."""
        from saccade.training.job import prepare

        say(f"reading    {', '.join(self.job.data) or 'the sample'}")
        ready = prepare(self.job)
        for line in ready.said:
            say(line)
        return ready


def request(command: str, asked: Call, dotted: list[str]) -> Request:
    """What the recipe says, and over it what the flags say."""
    from saccade.data.read import parse_columns
    from saccade.models.reset import reset
    from saccade.models.sound import check_fields
    from saccade.tasks.run_settings import check_values
    from saccade.training.job import Job, is_stored

    found = recipe(asked.task)
    model, data = asked.model or found.model, asked.data or found.data
    need = found.need
    if (need.set and not data) or (need.weights and not model):
        raise Wrong(f"the recipe {found.name} needs {need}.")
    data = need.within(tuple(data))
    _refuse_twins(found, dotted)
    usual = _usual(found, model, data, dotted)
    _check(found, {name: config for name, config in usual.items() if name != "model" or not is_stored(model)})
    given = _parse(usual, dotted, prog=f"saccade {command} {asked.task}", show=asked.settings)
    columns = parse_columns(asked.columns) if asked.columns else found.columns
    tables = {name: {**found.tables[name], **given[name]} for name in TABLES}
    if is_stored(model) and tables["model"]:
        _known(lambda: reset(usual["model"], tables["model"], model))
    elif "model" in usual:
        _known(lambda: check_fields(replace(usual["model"], **tables["model"]), "--model."))
    _known(lambda: check_values(type(usual["task"]), tables["task"], "--task"))
    job = Job(
        found.task,
        data,
        model,
        columns,
        asked.on_bad_record,
        tables["model"],
        tables["task"],
        tables["train"],
        asked.max_bad,
    )
    return Request(job, found, given)


def _parse(usual: Mapping[str, Any], dotted: list[str], *, prog: str, show: bool) -> Given:
    """What the dotted flags set, by table; the help of the flags where `show` asks for it."""
    whole = make_dataclass("Settings", [(name, type(config), field(default=config)) for name, config in usual.items()])
    parsed = tyro.cli(whole, prog=prog, args=["--help"] if show else dotted)
    given: Given = {name: {} for name in TABLES}
    for word in dotted:
        if word.startswith("--"):
            table, _, name = word[2:].partition("=")[0].replace("-", "_").partition(".")
            name = name if any(item.name == name for item in fields(usual[table])) else name.removeprefix("no_")
            given[table][name] = getattr(getattr(parsed, table), name)
    return given


def _usual(found: Recipe, model: str, data: Sequence[str], dotted: Sequence[str] = ()) -> dict[str, Any]:
    """The settings of the family, of the task and of the training as they are before anybody sets them.

    Those of a name on the hub are asked for only where something is said of them.
    """
    from saccade.models.load import family_and_config
    from saccade.tasks.needs import find_family
    from saccade.tasks.table import task_class
    from saccade.training.config import Config
    from saccade.training.job import is_stored

    kind = _known(lambda: task_class(found.task))
    made = _known(lambda: kind(_chosen(kind.Config, found, dotted)))
    usual = {"task": kind.Config(), "train": Config()}
    if is_stored(model):
        said = Path(model).exists() or found.tables["model"] or any(word.startswith("--model.") for word in dotted)
        return ({"model": family_and_config(model)[1]} if said else {}) | usual
    made.roles(data)
    return {"model": _known(lambda: find_family(model or made.usual(), made)).config()} | usual


def _chosen(kind: type, found: Recipe, dotted: Sequence[str]) -> Any:
    """The settings of a task that choose a family, such as an objective: its names, of flags or else of the recipe."""
    names = {item.name for item in fields(kind) if item.type in ("str", str)}
    words = [part for word in dotted for part in word.split("=", 1)]
    flags = {word[len("--task.") :].replace("-", "_"): value for word, value in pairwise(words) if "--task." in word}
    given = {**found.tables["task"], **flags}
    return kind(**{name: value for name, value in given.items() if name in names})


def _known(find: Callable[[], Any]) -> Any:
    """What a name stands for; a name that nobody knows is a wrong call."""
    try:
        return find()
    except ValueError as error:
        raise Wrong(str(error)) from None


def _refuse_twins(found: Recipe, dotted: Sequence[str]) -> None:
    """A task that takes no twins says why, and which take them."""
    from saccade.tasks.twins import refusal

    asked = "augment" in found.tables["task"] or any(word.split("=")[0] == "--task.augment" for word in dotted)
    if asked and (why := refusal(found.task)):
        raise Wrong(why)


def _check(recipe: Recipe, usual: Mapping[str, Any]) -> None:
    """A recipe's settings exist; a misspelt one fails with the nearest."""
    from saccade.attention.table import nearest

    for table, config in usual.items():
        known = [item.name for item in fields(config)]
        for name in recipe.tables[table]:
            if name not in known:
                raise Wrong(f"{recipe.name or 'The recipe'}: [{table}] has no setting {name!r}; {nearest(name, known)}")
