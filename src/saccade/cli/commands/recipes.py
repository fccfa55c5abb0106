"""`saccade recipes`: a table of the training recipes with their promised and measured scores, or one recipe."""

from typing import TYPE_CHECKING, Annotated, Any

import tyro

from saccade.cli.argument_types import optional_argument

if TYPE_CHECKING:
    from saccade.recipes.recipe import Recipe
    from saccade.recipes.record import Record


def main(show: Annotated[tuple[str, ...], tyro.conf.Positional, optional_argument("[show NAME]")] = ()) -> int:
    """List the training recipes with their promised and measured results, or show one.

    saccade recipes

    saccade recipes show dates

    saccade train dates

    Args:
        show: `show NAME` prints the recipe of that name; default: list all of them.
    """
    from saccade.cli.exit_codes import run_command

    return run_command("recipes", lambda: _print_recipes(list(show)))


def _print_recipes(args: list[str]) -> int:
    from saccade.cli.train_flags import load_recipes
    from saccade.errors import UsageError
    from saccade.recipes.recipe import read_recipe_text
    from saccade.recipes.record import load_records
    from saccade.suggest import suggest

    known, measured = load_recipes(), load_records()
    if not args:
        print(format_recipe_table(known, measured))
        print("\nsaccade recipes show NAME prints one, saccade train NAME trains it.")
        return 0
    if args == ["show"]:
        raise UsageError("Name the recipe: saccade recipes show NAME; saccade recipes lists all of them.")
    name = args[-1]
    if name not in known:
        raise UsageError(f"There is no recipe {name!r}; {suggest(name, list(known))}")
    print(read_recipe_text(name))
    for line in describe_recipe(known[name], measured.get(name)):
        print(line)
    return 0


def format_recipe_table(recipes: "dict[str, Recipe]", records: "dict[str, Record]") -> str:
    """A line per recipe: name, task, minutes, promised score and measured score."""
    rows = [("recipe", "task", "within", "promised", "measured")]
    for name, recipe in recipes.items():
        promise = recipe.promise
        within, bound = (f"{promise.minutes:g} min", promise.bound) if promise is not None else ("", "")
        rows.append((name, recipe.task, within, bound, _format_record(recipe, records.get(name))))
    widths = [max(len(row[i]) for row in rows) + 2 for i in range(len(rows[0]))]
    return "\n".join("".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in rows)


def _format_record(recipe: "Recipe", record: "Record | None") -> str:
    from saccade.recipes.record import find_promised_score, recipe_digest

    score = None if record is None else find_promised_score(recipe, record)
    if record is None or score is None:
        return "not yet"
    outdated = "" if record["digest"] == recipe_digest(recipe) else ", before the recipe changed"
    machine = f"{record['machine']['cpu']}, {record['machine']['cores']} cores"
    return f"{_format_score(score)} in {record['minutes']:.0f} min, {record['date']}, {machine}{outdated}"


def describe_recipe(recipe: "Recipe", record: "Record | None") -> list[str]:
    """Comment lines about a recipe: requirements, promised score, and the measured scores with sample predictions."""
    from saccade.recipes.record import parse_score

    lines = [f"# needs     {str(recipe.requirements) or 'nothing: it trains on a built-in sample'}"]
    if promise := recipe.promise:
        lines.append(f"# promises  {promise.bound} on {promise.split}, within {promise.minutes:g} min")
    if record is None:
        return [*lines, "# measured  not yet"]
    machine, run = (
        record["machine"],
        f"{record['minutes']:g} min, {record['steps']:,} steps, saccade {record['saccade']}",
    )
    lines.append(f"# measured  {record['date']}, {run}")
    lines.append(f"#           {machine['cpu']}, {machine['cores']} cores, torch {machine['torch']}")
    for split, scores in record["scores"].items():
        lines += [f"#           {split:<5} {parse_score(score)}" for score in scores]
    for sample in record["samples"]:
        lines.append(f"# predicts  {_join_lines(sample['input'])} -> {_join_lines(sample['answer'])}")
    return lines


def _join_lines(text: str) -> str:
    """
    >>> _join_lines("two\\nlines")
    'two / lines'
    """
    return " / ".join(text.split("\n"))


def _format_score(score: dict[str, Any]) -> str:
    from saccade.recipes.record import parse_score

    return str(parse_score(score)).split(")")[0].split(" ", 1)[1] + ")"
