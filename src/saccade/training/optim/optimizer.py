"""What is learnt and how fast: AdamW, or Muon, on groups of parameters that differ in rate and decay."""

from collections.abc import Iterator

import torch
from torch import nn

from saccade.errors import UsageError
from saccade.models.model import Model
from saccade.training.config import Config
from saccade.training.optim.muon import Muon


def make_optimizer(model: Model, config: Config) -> torch.optim.AdamW:
    """What `config.optimizer` says, over what is not frozen. Matrices decay, biases and norms do not; lower layers may
    learn more slowly.

    Each group has its own `lr_scale` of the rate, which the loop sets at every step.
    """
    groups: dict[tuple[float, float, bool], list[nn.Parameter]] = {}
    hidden = _layer_parameter_names(model)
    for name, parameter, share in select_trainable(model, config):
        matrix = parameter.dim() > 1 and parameter.shape[:2] != (1, 1)  # ViT's one vector for the whole is (1, 1, W)
        turned = config.optimizer == "muon" and parameter.dim() == 2 and name in hidden
        groups.setdefault((share, config.weight_decay if matrix else 0.0, turned), []).append(parameter)
    if not groups:
        raise UsageError(
            "Nothing is left to learn: every parameter is frozen. Lower train.freeze_layers, or give the model a head."
        )
    made = [
        {"params": members, "lr_scale": share, "weight_decay": decay, "use_muon": turned}
        for (share, decay, turned), members in groups.items()
    ]
    fused = all(parameter.device.type in ("cpu", "cuda") for members in groups.values() for parameter in members)
    kind = Muon if config.optimizer == "muon" else torch.optim.AdamW
    built = kind(made, lr=config.lr, betas=(0.9, 0.98), eps=1e-8, fused=fused)
    if isinstance(built, Muon) and config.precision == "bfloat16":
        built.matmul_dtype = torch.bfloat16
    return built


def select_trainable(model: Model, config: Config) -> Iterator[tuple[str, nn.Parameter, float]]:
    """Each parameter that is learnt, its name and its share of the rate; the others are told to stay as they are."""
    named, capabilities = list(model.named_parameters()), model.capabilities
    layers = {name: capabilities.layer_of(name.removeprefix("body.")) for name, _ in named if name.startswith("body.")}
    depth = 1 + max((found[0] for found in layers.values() if found), default=-1)
    for name, parameter in named:
        body, layer = name.startswith("body."), layers.get(name)
        # the words stand below the first layer; what follows the last one (a head, a last norm) learns at the full rate
        below = body and capabilities.is_embedding(name.removeprefix("body."))
        above = depth - 1 - layer[0] if layer else depth if below else -1
        frozen = body and (
            config.freeze_layers < 0
            or (above >= 0 and depth - 1 - above < config.freeze_layers and config.freeze_layers > 0)
        )
        parameter.requires_grad_(not frozen)
        if not frozen:
            yield name, parameter, config.layer_decay ** (above + 1) if body else 1.0


def _layer_parameter_names(model: Model) -> set[str]:
    """The parameters of layers: of the model's own, and of a model within it, such as the generator of ELECTRA."""
    models = [(f"{name}.body." if name else "body.", m) for name, m in model.named_modules() if isinstance(m, Model)]
    named = [name for name, _ in model.named_parameters()]
    return {
        name
        for prefix, m in models
        for name in named
        if name.startswith(prefix) and m.capabilities.layer_of(name[len(prefix) :])
    }
