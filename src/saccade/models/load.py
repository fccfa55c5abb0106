"""Models in: a directory of ours or of Hugging Face, or a name on the hub, becomes a `Model`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade import text
from saccade.attention.table import nearest
from saccade.errors import ModelError
from saccade.models import files, hub
from saccade.models.cut import cut, read_kept
from saccade.models.dropped_heads import count_outputs, describe_dropped_heads
from saccade.models.family import Family
from saccade.models.fill import fill
from saccade.models.generation import read_generation, read_token_ids
from saccade.models.labels import LABELLED, MANY, describe_labels, named, read_labels, unnamed
from saccade.models.model import Model, Report
from saccade.models.new import new
from saccade.models.pooling import Pooling
from saccade.models.preprocessor import read_preprocessor
from saccade.models.reset import reset
from saccade.models.save import save
from saccade.models.sentence_files import read_pooling
from saccade.models.shapes import shapes
from saccade.models.sound import check_begin, check_fields, check_memory, check_segments
from saccade.models.table import FAMILIES, family
from saccade.models.unreadable import describe_directory, describe_file, describe_quantization
from saccade.text.files import guarded, shown

__all__ = ["BODY", "Model", "Pooling", "Report", "family", "load", "new", "save"]

BODY = "body"  # asked for as a head: none, only the body
REPEATED = ("layers", "decoder_layers", "stages", "blocks")  # each has tensors of its own
SPARE = 100_000  # special tokens that a tokenizer may have and the model not
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
    where: str | Path,
    *,
    head: str | None = None,
    labels: Sequence[str] | int | None = None,
    settings: Mapping[str, Any] | None = None,
    dtype: torch.dtype = torch.float32,
    family: str | None = None,
) -> Model:
    """A model from a directory or a name on the hub, in evaluation mode.

    Without `head` it has the head that the directory says it has. `head` asks for one ("words", "label", "tag", "span"),
    loaded if it is there and new if it is not; `head="body"` asks for none. `labels` are names for what a label or tag head
    tells apart (or how many); a stored head with another number of them is left, and a new one begun. `settings` say what is
    dropped when it is trained, such as {"dropout": 0.3}. `family` names the family of a directory whose config.json has no
    `model_type`. A weight of the body that is missing, or that has no place in it, is an error that lists it.
    """
    directory = local(where)
    raw, kind, config = _opened(directory, family)
    config = reset(config, settings or {}, str(where))
    found = dict(files.tensors(files.tensor_files(directory)))
    said = _said(kind, raw)
    asked = None if head == BODY else head or said
    outputs = count_outputs(kind, asked, found) if said is None else None
    names = _labels(raw, said, asked, labels, directory, outputs)
    with guarded(str(directory / "config.json")), shapes():  # nothing is allocated before sizes are checked
        _check_repeats(config, len(found))
        body = kind.build(config)
    with guarded(str(directory / "config.json")):
        kept = read_kept(raw) if "saccade" in raw else {}
        cut(body, kept)
    with shapes():
        top = None if asked is None else kind.head(asked).build(config, body, len(names))
    model = Model(kind, config, body, top, asked, labels=names, many=raw.get("problem_type") == MANY)
    model.kept = kept
    check_memory(model, dtype.itemsize, directory)
    _fill(model, found, directory, raw, said, labels is not None, dtype)
    if asked in LABELLED and labels is None:
        model.report.said += describe_labels(raw, names)
    if head is None and "saccade" not in raw:
        model.report.said += describe_dropped_heads(kind, model.report, raw, said, list(found))
    model.pooling = read_pooling(directory, getattr(body, "width", 0))
    if "saccade" not in raw:
        model.token_ids = read_token_ids(raw, asdict(config).get("vocab"))
        model.generation = read_generation(directory)
        model.report.said += read_preprocessor(directory)
    _speak(model, directory)
    return model.eval()


def family_and_config(where: str | Path) -> tuple[Family, Any]:
    """The family and the config of a stored model; of one on the hub nothing else is fetched."""
    _, kind, config = _opened(local(where, ("config.json",)))
    return kind, config


def _opened(directory: Path, named: str | None = None) -> tuple[dict, Family, Any]:
    """What the config.json of a directory says, the family, which may be `named` where it says none, and its config."""
    raw = files.read_json(directory / "config.json")
    with guarded(str(directory / "config.json")):
        kind = family(_kind(raw, directory, named))
        quantized = describe_quantization(raw)
        if quantized:
            raise ModelError(quantized)
        return raw, kind, _capped(_read(kind, raw), directory)


def _fill(
    model: Model,
    found: dict[str, Tensor],
    directory: Path,
    raw: dict,
    said: str | None,
    relabelled: bool,
    dtype: torch.dtype,
) -> None:
    """Weights from the files into the model, and a report of it."""
    published = "saccade" not in raw
    with guarded(str(directory)):
        try:
            fill(model, found, published=published, other=said, relabelled=relabelled, dtype=dtype, directory=directory)
        except RuntimeError as error:
            whole = [f"{n} is of {x.dtype}" for n, x in found.items() if not x.is_floating_point()]
            raise ModelError(f"the weights cannot be used ({error}): {', '.join(whole[:5]) or 'see there'}.") from error
    stored = read_labels(raw, directory / "config.json") if relabelled and "id2label" in raw else model.labels
    if model.kind == said and len(stored) == len(model.labels) and stored != model.labels:
        model.report.said.append(f"renamed    {', '.join(stored[:6])} to {', '.join(model.labels[:6])}")
    code = files.named_code(raw)
    if code:
        model.report.said.append(f"ignored    {', '.join(code)} in config.json: nothing in a directory runs code")


def _speak(model: Model, directory: Path) -> None:
    """The tokenizer of a directory, if there is one and the model has a vector for what it reads."""
    present = [name for name in TOKENIZER_FILES if (directory / name).exists()]
    if not present:
        return
    model.tokenizer = text.load(directory)
    check_segments(model, directory)
    model.report.said += [f"tokenizer  {note}" for note in model.tokenizer.notes]
    vocab = {field.name: getattr(model.config, field.name) for field in fields(model.config)}.get("vocab")
    if vocab is None or model.tokenizer.vocab <= vocab:
        return
    where, last = f"{directory}: {' and '.join(present)}", model.tokenizer.vocab - 1
    used = {
        *model.tokenizer.encode("").ids,
        *model.tokenizer.encode("", "").ids,
        model.tokenizer.begin,
        model.tokenizer.mask,
    }
    special = set(model.tokenizer.special.values()) - used
    spare = last - vocab < SPARE and not any(
        model.tokenizer.token(id) for id in range(vocab, last + 1) if id not in special
    )
    if not spare:
        raise ModelError(
            f"{where} can give ids up to {last:,} ({shown(model.tokenizer.token(last))}), and the model has vectors for "
            f"{vocab:,} tokens; the tokenizer is another model's."
        )
    model.report.said.append(f"unused     special tokens beyond the model's {vocab:,} vectors, up to {last:,}: {where}")


def local(where: str | Path, wanted: Sequence[str] = hub.FILES) -> Path:
    """The directory of a model, of a run or of a name on the hub, of which the files that are wanted are fetched."""
    path = Path(where)
    if path.is_dir():
        if (path / "config.json").exists():
            return path
        if (path / "model" / "config.json").exists():  # a run
            return path / "model"
        raise ModelError(_no_config(path))
    if path.exists():
        raise ModelError(
            describe_file(path)
            or f"{path}: is a file; a directory with config.json is needed. saccade import reads single files."
        )
    if isinstance(where, str) and hub.is_name(where):
        found = hub.fetch(where, wanted)
        if not (found / "config.json").exists():
            raise ModelError(_no_config(found))
        return found
    raise ModelError(f"{where}: there is no such directory, and it is no name on the hub.")


def _no_config(directory: Path) -> str:
    said = f"{directory}: has no config.json, so it is neither a model nor a run."
    return describe_directory(directory) or said


def _kind(raw: dict, directory: Path, named: str | None = None) -> str:
    """The family that a config.json says, or that is named where it says none."""
    own, where = raw.get("saccade"), directory / "config.json"
    name = own.get("family") if isinstance(own, dict) else raw.get("model_type")
    published = [entry.name for entry in FAMILIES if entry.keys]
    types = {entry.fixed.get("model_type", entry.name) for entry in FAMILIES}
    if named is not None and name not in (None, named):
        raise ModelError(f"{where}: says that its model_type is {shown(name)}; the family {named!r} was named for it.")
    if isinstance(own, dict) or named is not None:
        name = name or named
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
            f"{where}: model_type = {shown(name)} is no family that is built here. Published ones are {', '.join(published)}."
        )
    if not isinstance(name, str):
        raise ModelError(f"{where}: its family (model_type) is {shown(name)}; a name is needed.")
    return name


def _read(kind: Family, raw: dict) -> Any:
    own = raw.get("saccade")
    if not isinstance(own, dict):
        if kind.names is None:
            raise ModelError(f"{kind.name} has no published form; its config.json has a table `saccade`.")
        for theirs, ours in kind.keys.items():
            if ours == "activation" and not isinstance(raw.get(theirs, ""), str):
                raise ModelError(f"{theirs} = {shown(raw[theirs])} where the name of an activation is needed.")
        return kind.read(raw)
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in own.items() if key != "family"}
    known = [f.name for f in fields(kind.config)]
    for key in given:
        if key not in known:
            raise ModelError(f"{kind.name} has no field {key!r}; {nearest(key, known)}")
    return kind.config(**given)


def _capped(config: Any, directory: Path) -> Any:
    """Values of the wrong kind, and numbers that no real model has, are refused before anything is built."""
    check_fields(config, f"{directory / 'config.json'}: ")
    check_begin(config, directory / "config.json")
    return config


def _check_repeats(config: Any, tensors: int) -> None:
    """A layer takes time and memory even when its tensors are empty, and there is no layer without a tensor."""
    for item in fields(config):
        value = getattr(config, item.name)
        if item.name in REPEATED and isinstance(value, int) and value > tensors:
            raise ModelError(f"{item.name} = {value} and the files hold {tensors} tensors; they are of another model.")


def _said(kind: Family, raw: dict) -> str | None:
    """The head that a directory says it has."""
    own, classes = raw.get("head"), raw.get("architectures")
    if "saccade" in raw:
        return own if isinstance(own, str) else None
    given = classes if isinstance(classes, list) else []
    return next((name for name, head in kind.heads.items() if any(x in given for x in head.classes)), None)


def _labels(
    raw: dict,
    said: str | None,
    asked: str | None,
    labels: Sequence[str] | int | None,
    directory: Path,
    outputs: int | None = None,
) -> tuple[str, ...]:
    """The names for a head: those asked for, else those stored, if they are not another head's; else as many as `outputs`."""
    if asked not in LABELLED:
        return ()
    if labels is not None:
        return named(labels)
    if outputs is not None and not raw.get("id2label") and raw.get("num_labels") is None:
        return unnamed(outputs)
    return unnamed(2) if said in LABELLED and said != asked else read_labels(raw, directory / "config.json")
