"""`saccade recipes`: the results we claim, each a short file."""

from importlib.resources import files
from typing import Annotated

import tyro


def main(show: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[show NAME]")] = ()) -> int:
    """List the recipes, or show one.

    saccade recipes

    saccade recipes show dates

    saccade train dates
    """
    from saccade.cli.running import guarded

    return guarded("recipes", lambda: _recipes(list(show)))


def _recipes(words: list[str]) -> int:
    from saccade.attention.table import nearest
    from saccade.cli.settings import Wrong, recipes

    known = recipes()
    if not words:
        wide = max(map(len, known)) + 3
        for name, recipe in known.items():
            print(f"{name.ljust(wide)}{recipe.said}")
        print("\nsaccade recipes show NAME prints one, saccade train NAME trains it.")
        return 0
    name = words[-1]
    if name not in known:
        raise Wrong(f"There is no recipe {name!r}; {nearest(name, list(known))}")
    print((files("saccade") / "recipes" / f"{name}.toml").read_text(encoding="utf-8"), end="")
    return 0
