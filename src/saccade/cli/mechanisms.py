"""`saccade mechanisms [NAME]`: every mechanism in a table, or one of them drawn."""

import inspect
import json as encoder
import sys
from pathlib import Path
from textwrap import indent
from typing import Annotated

import tyro

from saccade.errors import UsageError

Name = tyro.conf.Positional[Annotated[str | None, tyro.conf.arg(metavar="[NAME]")]]


def main(
    name: Name = None,
    *,
    size: int = 24,
    out: Path = Path("."),
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """List every attention mechanism with its formula, cost and what it honours; with a NAME, explain and draw that one.

    saccade mechanisms

    saccade mechanisms bigbird (writes the picture bigbird.png)

    saccade mechanisms bigbird --size 48 --out pictures

    Args:
        name: The mechanism to draw, such as scaled_dot, additive, bigbird or hashed.
        size: How many tokens to draw it on.
        out: The directory for the picture.
        json: Print the table, or the weights, as JSON and draw nothing.
    """
    from saccade.attention import HONOURS, MECHANISMS, mechanism
    from saccade.explain.show import show

    if name is None:
        print(encoder.dumps([_line(entry) for entry in MECHANISMS], indent=2) if json else _table())
        return 0
    try:
        entry = mechanism(name)
        if not 2 <= size <= 512:
            raise UsageError(f"A drawing has from 2 to 512 tokens; got --size {size}.")
    except ValueError as error:
        print(f"saccade mechanisms: {error}", file=sys.stderr)
        return 2
    shown = show(name, size)
    if json:
        print(encoder.dumps(_line(entry) | {"weights": {k: w.tolist() for k, w in shown.weights.items()}}))
        return 0
    from saccade.explain.picture import save

    module = entry.make(8, 2, 64)
    docs = [inspect.getdoc(inspect.getmodule(type(module)))]
    if type(module.normaliser).__name__ not in ("Softmax", type(module).__name__):
        docs.append(f"{type(module.normaliser).__name__}: {inspect.getdoc(type(module.normaliser))}".split(">>>")[0])
    print(f"{entry.name}: {entry.formula}    ({entry.paper}; cost {entry.cost})\n")
    print(indent("\n\n".join((doc or "").strip() for doc in docs), "  ") + "\n")
    print(f"  honours  {', '.join(key for key in HONOURS if key in entry.honours)}")
    print(f"  does not {', '.join(key for key in HONOURS if key not in entry.honours) or '-'}\n")
    print(indent(shown.text(), "  ") + "\n")
    if name == "hashed":
        print(f"  of the 8 keys that full attention weighs most, the hash lets a query see {_recall(size):.0%}\n")
    path = save(out / f"{name}.png", shown.maps(), title=f"{entry.name}: {entry.formula}", columns=2)
    print(f"  picture: {path}")
    return 0


def _table() -> str:
    """A row for each mechanism, a dot for each thing that it honours."""
    from saccade.attention import HONOURS, MECHANISMS

    wide = max(len(entry.name) for entry in MECHANISMS)
    formula = max(len(entry.formula) for entry in MECHANISMS)
    cost = max(len(entry.cost) for entry in MECHANISMS)
    head = f"{'':{wide}}  {'weights':{formula}}  {'cost':{cost}}  "
    lines = [head + " ".join(HONOURS)]
    for entry in MECHANISMS:
        marks = " ".join(("●" if key in entry.honours else "·").center(len(key)) for key in HONOURS)
        lines.append(f"{entry.name:{wide}}  {entry.formula:{formula}}  {entry.cost:{cost}}  {marks}")
    notes = [f"  {key:12} {said}" for key, said in HONOURS.items()]
    return "\n".join([*lines, "", *notes, "", "saccade mechanisms NAME explains one and draws it."])


def _line(entry) -> dict:
    fields = ("name", "formula", "paper", "cost")
    return {key: getattr(entry, key) for key in fields} | {"honours": sorted(entry.honours)}


def _recall(size: int) -> float:
    from saccade.attention import Hashed, mechanism, recall
    from saccade.explain.show import HEADS, WIDTH, scene

    x, made = scene(size), mechanism("hashed").make(WIDTH, HEADS, size)
    assert isinstance(made, Hashed)
    return recall(made, x, x)
