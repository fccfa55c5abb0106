"""Models out: config, weights and tokenizer as a directory, in the published form where the family has one."""

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
from saccade.models.label_names import LABELED_HEADS, labels_to_hf
from saccade.models.model import Model
from saccade.models.pooling import Pooling
from saccade.models.weight_map import to_theirs

UNAUDITED_NOTICE = "Not audited, not described."  # how the card of a model opens until both are done
DEFAULT_README = f"""---
library_name: saccade
---
**{UNAUDITED_NOTICE}** Nobody has yet written down where the data of this model come from and whom it may harm, nor measured what
it does to whom. `saccade audit` measures, `saccade card --init` asks, and `saccade card` writes the card that belongs here.
"""


def save(model: Model, directory: str | Path, *, card: str | None = None) -> Path:
    """Write a model; an existing directory is replaced only when everything new is on disk.

    `card` is its README.md, whose hash the weights then carry; without one it says that there is none yet.
    """
    directory, tensors = Path(directory), _collect_tensors(model)
    about = {"format": "pt"} | ({} if card is None else {"card": hashlib.sha256(card.encode()).hexdigest()})
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        save_file({n: x.contiguous() for n, x in sorted(tensors.items())}, temporary / "model.safetensors", about)
        (temporary / "README.md").write_text(DEFAULT_README if card is None else card, encoding="utf-8")
        _write_configs(model, temporary)
        if model.tokenizer is not None:
            model.tokenizer.save(temporary, model_input_names=_input_names(model))
        if model.pooling != Pooling():
            write_pooling(model.pooling, model.width, temporary)
        (temporary / "model.safetensors").chmod(0o644)  # a temporary file is private, a model is not
        temporary.chmod(0o755)
        if directory.exists():
            shutil.rmtree(directory)
        temporary.rename(directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return directory


def _write_configs(model: Model, directory: Path) -> None:
    """config.json; for published models that write generation_config.json, that read pictures preprocessor_config.json."""
    configs = {"config.json": _make_config_json(model)}
    if _is_published(model) and is_autoregressive(model):
        configs[GENERATION] = make_generation_config(model, configs["config.json"])
    pictures = (
        make_preprocessor_config(model.family.config_of_body(model.config, model.body)) if _is_published(model) else {}
    )
    configs |= {PREPROCESSOR: pictures} if pictures else {}
    for name, config in configs.items():
        (directory / name).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _input_names(model: Model) -> list[str]:
    """What the published class reads: segments only where it has vectors for more than one."""
    segments = ["token_type_ids"] if asdict(model.config).get("segments", 1) > 1 else []
    return ["input_ids", *segments, "attention_mask"]


def _make_config_json(model: Model) -> dict[str, Any]:
    """What config.json says; what has no published form, such as a model with fewer heads, has a table of its own in it."""
    kind, config = model.family, model.family.config_of_body(model.config, model.body)
    labels = labels_to_hf(model.labels, model.multi_label) if model.head_name in LABELED_HEADS else {}
    if not _is_published(model):
        head = {} if model.head_name is None else {"head": model.head_name}
        kept = {"kept_heads": model.kept_heads} if model.kept_heads else {}
        return {"saccade": {"family": kind.name} | asdict(config)} | head | labels | kept
    written = kind.config_to_hf(config)
    ids = special_token_ids(model) if "vocab_size" in written else {}
    if "pad_token_id" in kind.config_keys:  # positions are counted from it
        ids.pop("pad_token_id", None)
    written |= ids
    if model.head_name is None:
        return written | {"architectures": [kind.architecture]}
    head = kind.heads[model.head_name]
    return written | dict(head.derived_keys(config)) | labels | {"architectures": [head.architecture]}


def _is_published(model: Model) -> bool:
    """Whether it goes out in a form that others read too; `prune_heads.unprune` gives that of a model with fewer heads."""
    return model.family.is_published(model.config) and not model.kept_heads


def _collect_tensors(model: Model) -> dict[str, Tensor]:
    named = dict(model.named_parameters()) | {n: b for n, b in model.named_buffers() if n in model.state_dict()}
    # what stands beside both helps in training alone, as ELECTRA's generator does
    tensors = {name: x.detach() for name, x in named.items() if name.startswith(("body.", "head."))}
    return _to_published_names(model, tensors) if _is_published(model) else tensors


def _to_published_names(model: Model, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our names to published ones; with a head, the body's get their prefix."""
    kind = model.family
    assert kind.weight_map is not None
    split = {
        part: {n.removeprefix(f"{part}."): x for n, x in tensors.items() if n.startswith(f"{part}.")}
        for part in ("body", "head")
    }
    body = to_theirs(split["body"], kind.weight_map(model.config)) | _extra_tensors(model)
    if model.head_name is None:
        bare = kind.architecture.endswith("Model") and "LMHead" not in kind.architecture
        return body if bare else {_add_prefix(n, kind): x for n, x in body.items()}
    return {_add_prefix(n, kind): x for n, x in body.items()} | to_theirs(
        split["head"], kind.heads[model.head_name].weight_map
    )


def _extra_tensors(model: Model) -> dict[str, Tensor]:
    """What the published class has beside our body: as it came, if that still fits, or made anew, the same every time."""
    out, dtype = {}, next(model.parameters()).dtype
    for name, make in model.family.extra_tensors_for(model.config, model.head_name).items():
        fresh = make()
        came = model.extra_tensors.get(name, fresh)
        out[name] = (came if came.shape == fresh.shape else fresh).to(dtype)
    return out


def _add_prefix(name: str, kind: Family) -> str:
    return name if any(re.fullmatch(pattern, name) for pattern in kind.unprefixed) else kind.prefix + name
