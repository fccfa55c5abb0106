"""`saccade models [NAME]`: every family in a table, or one of them drawn as it is assembled."""

import json as encoder
import sys
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Annotated

import tyro

from saccade.cli.argument_types import optional_argument

if TYPE_CHECKING:
    from saccade.models.family import Family

Name = tyro.conf.Positional[Annotated[str | None, optional_argument("[NAME]")]]


def main(name: Name = None, *, json: tyro.conf.FlagCreatePairsOff[bool] = False) -> int:
    """List the model families; with a NAME, print the architecture of one at its default size.

    saccade models

    saccade models gpt2

    Args:
        name: Model family to print, such as bert, gpt2, t5 or rnn.
        json: Print the list or the default config as JSON.
    """
    from saccade.models.registry import FAMILIES, get_family

    if name is None:
        lines = [{"name": f.name, "description": f.description, "weights": describe_weights(f)} for f in FAMILIES]
        wide = max(len(line["name"]) for line in lines) + 2
        table = [f"{x['name']:{wide}}{x['weights']:20}{x['description']}" for x in lines]
        table += ["", "saccade models NAME prints the architecture of one."]
        print(encoder.dumps(lines, indent=2) if json else "\n".join(table))
        return 0
    try:
        found = get_family(name)
    except ValueError as error:
        print(f"saccade models: {error}", file=sys.stderr)
        return 2
    from saccade.models.meta_init import meta_init

    with meta_init():  # nothing is allocated
        model = found.new_body(found.config_class())
    count = sum(p.numel() for p in model.parameters())
    if json:
        print(
            encoder.dumps(
                {"name": name, "parameters": count, "config": asdict(found.config_class())}, default=str, indent=2
            )
        )
        return 0
    print(f"{found.name}: {found.description}\n")
    usual = found.config_class()
    print("  " + "  ".join(f"{f.name}={getattr(usual, f.name)}" for f in fields(usual)) + "\n")
    print("\n".join(f"  {line}" for line in describe_modules(model)))
    print(f"\n  {count:,} parameters; heads: {', '.join(found.heads) or 'its own'}")
    return 0


def describe_weights(family: "Family") -> str:
    """Where the weights of a family come from and can go to."""
    if family.weight_map is not None:
        return "weights in and out"
    return "weights in" if family.import_only else "from scratch"


def describe_modules(model) -> list[str]:
    """A line for each part, with repeated layers folded into one: what it is, how many parameters, who looks at whom."""
    from torch import nn

    from saccade.attention import Mechanism
    from saccade.parts.multihead_attention import Attention
    from saccade.parts.stack import Stack

    lines: list[str] = []

    def size(module) -> str:
        return f"{sum(p.numel() for p in module.parameters()):>13,}"

    def walk(name: str, module: nn.Module, depth: int) -> None:
        label = f"{'  ' * depth}{name}"
        said = type(module).__name__
        if isinstance(module, Attention):
            look = "looks across" if "across" in name else "looks at itself"
            heads = module.query.out_features // module.head_width
            said += f" {look}: {heads} heads of {module.head_width}, {type(module.mechanism).__name__}"
        elif isinstance(module, Stack):
            seen = " or ".join(map(str, dict.fromkeys(module.patterns)))
            schemes = dict.fromkeys(type(module.position.for_layer(i)).__name__ for i in range(len(module.layers)))
            said += f" of {len(module.layers)} layers, sees {seen}, {' or '.join(schemes)} positions"
        elif isinstance(module, nn.Linear):
            said += f" {module.in_features} to {module.out_features}"
        elif isinstance(module, nn.Embedding):
            said += f" {module.num_embeddings} x {module.embedding_dim}"
        lines.append(f"{label:42}{size(module)}  {said}")
        if isinstance(module, (Attention, Mechanism, nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm)):
            return
        children = list(module.named_children())
        if isinstance(module, nn.ModuleList) and len(children) > 1:
            walk(f"0 (one of {len(children)})", children[0][1], depth + 1)
            return
        for child, part in children:
            inner = f"{name.split('.')[-1]} branch" if child == "branch" and name == "across" else child
            if any(True for _ in part.parameters()):
                walk(inner, part, depth + 1)

    walk("model", model, 0)
    return lines
