"""`saccade models [NAME]`: a table of the model families, or the architecture of one as a tree of modules."""

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
        width = max(len(line["name"]) for line in lines) + 2
        header = {"name": "family", "weights": "published weights", "description": "description"}
        table = [f"{x['name']:{width}}{x['weights']:20}{x['description']}" for x in [header, *lines]]
        table += ["", "saccade models NAME prints the architecture of one."]
        print(encoder.dumps(lines, indent=2) if json else "\n".join(table))
        return 0
    try:
        family = get_family(name)
    except ValueError as error:
        print(f"saccade models: {error}", file=sys.stderr)
        return 2
    from saccade.models.meta_init import meta_init

    config = family.config_class()
    with meta_init():  # allocates no memory
        model = family.new_body(config)
    count = sum(p.numel() for p in model.parameters())
    if json:
        record = {"name": name, "parameters": count, "config": asdict(config)}
        print(encoder.dumps(record, default=str, indent=2))
        return 0
    print(f"{family.name}: {family.description}\n")
    print("  " + "  ".join(f"{f.name}={getattr(config, f.name)}" for f in fields(config)) + "\n")
    print("\n".join(f"  {line}" for line in describe_modules(model)))
    print(f"\n  {count:,} parameters; heads: {', '.join(family.heads) or 'built in'}")
    return 0


def describe_weights(family: "Family") -> str:
    """Whether published weights of a family can be imported and exported."""
    if family.weight_map is not None:
        return "import and export"
    return "import" if family.import_only else "none"


def describe_modules(model) -> list[str]:
    """A line per module, with one layer of each list: name, number of parameters, type and kind of attention."""
    from torch import nn

    from saccade.attention import Mechanism
    from saccade.parts.multihead_attention import Attention
    from saccade.parts.stack import Stack

    lines: list[str] = []

    def walk(name: str, module: nn.Module, depth: int) -> None:
        label = f"{'  ' * depth}{name}"
        count = sum(p.numel() for p in module.parameters())
        text = type(module).__name__
        if isinstance(module, Attention):
            kind = "cross-attention" if "across" in name else "self-attention"
            heads = module.query.out_features // module.head_width
            text += f" ({kind}): {heads} heads of width {module.head_width}, {type(module.mechanism).__name__}"
        elif isinstance(module, Stack):
            patterns = " or ".join(map(str, dict.fromkeys(module.patterns)))
            schemes = dict.fromkeys(type(module.position.for_layer(i)).__name__ for i in range(len(module.layers)))
            text += f" of {len(module.layers)} layers, pattern {patterns}, {' or '.join(schemes)} positions"
        elif isinstance(module, nn.Linear):
            text += f" {module.in_features} to {module.out_features}"
        elif isinstance(module, nn.Embedding):
            text += f" {module.num_embeddings} x {module.embedding_dim}"
        lines.append(f"{label:42}{count:>13,}  {text}")
        if isinstance(module, (Attention, Mechanism, nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm)):
            return
        children = list(module.named_children())
        if isinstance(module, nn.ModuleList) and len(children) > 1:
            walk(f"0 (one of {len(children)})", children[0][1], depth + 1)
            return
        for child_name, child in children:
            label = f"{name.split('.')[-1]} branch" if child_name == "branch" and name == "across" else child_name
            if any(True for _ in child.parameters()):
                walk(label, child, depth + 1)

    walk("model", model, 0)
    return lines
