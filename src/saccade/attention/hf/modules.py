"""Attention modules of a `transformers` model: which of them go through its attention interface, and the name of each.

A name is the side, the layer and the kind of attention, the same for all architectures: `encoder.0.self`, `decoder.3.cross`,
`vision_encoder.11.self`. `transformers` is never imported here: a module that comes from it has imported it already.
"""

import inspect
import re
import sys
from collections import Counter
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import nn

from saccade.errors import ModelError

MIN_VERSION = 5  # the first major version in which all attention modules call one attention interface
INTERFACE_NAME = "ALL_ATTENTION_FUNCTIONS"  # the global name by which a modeling file calls the interface
CROSS_ATTENTION = re.compile(r"cross|enc(oder)?_?dec|encoder_att", re.IGNORECASE)
INNER_ATTENTION = re.compile(r"attention(2|_)?$", re.IGNORECASE)  # class names of modules that compute attention
MODALITIES = {  # what a path calls one of several models inside a model, and how its side is named then
    "vision": "vision",
    "visual": "vision",
    "image": "vision",
    "audio": "audio",
    "speech": "audio",
    "text": "text",
    "qformer": "qformer",
}
MAX_NAMES_IN_MESSAGE = 3


@dataclass(frozen=True)
class AttentionModule:
    """One attention module: its path in the model, and where it stands."""

    path: str
    module: nn.Module
    side: str  # encoder or decoder, with the modality of a model of several: vision_encoder
    layer: int
    kind: str  # self or cross

    @property
    def name(self) -> str:
        return f"{self.side}.{self.layer}.{self.kind}"


def is_transformers_class(module_class: type) -> bool:
    """Whether a class, or one that it extends, comes from the package `transformers` or from code that it has downloaded."""
    names = {base.__module__.partition(".")[0] for base in module_class.__mro__}
    return not names.isdisjoint(("transformers", "transformers_modules"))


def find_transformers_model(model: nn.Module) -> nn.Module | None:
    """The model, or the first of its modules, that comes from `transformers`; None where there is none."""
    if "transformers" not in sys.modules:
        return None
    return next((module for module in model.modules() if is_transformers_class(type(module))), None)


@cache
def find_attention_interface(module_class: type) -> MutableMapping[str, Any] | None:
    """The attention interface that the `forward` of a class calls; None where it computes attention by itself, or none."""
    forward = inspect.unwrap(getattr(module_class, "forward", None) or (lambda: None))
    code, names = getattr(forward, "__code__", None), getattr(forward, "__globals__", {})
    if code is None or INTERFACE_NAME not in code.co_names:
        return None
    interface = names.get(INTERFACE_NAME)
    return interface if isinstance(interface, MutableMapping) else None


def list_attention_modules(model: nn.Module) -> dict[str, AttentionModule]:
    """Every module that calls the attention interface of `transformers`, by name, in the order of definition."""
    if "transformers" not in sys.modules:
        return {}
    paths = {
        path.replace("_orig_mod.", "").removesuffix("_orig_mod"): module
        for path, module in model.named_modules()
        if find_attention_interface(type(module)) is not None
    }
    if not paths:
        return {}
    _check_version()
    return _name_modules(paths)


def _check_version() -> None:
    version = str(getattr(sys.modules["transformers"], "__version__", "0"))
    if int(version.partition(".")[0]) < MIN_VERSION:
        raise ModelError(
            f"transformers {version} is installed, and its models can be watched from version {MIN_VERSION} on, in which all "
            "attention goes through one interface. Install a newer one: pip install -U transformers"
        )


def _name_modules(paths: Mapping[str, nn.Module]) -> dict[str, AttentionModule]:
    """Names by side, layer and kind; where they would not differ, the layers are counted, or the path is the name."""
    found = [_locate(path, module) for path, module in paths.items()]
    names = Counter(one.name for one in found)
    groups: dict[tuple[str, str], list[AttentionModule]] = {}
    for one in found:
        groups.setdefault((one.side, one.kind), []).append(one)
    named: dict[str, AttentionModule] = {}
    for one in found:
        group = groups[one.side, one.kind]
        if all(names[other.name] == 1 for other in group):
            named[one.name] = one
        elif len({re.sub(r"\d+", "", other.path) for other in group}) == 1:  # blocks within stages, as in Swin
            counted = AttentionModule(one.path, one.module, one.side, group.index(one), one.kind)
            named[counted.name] = counted
        else:
            named[one.path] = one
    return named


def _locate(path: str, module: nn.Module) -> AttentionModule:
    parts = path.split(".")
    numbers = [at for at, part in enumerate(parts) if part.isdigit()]
    inside = parts[numbers[-1] + 1 :] if numbers else parts[-1:]
    before = parts[: numbers[0]] if numbers else parts[:-1]
    config = getattr(module, "config", None)
    cross = any(CROSS_ATTENTION.search(name) for name in [*inside, type(module).__name__])
    modality = next((MODALITIES[key] for part in before for key in MODALITIES if key in part), "")
    side = _find_side(before, module, config, cross)
    layer = getattr(module, "layer_idx", None)
    if not isinstance(layer, int) or isinstance(layer, bool):
        layer = int(parts[numbers[0]]) if numbers else 0
    return AttentionModule(
        path, module, f"{modality}_{side}" if modality else side, layer, "cross" if cross else "self"
    )


def _find_side(before: list[str], module: nn.Module, config: Any, cross: bool) -> str:
    """Encoder or decoder: as the path says, else a decoder is what is causal or attends to an encoder."""
    if any("decoder" in part for part in before):
        return "decoder"
    says_encoder = any("encoder" in part for part in before)
    if says_encoder and not getattr(config, "is_decoder", False):
        return "encoder"
    causal = getattr(config, "is_decoder", False) or getattr(module, "is_causal", False) is True
    return "decoder" if causal or cross else "encoder"


def find_modules_without_interface(model: nn.Module) -> dict[str, nn.Module]:
    """Modules that are called attention and compute it without the attention interface, by path: the innermost of each."""
    modules = dict(model.named_modules())
    through = [path for path, module in modules.items() if find_attention_interface(type(module)) is not None]
    candidates = {
        path: module
        for path, module in modules.items()
        if INNER_ATTENTION.search(type(module).__name__)
        and is_transformers_class(type(module))
        and not any(path == other or _is_inside(path, other) or _is_inside(other, path) for other in through)
    }
    return {
        path: module for path, module in candidates.items() if not any(_is_inside(other, path) for other in candidates)
    }


def _is_inside(path: str, other: str) -> bool:
    return path.startswith(f"{other}.") if other else bool(path)


def make_unsupported_error(model: nn.Module) -> ModelError:
    """The error for a model of `transformers` of which no attention goes through the interface."""
    name = type(model).__name__
    architecture = getattr(getattr(model, "config", None), "model_type", "")
    about = f"{name} ({architecture})" if architecture else name
    classes = sorted({type(module).__name__ for module in find_modules_without_interface(model).values()})
    if not classes:
        return ModelError(
            f"{about} has no module that calls the attention interface of transformers: nothing to watch."
        )
    return ModelError(
        f"{about} cannot be watched: {join_names(classes)} computes attention without the attention interface of transformers. "
        "Its own weights, of all layers at once, are model(..., output_attentions=True).attentions. If `saccade models` lists "
        "the architecture, saccade.load opens its directory as a model that can be watched"
    )


def join_names(names: list[str]) -> str:
    shown = names[:MAX_NAMES_IN_MESSAGE]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")
