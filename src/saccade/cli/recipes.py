"""`saccade recipes`: the results we claim, each a short file, with what was promised and what was measured."""

from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    from saccade.cli.recipe import Recipe
    from saccade.cli.record import Record


def main(show: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[show NAME]")] = ()) -> int:
    """List the recipes with what they promise and what was measured, or show one.

    saccade recipes

    saccade recipes show dates

    saccade train dates
    """
    from saccade.cli.running import guarded

    return guarded("recipes", lambda: _recipes(list(show)))


def _recipes(words: list[str]) -> int:
    from saccade.attention.table import nearest
    from saccade.cli.recipe import text_of
    from saccade.cli.record import records
    from saccade.cli.settings import Wrong, recipes

    known, measured = recipes(), records()
    if not words:
        print(listed(known, measured))
        print("\nsaccade recipes show NAME prints one, saccade train NAME trains it.")
        return 0
    name = words[-1]
    if name not in known:
        raise Wrong(f"There is no recipe {name!r}; {nearest(name, list(known))}")
    print(text_of(name), end="")
    print()
    for line in shown(known[name], measured.get(name)):
        print(line)
    return 0


def listed(known: "dict[str, Recipe]", measured: "dict[str, Record]") -> str:
    """A line for each recipe: name, task, minutes, promise, and what was measured."""
    rows = [("recipe", "task", "within", "promised", "measured")]
    for name, recipe in known.items():
        promise = recipe.promise
        within, bound = (f"{promise.minutes:g} min", promise.bound) if promise is not None else ("", "")
        rows.append((name, recipe.task, within, bound, _brief(recipe, measured.get(name))))
    wide = [max(len(row[i]) for row in rows) + 2 for i in range(len(rows[0]))]
    return "\n".join("".join(cell.ljust(n) for cell, n in zip(row, wide, strict=True)).rstrip() for row in rows)


def _brief(recipe: "Recipe", record: "Record | None") -> str:
    from saccade.cli.record import mark, promised

    score = None if record is None else promised(recipe, record)
    if record is None or score is None:
        return "not yet"
    where, old = record["machine"], "" if record["mark"] == mark(recipe) else ", before the recipe changed"
    return (
        f"{_value(score)} in {record['minutes']:.0f} min, {record['date']}, {where['cpu']}, {where['cores']} cores{old}"
    )


def shown(recipe: "Recipe", record: "Record | None") -> list[str]:
    """What a recipe needs, why it is made as it is, and what was reached."""
    from saccade.cli.record import score_of

    found = (
        [f"# needs     {recipe.need}"]
        if str(recipe.need)
        else ["# needs     nothing: it trains on the package's own sample"]
    )
    if recipe.promise is not None:
        found.append(
            f"# promises  {recipe.promise.bound} on {recipe.promise.split}, within {recipe.promise.minutes:g} min"
        )
    if record is None:
        return [*found, "# measured  not yet"]
    where = record["machine"]
    found.append(
        f"# measured  {record['date']}, {record['minutes']:g} min, {record['steps']:,} steps, saccade {record['saccade']}"
    )
    found.append(f"#           {where['cpu']}, {where['cores']} cores, torch {where['torch']}")
    found += [f"#           {split:<5} {score_of(score)}" for split, some in record["scores"].items() for score in some]
    for sample in record["samples"]:
        found.append(f"# answers   {_line(sample['input'])} -> {_line(sample['answer'])}")
    return found


def _line(text: str) -> str:
    """
    >>> _line("two\\nlines")
    'two / lines'
    """
    return " / ".join(text.split("\n"))


def _value(score: dict[str, Any]) -> str:
    from saccade.cli.record import score_of

    return str(score_of(score)).split(")")[0].split(" ", 1)[1] + ")"
