"""Models in and out: a directory of ours or of Hugging Face, or a name on the hub, becomes a `Model`, and goes back."""

import json
import re
import shutil
import tempfile
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from saccade import text
from saccade.attention.table import nearest
from saccade.data import Batch, Text
from saccade.models import files, hub
from saccade.models.family import Family
from saccade.models.table import FAMILIES
from saccade.models.weights import to_ours, to_theirs
from saccade.parts.stack import Stack
from saccade.parts.state import State

CAPS = {
    "width": 16_384,
    "inner": 131_072,
    "layers": 512,
    "heads": 1_024,
    "vocab": 2_000_000,
    "length": 1_000_000,
    "side": 65_536,
    "patch": 4_096,
    "channels": 4_096,
    "word_width": 16_384,
}


@dataclass
class Report:
    """What loading found: three lines for a person."""

    loaded: str
    new: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        few = lambda names: (
            ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "") or "nothing"
        )
        lines = [f"loaded     {self.loaded}", f"new        {few(self.new)}", f"left over  {few(self.left)}"]
        return "\n".join(lines + self.said)


@dataclass(frozen=True)
class Pooling:
    """How one vector is made of a text: the mean of its tokens or the first of them, at length one or as it is."""

    first: bool = False
    unit: bool = False


class Model(nn.Module):
    """A body, a head if there is one, and what is needed to write both down again."""

    def __init__(
        self, family: Family, config: Any, body: nn.Module, head: nn.Module | None = None, kind: str | None = None
    ):
        super().__init__()
        self.family, self.config, self.kind = family, config, kind
        self.body, self.head = body, head
        self.tokenizer: Any = None
        self.pooling = Pooling()
        self.report = Report("built, with new weights")

    @property
    def limit(self) -> int | None:
        """How many tokens it reads at most, where that is fixed."""
        limits = [
            m.position.limit for m in self.body.modules() if isinstance(m, Stack) and m.position.limit is not None
        ]
        return min(limits, default=None)

    def forward(self, batch: Batch) -> Tensor:
        x = self.body(batch)
        keep = batch.source.keep if isinstance(batch.source, Text) else None
        return x if self.head is None else self.head(x, keep)

    def start(self, batch: Batch) -> tuple[State, Text]:
        return self.body.start(batch)  # type: ignore[operator]

    def step(self, words: Text, state: State) -> Tensor:
        return self.body.step(words, state)  # type: ignore[operator]

    def save(self, directory: str | Path) -> Path:
        """Write config, weights and tokenizer; where the family is published, in the published form."""
        return save(self, Path(directory))


def family(name: str) -> Family:
    """The family of that name, or an error with the nearest."""
    for entry in FAMILIES:
        if name in (entry.name, entry.fixed.get("model_type")):
            return entry
    raise ValueError(f"There is no family {name!r}; {nearest(name, [entry.name for entry in FAMILIES])}")


def load(
    where: str | Path, *, head: str | None = None, labels: int | None = None, dtype: torch.dtype = torch.float32
) -> Model:
    """A model from a directory or a name on the hub, in evaluation mode.

    `head` asks for a way to answer ("words", "label", "tag", "span"): loaded if it is there, new if it is not. A weight of
    the body that is missing is an error that lists it.
    """
    directory = _local(where)
    raw = files.read_json(directory / "config.json")
    kind = family(_kind(raw, directory))
    config = _capped(_read(kind, raw), directory)
    with torch.device("meta"):  # sizes are checked against the file before anything is allocated
        body = kind.build(config)
        top = (
            None
            if head is None
            else _head(kind, config, body, head, labels or raw.get("num_labels") or len(raw.get("id2label", {})) or 2)
        )
    model = Model(kind, config, body, top, head)
    found = dict(files.tensors(files.tensor_files(directory)))
    _fill(model, found, published="saccade" not in raw, dtype=dtype, directory=directory)
    model.pooling = _pooling(directory)
    if any((directory / name).exists() for name in TOKENIZER_FILES):
        model.tokenizer = text.load(directory)
    code = files.named_code(raw)
    if code:
        model.report.said.append(f"ignored    {', '.join(code)} in config.json: nothing in a directory runs code")
    return model.eval()


TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model", "source.spm")


def _pooling(directory: Path) -> Pooling:
    """What a directory of sentence vectors says of its pooling; the mean where it says nothing."""
    config, modules = directory / "1_Pooling" / "config.json", directory / "modules.json"
    raw = files.read_json(config) if config.exists() else {}
    unit = modules.exists() and '"sentence_transformers.models.Normalize"' in files.read_text(modules)
    return Pooling(first=raw.get("pooling_mode_cls_token") is True, unit=unit)


def _write_pooling(pooling: Pooling, directory: Path) -> None:
    """The same, as sentence-transformers writes it."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if pooling.unit else [])]
    homes = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": homes[i], "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (directory / "modules.json").write_text(json.dumps(modules, indent=2) + "\n", encoding="utf-8")
    (directory / "1_Pooling").mkdir()
    said = {"pooling_mode_cls_token": pooling.first, "pooling_mode_mean_tokens": not pooling.first}
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")


def _local(where: str | Path) -> Path:
    path = Path(where)
    if path.is_dir():
        if (path / "config.json").exists():
            return path
        if (path / "model" / "config.json").exists():  # a run
            return path / "model"
        raise ValueError(f"{path}: has no config.json, so it is neither a model nor a run.")
    if path.exists():
        raise ValueError(
            f"{path}: is a file; a directory with config.json is needed. saccade import reads single files."
        )
    if isinstance(where, str) and hub.is_name(where):
        return hub.fetch(where)
    raise ValueError(f"{where}: there is no such directory, and it is no name on the hub.")


def _kind(raw: dict, directory: Path) -> str:
    own = raw.get("saccade")
    name = own.get("family") if isinstance(own, dict) else raw.get("model_type")
    if not isinstance(name, str):
        raise ValueError(f"{directory / 'config.json'}: does not say its family; `model_type` is missing.")
    return name


def _read(kind: Family, raw: dict) -> Any:
    own = raw.get("saccade")
    if not isinstance(own, dict):
        return kind.read(raw)
    given = {key: value for key, value in own.items() if key != "family"}
    known = [f.name for f in fields(kind.config)]
    for key in given:
        if key not in known:
            raise ValueError(f"{kind.name} has no field {key!r}; {nearest(key, known)}")
    return kind.config(**given)


def _capped(config: Any, directory: Path) -> Any:
    """Values of the wrong kind, and numbers that no real model has, are refused before anything is built."""
    for item in fields(config):
        value, usual = getattr(config, item.name), item.default
        if value is None and usual is None:
            continue
        kinds = (int, float) if isinstance(usual, float) else int if usual is None else type(usual)
        cap = CAPS.get(item.name, 2_147_483_648)
        right = isinstance(value, kinds) and (isinstance(usual, bool) or not isinstance(value, bool))
        if isinstance(value, int | float) and not isinstance(value, bool):
            right = right and (item.name in CAPS) <= value <= cap  # false for NaN too; 1 is the least of sizes
        if not right:
            wanted = (
                f"a number up to {cap:,}"
                if kinds is int or isinstance(usual, float)
                else getattr(kinds, "__name__", kinds)
            )
            raise ValueError(f"{directory / 'config.json'}: {item.name} = {value!r} where {wanted} is needed.")
    return config


def _head(kind: Family, config: Any, body: nn.Module, name: str, labels: int) -> nn.Module:
    if name not in kind.heads:
        raise ValueError(f"{kind.name} has no head {name!r}; known are {', '.join(kind.heads) or 'none'}.")
    if not 0 < labels <= 100_000:
        raise ValueError(f"A head has from 1 to 100,000 labels; got {labels}.")
    return kind.heads[name].build(config, body, labels)


def _fill(model: Model, found: dict[str, Tensor], *, published: bool, dtype: torch.dtype, directory: Path) -> None:
    """Put tensors from files into a model that has shapes only; report what is new and what is left over."""
    ours, left = _renamed(model, found) if published else (found, [])
    wanted = dict(model.state_dict(keep_vars=True))
    wrong = [
        f"{n} is {tuple(x.shape)}, {tuple(wanted[n].shape)} is needed"
        for n, x in ours.items()
        if n in wanted and x.shape != wanted[n].shape
    ]
    if wrong:
        raise ValueError(f"{directory}: the weights do not fit the config: {'; '.join(wrong[:5])}.")
    left += [name for name in ours if name not in wanted]
    tied = {id(p): n for n, p in reversed(wanted.items()) if n in ours}
    missing = [n for n, p in wanted.items() if n not in ours and id(p) not in tied]
    spare = [n for n in missing if any(re.fullmatch(p, n.removeprefix("body.")) for p in model.family.optional)]
    for name in spare:  # built as zeros, and a file may leave them out
        ours[name] = torch.zeros(wanted[name].shape)
    missing = [n for n in missing if n not in spare]
    gone = [n for n in missing if n.startswith("body.")]
    if gone:
        raise ValueError(
            f"{directory}: {len(gone)} weights of the body are missing ({', '.join(gone[:6])}), and these have no place: "
            f"{', '.join(left[:6]) or 'none'}. Is it another family, or an incomplete file?"
        )
    same = {n: ours[tied[id(p)]] for n, p in wanted.items() if id(p) in tied}
    ready = {
        n: (same | ours)[n].to(dtype) if (same | ours)[n].is_floating_point() else (same | ours)[n]
        for n in wanted
        if n in same or n in ours
    }
    shared: dict[int, Tensor] = {}
    for name, p in wanted.items():  # tied parameters stay one
        if name in ready:
            made = shared.setdefault(id(p), nn.Parameter(ready[name]) if isinstance(p, nn.Parameter) else ready[name])
            _assign(model, name, made)
    if missing:
        assert model.head is not None
        _new_head(model, missing, dtype)
    count = sum(p.numel() for p in model.body.parameters())
    model.report = Report(
        f"{len(ready)} tensors, {count / 1e6:,.1f} M parameters, as {model.family.name} from {directory}", missing, left
    )


def _renamed(model: Model, found: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Published names to `body.` and `head.` of ours; and those without a line that hold something learned."""
    kind = model.family
    assert kind.names is not None, f"{kind.name} has no published form"
    stripped = {name.removeprefix(kind.prefix): x for name, x in found.items()}
    body = to_ours(stripped, kind.names(model.config))
    ours = {f"body.{name}": x for name, x in body.found.items()}
    left = [name for name in body.left if not any(re.fullmatch(pattern, name) for pattern in kind.ignored)]
    if model.kind is not None:
        names = {theirs.removeprefix(kind.prefix): ours for theirs, ours in kind.heads[model.kind].names.items()}
        head = to_ours({name: stripped[name] for name in body.left}, names)
        ours |= {f"head.{name}": x for name, x in head.found.items()}
        left = [name for name in left if name in head.left]
    return ours, left


def _assign(model: nn.Module, name: str, value: Tensor) -> None:
    path, leaf = name.rsplit(".", 1)
    owner = model.get_submodule(path)
    (owner._buffers if leaf in owner._buffers else owner._parameters)[leaf] = value  # type: ignore[index]


def _new_head(model: Model, missing: list[str], dtype: torch.dtype) -> None:
    """A head that the files do not have begins like any new layer."""
    for name in missing:
        shape = model.get_parameter(name).shape
        fresh = torch.zeros(shape, dtype=dtype)
        if len(shape) > 1:
            nn.init.normal_(fresh, std=0.02)
        elif name.endswith("weight"):
            fresh.fill_(1.0)  # a norm
        _assign(model, name, nn.Parameter(fresh))


def save(model: Model, directory: Path) -> Path:
    """Write a model; an existing directory is replaced only when everything new is on disk."""
    kind = model.family
    named = dict(model.named_parameters()) | {n: b for n, b in model.named_buffers() if n in model.state_dict()}
    tensors = {name: x.detach() for name, x in named.items()}
    if kind.names is None:
        raw: dict[str, Any] = {"saccade": {"family": kind.name} | asdict(model.config)}
    else:
        raw = kind.write(model.config)
        if model.kind in ("label", "tag"):
            labels = model.get_submodule("head.score").out_features
            assert isinstance(labels, int)
            raw |= {"id2label": {str(i): f"LABEL_{i}" for i in range(labels)}, "num_labels": labels}
        raw["architectures"] = [kind.architecture if model.kind is None else kind.heads[model.kind].architecture]
        tensors = _published(model, tensors)
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        save_file(
            {n: x.contiguous() for n, x in sorted(tensors.items())}, temporary / "model.safetensors", {"format": "pt"}
        )
        (temporary / "config.json").write_text(json.dumps(raw, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        if model.tokenizer is not None:
            model.tokenizer.save(temporary)
        if model.pooling != Pooling():
            _write_pooling(model.pooling, temporary)
        (temporary / "model.safetensors").chmod(0o644)  # a temporary file is private, a model is not
        temporary.chmod(0o755)
        if directory.exists():
            shutil.rmtree(directory)
        temporary.rename(directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return directory


def _published(model: Model, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our names to published ones; with a head, the body's get their prefix."""
    kind = model.family
    assert kind.names is not None
    split = {
        part: {n.removeprefix(f"{part}."): x for n, x in tensors.items() if n.startswith(f"{part}.")}
        for part in ("body", "head")
    }
    body = to_theirs(split["body"], kind.names(model.config))
    if model.kind is None:
        bare = kind.architecture.endswith("Model") and "LMHead" not in kind.architecture
        return body if bare else {_prefixed(n, kind): x for n, x in body.items()}
    return {_prefixed(n, kind): x for n, x in body.items()} | to_theirs(split["head"], kind.heads[model.kind].names)


def _prefixed(name: str, kind: Family) -> str:
    return name if any(re.fullmatch(pattern, name) for pattern in kind.beside) else kind.prefix + name
