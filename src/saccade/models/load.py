"""Models in: a directory of ours or of Hugging Face, or a name on the hub, becomes a `Model`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade import text
from saccade.errors import ModelError
from saccade.models.build import new
from saccade.models.check_weights import check_decoder_start, check_fields, check_memory, check_segments
from saccade.models.family import Family
from saccade.models.foreign.unsupported_formats import describe_directory, describe_file, describe_quantization
from saccade.models.io import hub, model_dir
from saccade.models.io.generation_config import read_generation_config, read_token_ids
from saccade.models.io.preprocessor_config import describe_preprocessor
from saccade.models.io.sentence_transformers_dir import read_pooling
from saccade.models.label_names import (
    LABELED_HEADS,
    MULTI_LABEL_PROBLEM_TYPE,
    default_labels,
    describe_labels,
    labels_from_hf,
    resolve_labels,
)
from saccade.models.load_weights import load_tensors
from saccade.models.meta_init import meta_init
from saccade.models.model import LoadReport, Model
from saccade.models.override import override_dropout
from saccade.models.pooling import Pooling
from saccade.models.prune_heads import prune, read_kept_heads
from saccade.models.registry import FAMILIES, get_family
from saccade.models.save import save
from saccade.models.unused_heads import count_outputs, describe_dropped_heads
from saccade.suggest import suggest
from saccade.text.loading.safe_files import abbreviate, as_model_error

__all__ = ["NO_HEAD", "LoadReport", "Model", "Pooling", "get_family", "load", "new", "save"]

NO_HEAD = "body"  # asked for as a head: none, only the body
LAYER_COUNT_FIELDS = ("layers", "decoder_layers", "stages", "blocks_per_stage")  # each has tensors of its own
MAX_EXTRA_SPECIAL_TOKENS = 100_000  # special tokens that a tokenizer may have and the model not
TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "source.spm",
)


def load(
    name_or_path: str | Path,
    *,
    head: str | None = None,
    labels: Sequence[str] | int | None = None,
    overrides: Mapping[str, Any] | None = None,
    dtype: torch.dtype = torch.float32,
    family: str | None = None,
) -> Model:
    """A model from a directory or a name on the hub, in evaluation mode.

    Without `head` it has the head that the directory says it has. `head` asks for one ("lm", "label", "tag", "span"),
    loaded if it is there and new if it is not; `head="body"` asks for none. `labels` are names for what a label or tag head
    tells apart (or how many); a stored head with another number of them is left, and a new one begun. `overrides` say what is
    dropped when it is trained, such as {"dropout": 0.3}. `family` names the family of a directory whose config.json has no
    `model_type`. A weight of the body that is missing, or that has no place in it, is an error that lists it.
    """
    directory = resolve_model_dir(name_or_path)
    raw, kind, config = _read_config_json(directory, family)
    config = override_dropout(config, overrides or {}, str(name_or_path))
    found = dict(model_dir.iterate_tensors(model_dir.find_tensor_files(directory)))
    said = _stored_head(kind, raw)
    asked = None if head == NO_HEAD else head or said
    outputs = count_outputs(kind, asked, found) if said is None else None
    names = _resolve_head_labels(raw, said, asked, labels, directory, outputs)
    with as_model_error(str(directory / "config.json")), meta_init():  # nothing is allocated before sizes are checked
        _check_layer_count(config, len(found))
        body = kind.new_body(config)
    with as_model_error(str(directory / "config.json")):
        kept = read_kept_heads(raw) if "saccade" in raw else {}
        prune(body, kept)
    with meta_init():
        top = None if asked is None else kind.get_head(asked).build(config, body, len(names))
    model = Model(
        kind, config, body, top, asked, labels=names, multi_label=raw.get("problem_type") == MULTI_LABEL_PROBLEM_TYPE
    )
    model.kept_heads = kept
    check_memory(model, dtype.itemsize, directory)
    _load_weights(model, found, directory, raw, said, labels is not None, dtype)
    if asked in LABELED_HEADS and labels is None:
        model.report.notes += describe_labels(raw, names)
    if head is None and "saccade" not in raw:
        model.report.notes += describe_dropped_heads(kind, model.report, raw, said, list(found))
    model.pooling = read_pooling(directory, getattr(body, "width", 0))
    if "saccade" not in raw:
        model.special_token_ids = read_token_ids(raw, asdict(config).get("vocab"))
        model.generation_config = read_generation_config(directory)
        model.report.notes += describe_preprocessor(directory)
    _load_tokenizer(model, directory)
    return model.eval()


def read_family_and_config(name_or_path: str | Path) -> tuple[Family, Any]:
    """The family and the config of a stored model; of one on the hub nothing else is fetched."""
    _, kind, config = _read_config_json(resolve_model_dir(name_or_path, ("config.json",)))
    return kind, config


def _read_config_json(directory: Path, family_name: str | None = None) -> tuple[dict, Family, Any]:
    """What the config.json of a directory says, the family, which may be `named` where it says none, and its config."""
    raw = model_dir.read_json(directory / "config.json")
    with as_model_error(str(directory / "config.json")):
        kind = get_family(_family_name(raw, directory, family_name))
        quantized = describe_quantization(raw)
        if quantized:
            raise ModelError(quantized)
        return raw, kind, _check_config(_parse_config(kind, raw), directory)


def _load_weights(
    model: Model,
    tensors: dict[str, Tensor],
    directory: Path,
    raw: dict,
    stored_head: str | None,
    relabeled: bool,
    dtype: torch.dtype,
) -> None:
    """Weights from the files into the model, and a report of it."""
    published = "saccade" not in raw
    with as_model_error(str(directory)):
        try:
            load_tensors(
                model,
                tensors,
                is_published=published,
                stored_head=stored_head,
                relabeled=relabeled,
                dtype=dtype,
                directory=directory,
            )
        except RuntimeError as error:
            whole = [f"{n} is of {x.dtype}" for n, x in tensors.items() if not x.is_floating_point()]
            raise ModelError(f"the weights cannot be used ({error}): {', '.join(whole[:5]) or 'see there'}.") from error
    stored = labels_from_hf(raw, directory / "config.json") if relabeled and "id2label" in raw else model.labels
    if model.head_name == stored_head and len(stored) == len(model.labels) and stored != model.labels:
        model.report.notes.append(f"renamed    {', '.join(stored[:6])} to {', '.join(model.labels[:6])}")
    code = model_dir.find_code_keys(raw)
    if code:
        model.report.notes.append(f"ignored    {', '.join(code)} in config.json: nothing in a directory runs code")


def _load_tokenizer(model: Model, directory: Path) -> None:
    """The tokenizer of a directory, if there is one and the model has a vector for what it reads."""
    present = [name for name in TOKENIZER_FILES if (directory / name).exists()]
    if not present:
        return
    model.tokenizer = text.load_tokenizer(directory)
    check_segments(model, directory)
    model.report.notes += [f"tokenizer  {note}" for note in model.tokenizer.notes]
    vocab = {field.name: getattr(model.config, field.name) for field in fields(model.config)}.get("vocab")
    if vocab is None or model.tokenizer.vocab <= vocab:
        return
    where, last = f"{directory}: {' and '.join(present)}", model.tokenizer.vocab - 1
    used = {
        *model.tokenizer.encode("").ids,
        *model.tokenizer.encode("", "").ids,
        model.tokenizer.bos_id,
        model.tokenizer.mask_id,
    }
    special = set(model.tokenizer.special_tokens.values()) - used
    spare = last - vocab < MAX_EXTRA_SPECIAL_TOKENS and not any(
        model.tokenizer.id_to_token(id) for id in range(vocab, last + 1) if id not in special
    )
    if not spare:
        raise ModelError(
            f"{where} can give ids up to {last:,} ({abbreviate(model.tokenizer.id_to_token(last))}), and the model has vectors "
            f"for {vocab:,} tokens; the tokenizer is another model's."
        )
    model.report.notes.append(
        f"unused     special tokens beyond the model's {vocab:,} vectors, up to {last:,}: {where}"
    )


def resolve_model_dir(name_or_path: str | Path, files_to_fetch: Sequence[str] = hub.MODEL_FILE_PATTERNS) -> Path:
    """The directory of a model, of a run or of a name on the hub, of which the files that are wanted are fetched."""
    path = Path(name_or_path)
    if path.is_dir():
        if (path / "config.json").exists():
            return path
        if (path / "model" / "config.json").exists():  # a run
            return path / "model"
        raise ModelError(_describe_missing_config(path))
    if path.exists():
        raise ModelError(
            describe_file(path)
            or f"{path}: is a file; a directory with config.json is needed. saccade import reads single files."
        )
    if isinstance(name_or_path, str) and hub.is_repo_id(name_or_path):
        found = hub.fetch(name_or_path, files_to_fetch)
        if not (found / "config.json").exists():
            raise ModelError(_describe_missing_config(found))
        return found
    raise ModelError(f"{name_or_path}: there is no such directory, and it is no name on the hub.")


def _describe_missing_config(directory: Path) -> str:
    said = f"{directory}: has no config.json, so it is neither a model nor a run."
    return describe_directory(directory) or said


def _family_name(raw: dict, directory: Path, family_name: str | None = None) -> str:
    """The family that a config.json says, or that is named where it says none."""
    own, where = raw.get("saccade"), directory / "config.json"
    name = own.get("family") if isinstance(own, dict) else raw.get("model_type")
    published = [entry.name for entry in FAMILIES if entry.config_keys]
    types = {entry.required_values.get("model_type", entry.name) for entry in FAMILIES}
    if family_name is not None and name not in (None, family_name):
        raise ModelError(
            f"{where}: says that its model_type is {abbreviate(name)}; the family {family_name!r} was named for it."
        )
    if isinstance(own, dict) or family_name is not None:
        name = name or family_name
    elif name is None:
        other = describe_directory(directory)
        if other:
            raise ModelError(other)
        raise ModelError(
            f"{where}: does not say its family; `model_type` is missing. Name it with saccade import --family or in Python with "
            f"load(..., family=...): {', '.join(published)}."
        )
    elif isinstance(name, str) and name not in types:
        raise ModelError(
            f"{where}: model_type = {abbreviate(name)} is no family that is built here. Published ones are "
            f"{', '.join(published)}."
        )
    if not isinstance(name, str):
        raise ModelError(f"{where}: its family (model_type) is {abbreviate(name)}; a name is needed.")
    return name


def _parse_config(family: Family, raw: dict) -> Any:
    own = raw.get("saccade")
    if not isinstance(own, dict):
        if family.weight_map is None:
            raise ModelError(f"{family.name} has no published form; its config.json has a table `saccade`.")
        for theirs, ours in family.config_keys.items():
            if ours == "activation" and not isinstance(raw.get(theirs, ""), str):
                raise ModelError(f"{theirs} = {abbreviate(raw[theirs])} where the name of an activation is needed.")
        return family.config_from_hf(raw)
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in own.items() if key != "family"}
    known = [f.name for f in fields(family.config_class)]
    for key in given:
        if key not in known:
            raise ModelError(f"{family.name} has no field {key!r}; {suggest(key, known)}")
    return family.config_class(**given)


def _check_config(config: Any, directory: Path) -> Any:
    """Values of the wrong kind, and numbers that no real model has, are refused before anything is built."""
    check_fields(config, f"{directory / 'config.json'}: ")
    check_decoder_start(config, directory / "config.json")
    return config


def _check_layer_count(config: Any, tensors: int) -> None:
    """A layer takes time and memory even when its tensors are empty, and there is no layer without a tensor."""
    for item in fields(config):
        value = getattr(config, item.name)
        if item.name in LAYER_COUNT_FIELDS and isinstance(value, int) and value > tensors:
            raise ModelError(f"{item.name} = {value} and the files hold {tensors} tensors; they are of another model.")


def _stored_head(family: Family, raw: dict) -> str | None:
    """The head that a directory says it has."""
    own, classes = raw.get("head"), raw.get("architectures")
    if "saccade" in raw:
        return own if isinstance(own, str) else None
    given = classes if isinstance(classes, list) else []
    return next((name for name, head in family.heads.items() if any(x in given for x in head.architectures)), None)


def _resolve_head_labels(
    raw: dict,
    stored_head: str | None,
    head: str | None,
    labels: Sequence[str] | int | None,
    directory: Path,
    outputs: int | None = None,
) -> tuple[str, ...]:
    """The names for a head: those asked for, else those stored, if they are not another head's; else as many as `outputs`."""
    if head not in LABELED_HEADS:
        return ()
    if labels is not None:
        return resolve_labels(labels)
    if outputs is not None and not raw.get("id2label") and raw.get("num_labels") is None:
        return default_labels(outputs)
    return (
        default_labels(2)
        if stored_head in LABELED_HEADS and stored_head != head
        else labels_from_hf(raw, directory / "config.json")
    )
