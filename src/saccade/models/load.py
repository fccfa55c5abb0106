"""Loads a `Model` from a directory, saved by saccade or in Hugging Face's form, or from the hub."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade import text
from saccade.errors import ModelError
from saccade.keywords import check_keywords
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
    thresholds_from_config,
)
from saccade.models.load_weights import load_tensors
from saccade.models.meta_init import meta_init
from saccade.models.model import LoadReport, Model
from saccade.models.override import override_dropout
from saccade.models.pooling import Pooling
from saccade.models.prune_heads import prune, read_kept_heads
from saccade.models.published_names import resolve_model_name, suggest_family
from saccade.models.registry import FAMILIES, get_family
from saccade.models.save import save
from saccade.models.unused_heads import count_outputs, describe_dropped_heads
from saccade.plugins import PLUGINS_KEY, check_plugins
from saccade.suggest import suggest
from saccade.text.loading.safe_files import abbreviate, as_model_error

__all__ = ["NO_HEAD", "LoadReport", "Model", "Pooling", "get_family", "load", "new", "save"]

NO_HEAD = "body"  # the value of `head` that loads the body alone
LAYER_COUNT_FIELDS = ("layers", "decoder_layers", "stages", "blocks_per_stage")  # every layer has at least one tensor
MAX_EXTRA_SPECIAL_TOKENS = 100_000  # special tokens of a tokenizer beyond the vocabulary of the model
TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "source.spm",
)


@check_keywords
def load(
    name_or_path: str | Path,
    *,
    head: str | None = None,
    labels: Sequence[str] | int | None = None,
    overrides: Mapping[str, Any] | None = None,
    dtype: torch.dtype = torch.float32,
    family: str | None = None,
) -> Model:
    """Load a model from a directory or a name on the hub, in evaluation mode.

    The default head is the one named in config.json. `head` selects another one ("lm", "label", "tag", "span"), which is
    initialized randomly if it is not stored; `head="body"` loads none. `labels` are the label names of a label or tag head, or
    their number; a stored head with another number of labels is replaced by a new one. `overrides` sets dropout rates for
    fine-tuning, such as {"dropout": 0.3}. `family` is needed for a directory whose config.json has no `model_type`. Missing
    or unexpected weights of the body raise ModelError.
    """
    directory = resolve_model_dir(name_or_path)
    raw, kind, config = _read_config_json(directory, family)
    config = override_dropout(config, overrides or {}, str(name_or_path))
    tensors = dict(model_dir.iterate_tensors(model_dir.find_tensor_files(directory)))
    stored_head = _stored_head(kind, raw)
    head_name = None if head == NO_HEAD else head or stored_head
    outputs = count_outputs(kind, head_name, tensors) if stored_head is None else None
    label_names = _resolve_head_labels(raw, stored_head, head_name, labels, directory, outputs)
    with as_model_error(str(directory / "config.json")), meta_init():  # no memory is allocated before sizes are checked
        _check_layer_count(config, len(tensors))
        body = kind.new_body(config)
    with as_model_error(str(directory / "config.json")):
        kept = read_kept_heads(raw) if "saccade" in raw else {}
        prune(body, kept)
    with meta_init():
        head_module = None if head_name is None else kind.get_head(head_name).build(config, body, len(label_names))
    multi_label = raw.get("problem_type") == MULTI_LABEL_PROBLEM_TYPE
    model = Model(kind, config, body, head_module, head_name, labels=label_names, multi_label=multi_label)
    if multi_label and labels is None:
        model.thresholds = thresholds_from_config(raw, label_names, directory / "config.json")
    model.kept_heads = kept
    check_memory(model, dtype.itemsize, directory)
    _load_weights(model, tensors, directory, raw, stored_head, labels is not None, dtype)
    if head_name in LABELED_HEADS and labels is None:
        model.report.notes += describe_labels(raw, label_names)
    if head is None and "saccade" not in raw:
        model.report.notes += describe_dropped_heads(kind, model.report, raw, stored_head, list(tensors))
    model.pooling = read_pooling(directory, getattr(body, "width", 0))
    if "saccade" not in raw:
        model.special_token_ids = read_token_ids(raw, asdict(config).get("vocab"))
        model.generation_config = read_generation_config(directory)
        model.report.notes += describe_preprocessor(directory)
    _load_tokenizer(model, directory)
    return model.eval()


def read_family_and_config(name_or_path: str | Path) -> tuple[Family, Any]:
    """The family and config of a stored model; from the hub, only config.json is downloaded."""
    _, kind, config = _read_config_json(resolve_model_dir(name_or_path, ("config.json",)))
    return kind, config


def _read_config_json(directory: Path, family_name: str | None = None) -> tuple[dict, Family, Any]:
    """The content of config.json, the family (`family_name` if config.json names none), and its config."""
    raw = model_dir.read_json(directory / "config.json")
    check_plugins(raw.get(PLUGINS_KEY, {}), directory)
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
    """Load the tensors into the model and write the load report."""
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
            integers = ", ".join([f"{n} ({x.dtype})" for n, x in tensors.items() if not x.is_floating_point()][:5])
            raise ModelError(
                f"the weights cannot be loaded ({error}); integer tensors: {integers or 'none'}."
            ) from error
    stored = labels_from_hf(raw, directory / "config.json") if relabeled and "id2label" in raw else model.labels
    if model.head_name == stored_head and len(stored) == len(model.labels) and stored != model.labels:
        model.report.notes.append(f"renamed    {', '.join(stored[:6])} to {', '.join(model.labels[:6])}")
    code = model_dir.find_code_keys(raw)
    if code:
        model.report.notes.append(f"ignored    {', '.join(code)} in config.json: code in a directory is never run")


def _load_tokenizer(model: Model, directory: Path) -> None:
    """Load the tokenizer of a directory, if there is one; raises ModelError if its vocabulary is too large for the model."""
    present = [name for name in TOKENIZER_FILES if (directory / name).exists()]
    if not present:
        return
    model.tokenizer = text.load_tokenizer(directory)
    check_segments(model, directory)
    model.report.notes += [f"tokenizer  {note}" for note in model.tokenizer.notes]
    vocab = {field.name: getattr(model.config, field.name) for field in fields(model.config)}.get("vocab")
    if vocab is None or model.tokenizer.vocab <= vocab:
        return
    source, last = f"{directory}: {' and '.join(present)}", model.tokenizer.vocab - 1
    used = {
        *model.tokenizer.encode("").ids,
        *model.tokenizer.encode("", "").ids,
        model.tokenizer.bos_id,
        model.tokenizer.mask_id,
    }
    special = set(model.tokenizer.special_tokens.values()) - used
    is_unused = last - vocab < MAX_EXTRA_SPECIAL_TOKENS and not any(
        model.tokenizer.id_to_token(id) for id in range(vocab, last + 1) if id not in special
    )
    if not is_unused:
        raise ModelError(
            f"{source}: token ids go up to {last:,} ({abbreviate(model.tokenizer.id_to_token(last))}), but the model has only "
            f"{vocab:,} embeddings; the tokenizer belongs to another model."
        )
    model.report.notes.append(
        f"unused     special tokens beyond the model's {vocab:,} embeddings, up to {last:,}: {source}"
    )


def resolve_model_dir(name_or_path: str | Path, files_to_fetch: Sequence[str] = hub.MODEL_FILE_PATTERNS) -> Path:
    """The directory of a model, a run, or a name on the hub; downloads the needed files."""
    path = Path(resolve_model_name(name_or_path) if isinstance(name_or_path, str) else name_or_path)
    if path.is_dir():
        if (path / "config.json").exists():
            return path
        if (path / "model" / "config.json").exists():  # a run
            return path / "model"
        raise ModelError(_describe_missing_config(path))
    if path.exists():
        raise ModelError(
            describe_file(path)
            or f"{path}: is a file, but a directory with config.json is needed. Use saccade import for single files."
        )
    if isinstance(name_or_path, str) and hub.is_repo_id(str(path)):
        directory = _fetch(str(path), files_to_fetch)
        if not (directory / "config.json").exists():
            raise ModelError(_describe_missing_config(directory))
        return directory
    raise ModelError(f"{name_or_path}: there is no such directory, and it is not a valid name on the hub.")


def _fetch(name: str, files_to_fetch: Sequence[str]) -> Path:
    try:
        return hub.fetch(name, files_to_fetch)
    except ModelError as error:
        if "/" in name:
            raise
        raise ModelError(f"{error}{suggest_family(name)}") from error


def _describe_missing_config(directory: Path) -> str:
    return describe_directory(directory) or f"{directory}: has no config.json, so it is neither a model nor a run."


def _family_name(raw: dict, directory: Path, family_name: str | None = None) -> str:
    """The family named in config.json, or `family_name` if it names none."""
    table, path = raw.get("saccade"), directory / "config.json"
    name = table.get("family") if isinstance(table, dict) else raw.get("model_type")
    published = [entry.name for entry in FAMILIES if entry.config_keys]
    types = {entry.required_values.get("model_type", entry.name) for entry in FAMILIES}
    if family_name is not None and name not in (None, family_name):
        raise ModelError(
            f"{path}: model_type is {abbreviate(name)}, but family is {family_name!r}; leave the family out."
        )
    if isinstance(table, dict) or family_name is not None:
        name = name or family_name
    elif name is None:
        known_format = describe_directory(directory)
        if known_format:
            raise ModelError(known_format)
        raise ModelError(
            f"{path}: `model_type` is missing, so the family is unknown. Set it with saccade import --family or in Python with "
            f"load(..., family=...): {', '.join(published)}."
        )
    elif isinstance(name, str) and name not in types:
        raise ModelError(
            f"{path}: model_type = {abbreviate(name)} is not a supported family; supported are {', '.join(published)}."
        )
    if not isinstance(name, str):
        raise ModelError(f"{path}: its family (model_type) is {abbreviate(name)}; a string is needed.")
    return name


def _parse_config(family: Family, raw: dict) -> Any:
    own = raw.get("saccade")
    if not isinstance(own, dict):
        if family.weight_map is None:
            raise ModelError(f"{family.name} has no published form; its config.json needs a table `saccade`.")
        for theirs, ours in family.config_keys.items():
            if ours == "activation" and not isinstance(raw.get(theirs, ""), str):
                raise ModelError(f"{theirs} = {abbreviate(raw[theirs])}; the name of an activation is needed.")
        return family.config_from_hf(raw)
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in own.items() if key != "family"}
    known = [f.name for f in fields(family.config_class)]
    for key in values:
        if key not in known:
            raise ModelError(f"{family.name} has no field {key!r}; {suggest(key, known)}")
    return family.config_class(**values)


def _check_config(config: Any, directory: Path) -> Any:
    """Raise ModelError for values of the wrong type or out of range, before anything is built."""
    check_fields(config, f"{directory / 'config.json'}: ")
    check_decoder_start(config, directory / "config.json")
    return config


def _check_layer_count(config: Any, tensors: int) -> None:
    """Raise ModelError if there are more layers than tensors, since even empty layers take time and memory."""
    for item in fields(config):
        value = getattr(config, item.name)
        if item.name in LAYER_COUNT_FIELDS and isinstance(value, int) and value > tensors:
            raise ModelError(
                f"{item.name} = {value}, but the files have {tensors} tensors; they belong to another model."
            )


def _stored_head(family: Family, raw: dict) -> str | None:
    """The head named in config.json."""
    name, classes = raw.get("head"), raw.get("architectures")
    if "saccade" in raw:
        return name if isinstance(name, str) else None
    names = classes if isinstance(classes, list) else []
    return next((name for name, head in family.heads.items() if any(x in names for x in head.architectures)), None)


def _resolve_head_labels(
    raw: dict,
    stored_head: str | None,
    head: str | None,
    labels: Sequence[str] | int | None,
    directory: Path,
    outputs: int | None = None,
) -> tuple[str, ...]:
    """The label names of a head: those given, otherwise the stored ones if of the same head, otherwise default names."""
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
