"""Saves a model as a directory with config, weights and tokenizer, in the published form if the family has one."""

import hashlib
import json
import re
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from saccade.models.family import Family
from saccade.models.io.generation_config import GENERATION_CONFIG_FILE as GENERATION
from saccade.models.io.generation_config import is_autoregressive, make_generation_config, special_token_ids
from saccade.models.io.preprocessor_config import PREPROCESSOR_CONFIG_FILE as PREPROCESSOR
from saccade.models.io.preprocessor_config import make_preprocessor_config
from saccade.models.io.sentence_transformers_dir import write_pooling
from saccade.models.label_names import LABELED_HEADS, THRESHOLDS_KEY, labels_to_hf
from saccade.models.model import Model
from saccade.models.pooling import Pooling
from saccade.models.weight_map import to_theirs
from saccade.plugins import PLUGINS_KEY, find_used_plugins

UNAUDITED_NOTICE = "Not audited, not described."  # the first words of the model card until it is written
DEFAULT_README = f"""---
library_name: saccade
---
**{UNAUDITED_NOTICE}** The training data, intended use and risks of this model have not been documented, and it has not been
audited for bias. Run `saccade audit` to measure bias, `saccade card --init` to answer the questions of the model card, and
`saccade card` to write it.
"""


def save(model: Model, directory: str | Path, *, card: str | None = None) -> Path:
    """Save a model; an existing directory is replaced only after everything new has been written.

    `card` becomes README.md, and its hash is stored with the weights; without it, README.md says that there is no card yet.
    """
    directory, tensors = Path(directory), _collect_tensors(model)
    metadata = {"format": "pt"} | ({} if card is None else {"card": hashlib.sha256(card.encode()).hexdigest()})
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        save_file({n: x.contiguous() for n, x in sorted(tensors.items())}, temporary / "model.safetensors", metadata)
        (temporary / "README.md").write_text(DEFAULT_README if card is None else card, encoding="utf-8")
        _write_configs(model, temporary)
        if model.tokenizer is not None:
            model.tokenizer.save(temporary, model_input_names=_input_names(model))
        if model.pooling != Pooling():
            write_pooling(model.pooling, model.width, temporary)
        (temporary / "model.safetensors").chmod(0o644)  # temporary files are private by default
        temporary.chmod(0o755)
        if directory.exists():
            shutil.rmtree(directory)
        temporary.rename(directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return directory


def _write_configs(model: Model, directory: Path) -> None:
    """Write config.json, and for published models generation_config.json (text) or preprocessor_config.json (images)."""
    config = model.family.config_of_body(model.config, model.body)
    plugins = find_used_plugins(config=config, family=model.family.name)
    configs = {"config.json": _make_config_json(model) | ({PLUGINS_KEY: plugins} if plugins else {})}
    if _is_published(model) and is_autoregressive(model):
        configs[GENERATION] = make_generation_config(model, configs["config.json"])
    if _is_published(model):
        preprocessor = make_preprocessor_config(config)
        configs |= {PREPROCESSOR: preprocessor} if preprocessor else {}
    for name, content in configs.items():
        (directory / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _input_names(model: Model) -> list[str]:
    """The input names of the published class; token_type_ids only if it has more than one segment."""
    segments = ["token_type_ids"] if asdict(model.config).get("segments", 1) > 1 else []
    return ["input_ids", *segments, "attention_mask"]


def _make_config_json(model: Model) -> dict[str, Any]:
    """The content of config.json; models without a published form, such as pruned ones, have a table `saccade` in it."""
    family, config = model.family, model.family.config_of_body(model.config, model.body)
    labels = labels_to_hf(model.labels, model.multi_label) if model.head_name in LABELED_HEADS else {}
    labels |= {THRESHOLDS_KEY: model.thresholds} if model.thresholds and model.multi_label else {}
    if not _is_published(model):
        head = {} if model.head_name is None else {"head": model.head_name}
        kept = {"kept_heads": model.kept_heads} if model.kept_heads else {}
        return {"saccade": {"family": family.name} | asdict(config)} | head | labels | kept
    published_config = family.config_to_hf(config)
    ids = special_token_ids(model) if "vocab_size" in published_config else {}
    if "pad_token_id" in family.config_keys:  # position ids start after it
        ids.pop("pad_token_id", None)
    published_config |= ids
    if model.head_name is None:
        return published_config | {"architectures": [family.architecture]}
    head = family.heads[model.head_name]
    return published_config | dict(head.derived_keys(config)) | labels | {"architectures": [head.architecture]}


def _is_published(model: Model) -> bool:
    """Whether the model is saved in the published form; for a pruned model, use `prune_heads.unprune` first."""
    return model.family.is_published(model.config) and not model.kept_heads


def _collect_tensors(model: Model) -> dict[str, Tensor]:
    all_tensors = dict(model.named_parameters()) | {n: b for n, b in model.named_buffers() if n in model.state_dict()}
    # other modules, such as ELECTRA's generator, are used in training only
    tensors = {name: x.detach() for name, x in all_tensors.items() if name.startswith(("body.", "head."))}
    return _to_published_names(model, tensors) if _is_published(model) else tensors


def _to_published_names(model: Model, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors to their published names; with a head, those of the body get their prefix."""
    family = model.family
    assert family.weight_map is not None
    tensors_of = {
        module: {n.removeprefix(f"{module}."): x for n, x in tensors.items() if n.startswith(f"{module}.")}
        for module in ("body", "head")
    }
    body = to_theirs(tensors_of["body"], family.weight_map(model.config)) | _extra_tensors(model)
    if model.head_name is None:
        is_bare = family.architecture.endswith("Model") and "LMHead" not in family.architecture
        return body if is_bare else {_add_prefix(n, family): x for n, x in body.items()}
    return {_add_prefix(n, family): x for n, x in body.items()} | to_theirs(
        tensors_of["head"], family.heads[model.head_name].weight_map
    )


def _extra_tensors(model: Model) -> dict[str, Tensor]:
    """Tensors of the published class that saccade does not use: as loaded if the shape still matches, else default values."""
    out, dtype = {}, next(model.parameters()).dtype
    for name, make in model.family.extra_tensors_for(model.config, model.head_name).items():
        default = make()
        loaded = model.extra_tensors.get(name, default)
        out[name] = (loaded if loaded.shape == default.shape else default).to(dtype)
    return out


def _add_prefix(name: str, kind: Family) -> str:
    return name if any(re.fullmatch(pattern, name) for pattern in kind.unprefixed) else kind.prefix + name
