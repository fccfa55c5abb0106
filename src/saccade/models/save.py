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
from saccade.models.generation import FILE as GENERATION
from saccade.models.generation import token_ids, write_generation, writes
from saccade.models.labels import LABELLED, write_labels
from saccade.models.model import Model
from saccade.models.pooling import Pooling
from saccade.models.preprocessor import FILE as PREPROCESSOR
from saccade.models.preprocessor import write_preprocessor
from saccade.models.sentence_files import write_pooling
from saccade.models.weights import to_theirs

NOTICE = "Not audited, not described."  # how the card of a model opens until both are done
README = f"""---
library_name: saccade
---
**{NOTICE}** Nobody has yet written down where the data of this model come from and whom it may harm, nor measured what it does
to whom. `saccade audit` measures, `saccade card --init` asks, and `saccade card` writes the card that belongs here.
"""


def save(model: Model, directory: str | Path, *, card: str | None = None) -> Path:
    """Write a model; an existing directory is replaced only when everything new is on disk.

    `card` is its README.md, whose hash the weights then carry; without one it says that there is none yet.
    """
    directory, tensors = Path(directory), _tensors(model)
    about = {"format": "pt"} | ({} if card is None else {"card": hashlib.sha256(card.encode()).hexdigest()})
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        save_file({n: x.contiguous() for n, x in sorted(tensors.items())}, temporary / "model.safetensors", about)
        (temporary / "README.md").write_text(README if card is None else card, encoding="utf-8")
        _write_configs(model, temporary)
        if model.tokenizer is not None:
            model.tokenizer.save(temporary, input_names=_input_names(model))
        if model.pooling != Pooling():
            write_pooling(model.pooling, int(model.body.width), temporary)  # type: ignore[arg-type]
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
    configs = {"config.json": _config(model)}
    if _is_published(model) and writes(model):
        configs[GENERATION] = write_generation(model, configs["config.json"])
    pictures = write_preprocessor(model.family.current(model.config, model.body)) if _is_published(model) else {}
    configs |= {PREPROCESSOR: pictures} if pictures else {}
    for name, config in configs.items():
        (directory / name).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _input_names(model: Model) -> list[str]:
    """What the published class reads: segments only where it has vectors for more than one."""
    segments = ["token_type_ids"] if asdict(model.config).get("segments", 1) > 1 else []
    return ["input_ids", *segments, "attention_mask"]


def _config(model: Model) -> dict[str, Any]:
    """What config.json says; what has no published form, such as a model with fewer heads, has a table of its own in it."""
    kind, config = model.family, model.family.current(model.config, model.body)
    labels = write_labels(model.labels, model.many) if model.kind in LABELLED else {}
    if not _is_published(model):
        head = {} if model.kind is None else {"head": model.kind}
        kept = {"kept": model.kept} if model.kept else {}
        return {"saccade": {"family": kind.name} | asdict(config)} | head | labels | kept
    written = kind.write(config)
    ids = token_ids(model) if "vocab_size" in written else {}
    if "pad_token_id" in kind.keys:  # positions are counted from it
        ids.pop("pad_token_id", None)
    written |= ids
    if model.kind is None:
        return written | {"architectures": [kind.architecture]}
    head = kind.heads[model.kind]
    return written | dict(head.also(config)) | labels | {"architectures": [head.architecture]}


def _is_published(model: Model) -> bool:
    """Whether it goes out in a form that others read too; `cut.whole` gives that of a model with fewer heads."""
    return model.family.published(model.config) and not model.kept


def _tensors(model: Model) -> dict[str, Tensor]:
    named = dict(model.named_parameters()) | {n: b for n, b in model.named_buffers() if n in model.state_dict()}
    # what stands beside both helps in training alone, as ELECTRA's generator does
    tensors = {name: x.detach() for name, x in named.items() if name.startswith(("body.", "head."))}
    return _published(model, tensors) if _is_published(model) else tensors


def _published(model: Model, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our names to published ones; with a head, the body's get their prefix."""
    kind = model.family
    assert kind.names is not None
    split = {
        part: {n.removeprefix(f"{part}."): x for n, x in tensors.items() if n.startswith(f"{part}.")}
        for part in ("body", "head")
    }
    body = to_theirs(split["body"], kind.names(model.config)) | _spares(model)
    if model.kind is None:
        bare = kind.architecture.endswith("Model") and "LMHead" not in kind.architecture
        return body if bare else {_prefixed(n, kind): x for n, x in body.items()}
    return {_prefixed(n, kind): x for n, x in body.items()} | to_theirs(split["head"], kind.heads[model.kind].names)


def _spares(model: Model) -> dict[str, Tensor]:
    """What the published class has beside our body: as it came, if that still fits, or made anew, the same every time."""
    out, dtype = {}, next(model.parameters()).dtype
    for name, make in model.family.spares(model.config, model.kind).items():
        fresh = make()
        came = model.carried.get(name, fresh)
        out[name] = (came if came.shape == fresh.shape else fresh).to(dtype)
    return out


def _prefixed(name: str, kind: Family) -> str:
    return name if any(re.fullmatch(pattern, name) for pattern in kind.beside) else kind.prefix + name
