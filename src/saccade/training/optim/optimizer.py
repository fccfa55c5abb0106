"""Builds the optimizer: AdamW or Muon, with parameter groups for weight decay, layer-wise learning-rate decay and freezing."""

from collections.abc import Iterator

import torch
from torch import nn

from saccade.errors import UsageError
from saccade.models.model import Model
from saccade.training.config import Config
from saccade.training.optim.muon import Muon


def make_optimizer(model: Model, config: Config) -> torch.optim.AdamW:
    """The optimizer of `config.optimizer` for all parameters that are not frozen.

    Weight decay applies to matrices, not to biases and norms. Each group has an `lr_scale`, by which the training loop multiplies
    the learning rate at every step.
    """
    groups: dict[tuple[float, float, bool], list[nn.Parameter]] = {}
    layer_parameters = _layer_parameter_names(model)
    for name, parameter, lr_scale in select_trainable(model, config):
        is_matrix = parameter.dim() > 1 and parameter.shape[:2] != (1, 1)  # the class token of a ViT is (1, 1, W)
        use_muon = config.optimizer == "muon" and parameter.dim() == 2 and name in layer_parameters
        groups.setdefault((lr_scale, config.weight_decay if is_matrix else 0.0, use_muon), []).append(parameter)
    if not groups:
        raise UsageError(
            "There is nothing to train: every parameter is frozen. Lower train.freeze_layers, or give the model a head."
        )
    param_groups = [
        {"params": members, "lr_scale": lr_scale, "weight_decay": weight_decay, "use_muon": use_muon}
        for (lr_scale, weight_decay, use_muon), members in groups.items()
    ]
    fused = all(parameter.device.type in ("cpu", "cuda") for members in groups.values() for parameter in members)
    optimizer_class = Muon if config.optimizer == "muon" else torch.optim.AdamW
    optimizer = optimizer_class(param_groups, lr=config.lr, betas=(0.9, 0.98), eps=1e-8, fused=fused)
    if isinstance(optimizer, Muon) and config.precision == "bfloat16":
        optimizer.matmul_dtype = torch.bfloat16
    return optimizer


def select_trainable(model: Model, config: Config) -> Iterator[tuple[str, nn.Parameter, float]]:
    """Yield the name, parameter and learning-rate scale of each trainable parameter; sets `requires_grad` of all parameters."""
    named, capabilities = list(model.named_parameters()), model.capabilities
    layers = {name: capabilities.layer_of(name.removeprefix("body.")) for name, _ in named if name.startswith("body.")}
    depth = 1 + max((found[0] for found in layers.values() if found), default=-1)
    for name, parameter in named:
        body, layer = name.startswith("body."), layers.get(name)
        # embeddings are below the first layer; what follows the last layer (a head, a final norm) has the full rate
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
    """Names of the parameters inside layers, also those of a model within the model, such as the generator of ELECTRA."""
    models = [(f"{name}.body." if name else "body.", m) for name, m in model.named_modules() if isinstance(m, Model)]
    named = [name for name, _ in model.named_parameters()]
    return {
        name
        for prefix, m in models
        for name in named
        if name.startswith(prefix) and m.capabilities.layer_of(name[len(prefix) :])
    }
