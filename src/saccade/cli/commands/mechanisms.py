"""`saccade mechanisms [NAME]`: a table of the attention mechanisms, or the formula and plot of one."""

import inspect
import json as encoder
import sys
from pathlib import Path
from textwrap import indent
from typing import Annotated

import tyro

from saccade.cli.argument_types import optional_argument
from saccade.errors import UsageError

Name = tyro.conf.Positional[Annotated[str | None, optional_argument("[NAME]")]]


def main(
    name: Name = None,
    *,
    tokens: int = 24,
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("."),
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """List the attention mechanisms with formula, cost and supported features; with a NAME, explain and plot that one.

    saccade mechanisms

    saccade mechanisms bigbird

    saccade mechanisms bigbird --tokens 48 --out plots

    Args:
        name: Mechanism to explain and plot (NAME.png), such as scaled_dot, additive, bigbird or lsh.
        tokens: Number of tokens in the plot.
        out: Output directory of the plot.
        json: Print the table or the attention weights as JSON, without a plot.
    """
    from saccade.attention import FEATURES, MECHANISMS, get_mechanism
    from saccade.explain.mechanism_demo import run_mechanism_demo

    if name is None:
        print(encoder.dumps([_describe_entry(entry) for entry in MECHANISMS], indent=2) if json else _format_table())
        return 0
    try:
        entry = get_mechanism(name)
        if not 2 <= tokens <= 512:
            raise UsageError(f"--tokens is {tokens}; it must be from 2 to 512.")
    except ValueError as error:
        print(f"saccade mechanisms: {error}", file=sys.stderr)
        return 2
    demo = run_mechanism_demo(name, tokens)
    if json:
        print(encoder.dumps(_describe_entry(entry) | {"weights": {k: w.tolist() for k, w in demo.weights.items()}}))
        return 0
    from saccade.render.plot import save_panels

    module = entry.make(8, 2, 64)
    docs = [inspect.getdoc(inspect.getmodule(type(module)))]
    if type(module.normalizer).__name__ not in ("Softmax", type(module).__name__):
        docs.append(f"{type(module.normalizer).__name__}: {inspect.getdoc(type(module.normalizer))}".split(">>>")[0])
    source = f"{entry.paper}; " if entry.paper else ""
    print(f"{entry.name}: {entry.formula}    ({source}cost {entry.cost})\n")
    print(indent("\n\n".join((doc or "").strip() for doc in docs), "  ") + "\n")
    print(f"  supported:     {', '.join(key for key in FEATURES if key in entry.supports) or '-'}")
    print(f"  not supported: {', '.join(key for key in FEATURES if key not in entry.supports) or '-'}\n")
    print(indent(demo.to_text(), "  ") + "\n")
    if name == "lsh":
        recall = f"{_measure_lsh_recall(tokens):.0%}"
        print(f"  recall: hashing finds {recall} of the 8 keys with the highest weights in full attention\n")
    path = save_panels(out / f"{name}.png", demo.to_heatmaps(), title=f"{entry.name}: {entry.formula}", columns=2)
    print(f"  plot: {path}")
    return 0


def _format_table() -> str:
    """The table of mechanisms: name, formula, cost, and a dot for each supported feature."""
    from saccade.attention import FEATURES, MECHANISMS

    name = max(len(entry.name) for entry in MECHANISMS)
    formula = max(len(entry.formula) for entry in MECHANISMS)
    cost = max(len(entry.cost) for entry in MECHANISMS)
    lines = [f"{'':{name}}  {'weights':{formula}}  {'cost':{cost}}  " + " ".join(FEATURES)]
    for entry in MECHANISMS:
        marks = " ".join(("●" if key in entry.supports else "·").center(len(key)) for key in FEATURES)
        lines.append(f"{entry.name:{name}}  {entry.formula:{formula}}  {entry.cost:{cost}}  {marks}")
    features = [f"  {key:15} {description}" for key, description in FEATURES.items()]
    return "\n".join([*lines, "", *features, "", "saccade mechanisms NAME explains and plots one."])


def _describe_entry(entry) -> dict:
    fields = ("name", "formula", "paper", "cost")
    return {key: getattr(entry, key) for key in fields} | {"supports": sorted(entry.supports)}


def _measure_lsh_recall(tokens: int) -> float:
    from saccade.attention import LSHAttention, get_mechanism, lsh_recall
    from saccade.explain.mechanism_demo import DEMO_HEADS, DEMO_WIDTH, make_spiral_tokens

    x, mechanism = make_spiral_tokens(tokens), get_mechanism("lsh").make(DEMO_WIDTH, DEMO_HEADS, tokens)
    assert isinstance(mechanism, LSHAttention)
    return lsh_recall(mechanism, x, x)
