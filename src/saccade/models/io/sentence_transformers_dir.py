"""The files of sentence-transformers beside a model: modules.json, a directory for each module, length and prompts.

Older versions write a flag for each pooling mode (`pooling_mode_cls_token: true`), newer ones its name (`pooling_mode: "cls"`).
"""

import json
import re
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from saccade.errors import ModelError
from saccade.models.io import model_dir
from saccade.models.pooling import ACTIVATIONS, POOLING_MODES, Dense, Normalize, Pooling
from saccade.text.loading.safe_files import abbreviate, parse_json, resolve_inside

SUPPORTED_MODULES = ("Transformer", "Pooling", "Dense", "Normalize")
POOLING_MODE_FLAGS = {  # of older files, in the order in which modes are concatenated
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
MAX_LENGTH_FILES = [
    f"sentence_{name}_config.json" for name in ("bert", "roberta", "distilbert", "camembert", "xlm-roberta")
]
SENTENCE_CONFIG_FILE = "config_sentence_transformers.json"
MAX_PROMPT_CHARACTERS = 10_000  # characters of a prompt or a name


def read_pooling(directory: Path, width: int) -> Pooling:
    """What a directory says of its sentence embeddings, made of vectors of this `width`; their mean where it says nothing."""
    modules = directory / "modules.json"
    steps = _read_modules(modules) if modules.exists() else [("Pooling", "1_Pooling")]
    _check_module_order([kind for kind, _ in steps], modules)
    found: dict[str, Any] = {"layers": ()}
    for kind, home in steps:
        if kind == "Pooling":
            found |= _read_modes(directory, home)
        elif kind == "Dense":
            found["layers"] += (_read_dense(directory, home),)
        elif kind == "Normalize":
            _read_module(directory, home)
            found["layers"] += (Normalize(),)
    if modules.exists():
        found |= _read_max_tokens(directory) | _read_prompts(directory)
    pooling = Pooling(**found)
    _check_widths(pooling, width, directory)
    if pooling.prompt and not pooling.include_prompt:
        raise ModelError(
            f"{directory}: pooling leaves out the tokens of the default prompt (include_prompt = false), which is not built "
            f"here; remove default_prompt_name from {SENTENCE_CONFIG_FILE} and put the prompt in front of your texts yourself."
        )
    return pooling


def _read_modules(path: Path) -> list[tuple[str, str]]:
    """The modules that modules.json names, in their order: names from a list, never code, and in directories of this one."""
    found = parse_json(model_dir.read_text(path), str(path))
    if not isinstance(found, list) or len(found) > 10:
        size = f"{len(found):,} entries" if isinstance(found, list) else type(found).__name__
        raise ModelError(f"{path}: a list of up to 10 modules is needed; found {size}.")
    steps = []
    for entry in found:
        kind, home = (entry.get(key) for key in ("type", "path")) if isinstance(entry, dict) else (None, None)
        name = kind.rpartition(".")[2] if isinstance(kind, str) and kind.startswith("sentence_transformers.") else None
        if name not in SUPPORTED_MODULES:
            raise ModelError(
                f"{path}: the module {abbreviate(kind)} is not supported; {', '.join(SUPPORTED_MODULES)} are."
            )
        if not isinstance(home, str) or not re.fullmatch(f"({model_dir.MODULE_DIR_REGEX})?", home):
            raise ModelError(
                f"{path}: the module {name} is in {abbreviate(home)}; a directory such as '1_Pooling' is needed."
            )
        steps.append((name, home))
    return steps


def _check_module_order(kinds: list[str], path: Path) -> None:
    """A transformer, one pooling, and then dense layers and normalization."""
    order = "".join(kind[0] for kind in kinds)
    if not re.fullmatch("T?(P[DN]*)?", order):
        raise ModelError(
            f"{path}: the modules {', '.join(kinds)} in this order are not supported; "
            "a Transformer, one Pooling, then Dense and Normalize are."
        )


def _check_widths(pooling: Pooling, width: int, directory: Path) -> None:
    """Each dense layer takes what the step before it gives."""
    given = len(pooling.modes) * width
    for layer in pooling.layers:
        if isinstance(layer, Dense):
            if layer.weight.size(1) != given:
                raise ModelError(
                    f"{directory}: a dense layer behind the pooling takes vectors of {layer.weight.size(1)}, and they have "
                    f"{given}; its files are of another model."
                )
            given = layer.weight.size(0)


def _read_module(directory: Path, home: str) -> tuple[Path, dict[str, Any]]:
    """The config of a module and where it stands; only sentence embeddings are worked on here, not those of tokens."""
    path = directory / home / "config.json"
    raw = model_dir.read_json(path, inside=directory) if path.exists() else {}
    for key in ("module_input_name", "module_output_name"):
        if raw.get(key) not in (None, "sentence_embedding"):
            raise ModelError(f"{path}: {key} = {abbreviate(raw[key])} is not supported; 'sentence_embedding' is.")
    return path, raw


def _read_modes(directory: Path, home: str) -> dict[str, Any]:
    path, raw = _read_module(directory, home)
    flags = {key: value for key, value in raw.items() if key.startswith("pooling_mode_")}
    for key, value in flags.items():
        if not isinstance(value, bool) or (value and key not in POOLING_MODE_FLAGS):
            raise ModelError(
                f"{path}: {key} = {abbreviate(value)} is not supported; {', '.join(POOLING_MODE_FLAGS)} = true are."
            )
    named = raw.get("pooling_mode")
    if named is None:
        modes = [mode for key, mode in POOLING_MODE_FLAGS.items() if flags.get(key)] or ["mean"]
    else:
        modes = named if isinstance(named, list) else [named]
    if (
        not modes
        or len(modes) > len(POOLING_MODES)
        or not all(isinstance(mode, str) and mode in POOLING_MODES for mode in modes)
    ):
        raise ModelError(
            f"{path}: pooling_mode = {abbreviate(named)} is not supported; {', '.join(POOLING_MODES)} are."
        )
    return {"modes": tuple(modes), "include_prompt": _read_flag(raw, "include_prompt", True, path)}


def _read_flag(raw: dict[str, Any], key: str, default: bool, path: Path) -> bool:
    value = raw.get(key, default)
    if not isinstance(value, bool):
        raise ModelError(f"{path}: {key} = {abbreviate(value)} where true or false is needed.")
    return value


def _read_dense(directory: Path, home: str) -> Dense:
    """A dense layer: its config says what it should be, its tensors what it is."""
    path, raw = _read_module(directory, home)
    kind = raw.get("activation_function", "torch.nn.modules.activation.Tanh")
    name = kind.rpartition(".")[2] if isinstance(kind, str) and kind.startswith("torch.nn.") else None
    if name not in ACTIVATIONS:
        raise ModelError(
            f"{path}: activation_function = {abbreviate(kind)} is not supported; {', '.join(ACTIVATIONS)} of torch.nn are."
        )
    resolve_inside(directory / home, directory)
    found = dict(model_dir.iterate_tensors(model_dir.find_tensor_files(directory / home, inside=directory)))
    sizes = (raw.get("out_features"), raw.get("in_features"))
    wanted: dict[str, tuple[Any, ...]] = {"linear.weight": sizes}
    if _read_flag(raw, "bias", True, path):
        wanted["linear.bias"] = sizes[:1]
    residual = _read_flag(raw, "use_residual", False, path)
    if residual and sizes[0] != sizes[1]:
        wanted["residual.weight"] = sizes
    shapes = {name: tuple(x.shape) for name, x in found.items()}
    if shapes != wanted or not all(x.is_floating_point() for x in found.values()):
        raise ModelError(f"{path}: the tensors {wanted} are needed beside it; found {abbreviate(shapes, 300)}.")
    bias = found.get("linear.bias")
    return Dense(found["linear.weight"], bias, name, found.get("residual.weight", residual))


def _read_max_tokens(directory: Path) -> dict[str, Any]:
    """Where texts are truncated, and whether they are lowercased first."""
    path = next((directory / name for name in MAX_LENGTH_FILES if (directory / name).exists()), None)
    if path is None:
        return {}
    raw = model_dir.read_json(path)
    length = raw.get("max_seq_length")
    if length is not None and (type(length) is not int or not 0 < length <= 1_000_000):
        raise ModelError(f"{path}: max_seq_length = {abbreviate(length)} where a number from 1 to 1,000,000 is needed.")
    return {"max_tokens": length, "lowercase": _read_flag(raw, "do_lower_case", False, path)}


def _read_prompts(directory: Path) -> dict[str, Any]:
    """Texts that are put in front of others, by name; and the name of the one that always is."""
    path = directory / SENTENCE_CONFIG_FILE
    if not path.exists():
        return {}
    raw = model_dir.read_json(path)
    prompts, default, similarity = (raw.get(key) for key in ("prompts", "default_prompt_name", "similarity_fn_name"))
    pairs = list(prompts.items()) if isinstance(prompts, dict) else [("prompts", prompts)]
    short = (default, similarity, *(text for pair in pairs for text in pair))
    if any(text is not None and (not isinstance(text, str) or len(text) > MAX_PROMPT_CHARACTERS) for text in short) or (
        isinstance(default, str) and default not in dict(pairs)
    ):
        raise ModelError(
            f"{path}: prompts is a table of names and texts, default_prompt_name one of its names and similarity_fn_name a "
            f"name; got {abbreviate(prompts)}, {abbreviate(default)} and {abbreviate(similarity)}."
        )
    named = {name: text for name, text in pairs if text}  # an empty one says nothing
    return {
        "prompts": tuple(named.items()),
        "default_prompt": default if default in named else None,
        "similarity": similarity,
    }


def write_pooling(pooling: Pooling, width: int, directory: Path) -> None:
    """Write the same files, so that sentence-transformers loads the directory; `width` is that of a token's vector."""
    homes = ["", "1_Pooling", *(f"{i}_{type(layer).__name__}" for i, layer in enumerate(pooling.layers, 2))]
    modules = [
        {"idx": i, "name": str(i), "path": home, "type": f"sentence_transformers.models.{home[2:] or 'Transformer'}"}
        for i, home in enumerate(homes)
    ]
    _write_json(directory / "modules.json", modules)
    _write_json(directory / "1_Pooling" / "config.json", _modes_config(pooling, width))
    for layer, home in zip(pooling.layers, homes[2:], strict=True):
        if isinstance(layer, Dense):
            _write_dense(layer, directory / home)
        else:
            (directory / home).mkdir()
    _write_json(
        directory / MAX_LENGTH_FILES[0],
        ({} if pooling.max_tokens is None else {"max_seq_length": pooling.max_tokens})
        | {"do_lower_case": pooling.lowercase},
    )
    if pooling.prompts or pooling.similarity:
        about = {"prompts": dict(pooling.prompts), "default_prompt_name": pooling.default_prompt}
        _write_json(directory / SENTENCE_CONFIG_FILE, about | {"similarity_fn_name": pooling.similarity})


def _modes_config(pooling: Pooling, width: int) -> dict[str, Any]:
    """Flags, which every version reads; names where they stand in an order that flags cannot say."""
    said: dict[str, Any] = {"word_embedding_dimension": width, "include_prompt": pooling.include_prompt}
    usual = tuple(mode for mode in POOLING_MODES if mode in pooling.modes)
    if usual != pooling.modes:
        return said | {"pooling_mode": list(pooling.modes)}
    return said | {key: mode in pooling.modes for key, mode in POOLING_MODE_FLAGS.items()}


def _write_dense(layer: Dense, home: Path) -> None:
    out, into = layer.weight.shape
    module = "linear" if layer.activation == "Identity" else "activation"
    said = {"in_features": into, "out_features": out, "bias": layer.bias is not None}
    said["activation_function"] = f"torch.nn.modules.{module}.{layer.activation}"
    _write_json(home / "config.json", said | ({} if layer.residual is False else {"use_residual": True}))
    tensors: dict[str, Tensor] = {"linear.weight": layer.weight}
    if layer.bias is not None:
        tensors["linear.bias"] = layer.bias
    if isinstance(layer.residual, Tensor):
        tensors["residual.weight"] = layer.residual
    save_file({name: x.detach().contiguous() for name, x in tensors.items()}, home / "model.safetensors")
    (home / "model.safetensors").chmod(0o644)


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
