"""What is learnt and how fast: AdamW, or Muon, on groups of parameters that differ in rate and decay."""

import re
from collections.abc import Iterator

import torch
from torch import nn

from saccade.errors import UsageError
from saccade.training.config import Config
from saccade.training.muon import Muon

LAYER = re.compile(r"\b(?:layers?|stages)\.(\d+)\b")


def optimizer(model: nn.Module, config: Config) -> torch.optim.AdamW:
    """What `config.optimizer` says, over what is not frozen. Matrices decay, biases and norms do not; lower layers may
    learn more slowly.

    Each group has its own `share` of the rate, which the loop sets at every step.
    """
    groups: dict[tuple[float, float, bool], list[nn.Parameter]] = {}
    for name, parameter, share in shares(model, config):
        matrix = parameter.dim() > 1 and parameter.shape[:2] != (1, 1)  # ViT's one vector for the whole is (1, 1, W)
        turned = config.optimizer == "muon" and parameter.dim() == 2 and bool(LAYER.search(name))
        groups.setdefault((share, config.decay if matrix else 0.0, turned), []).append(parameter)
    if not groups:
        raise UsageError(
            "Nothing is left to learn: every parameter is frozen. Lower train.freeze, or give the model a head."
        )
    made = [
        {"params": members, "share": share, "weight_decay": decay, "turned": turned}
        for (share, decay, turned), members in groups.items()
    ]
    fused = all(parameter.device.type in ("cpu", "cuda") for members in groups.values() for parameter in members)
    kind = Muon if config.optimizer == "muon" else torch.optim.AdamW
    built = kind(made, lr=config.rate, betas=(0.9, 0.98), eps=1e-8, fused=fused)
    if isinstance(built, Muon) and config.precision == "bfloat16":
        built.products = torch.bfloat16
    return built


def shares(model: nn.Module, config: Config) -> Iterator[tuple[str, nn.Parameter, float]]:
    """Each parameter that is learnt, its name and its share of the rate; the others are told to stay as they are."""
    named = list(model.named_parameters())
    depth = 1 + max((_layer(name) for name, _ in named), default=-1)
    for name, parameter in named:
        body = name.startswith("body.")
        # the words stand below the first layer; what follows the last one (a head, a last norm) learns at the full rate
        above = depth - 1 - _layer(name) if _layer(name) >= 0 else depth if _below(name) else -1
        frozen = body and (
            config.freeze < 0 or (above >= 0 and depth - 1 - above < config.freeze and config.freeze > 0)
        )
        parameter.requires_grad_(not frozen)
        if not frozen:
            yield name, parameter, config.layer_rate ** (above + 1) if body else 1.0


def _layer(name: str) -> int:
    found = LAYER.search(name)
    return int(found.group(1)) if found and name.startswith("body.") else -1


def _below(name: str) -> bool:
    """Words, segments, positions and patches: what comes before the first layer."""
    parts = ("words.", "segments.", "position.", "patches.", "body.whole", ".enter.", "eye.")
    return any(part in name for part in parts)
