"""sentence-transformers files: modules.json, a directory for each module (pooling, dense), maximum length and prompts.

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
POOLING_MODE_FLAGS = {  # in older files; in the order in which the modes are concatenated
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
MAX_PROMPT_CHARACTERS = 10_000  # of a prompt or its name


def read_pooling(directory: Path, width: int) -> Pooling:
    """Read how sentence embeddings are pooled from token vectors of this `width`; the default is mean pooling."""
    modules = directory / "modules.json"
    steps = _read_modules(modules) if modules.exists() else [("Pooling", "1_Pooling")]
    _check_module_order([kind for kind, _ in steps], modules)
    settings: dict[str, Any] = {"layers": ()}
    for kind, home in steps:
        if kind == "Pooling":
            settings |= _read_modes(directory, home)
        elif kind == "Dense":
            settings["layers"] += (_read_dense(directory, home),)
        elif kind == "Normalize":
            _read_module(directory, home)
            settings["layers"] += (Normalize(),)
    if modules.exists():
        settings |= _read_max_tokens(directory) | _read_prompts(directory)
    pooling = Pooling(**settings)
    _check_widths(pooling, width, directory)
    if pooling.prompt and not pooling.include_prompt:
        raise ModelError(
            f"{directory}: pooling without the tokens of the default prompt (include_prompt = false) is not supported; remove "
            f"default_prompt_name from {SENTENCE_CONFIG_FILE} and prepend the prompt to your texts yourself."
        )
    return pooling


def _read_modules(path: Path) -> list[tuple[str, str]]:
    """The modules in modules.json, in order, with their directories; only names in SUPPORTED_MODULES are allowed."""
    entries = parse_json(model_dir.read_text(path), str(path))
    if not isinstance(entries, list) or len(entries) > 10:
        size = f"{len(entries):,} entries" if isinstance(entries, list) else type(entries).__name__
        raise ModelError(f"{path}: a list of up to 10 modules is needed; found {size}.")
    steps = []
    for entry in entries:
        kind, home = (entry.get(key) for key in ("type", "path")) if isinstance(entry, dict) else (None, None)
        name = kind.rpartition(".")[2] if isinstance(kind, str) and kind.startswith("sentence_transformers.") else None
        if name not in SUPPORTED_MODULES:
            raise ModelError(
                f"{path}: module {abbreviate(kind)} is not supported; supported are {', '.join(SUPPORTED_MODULES)}."
            )
        if not isinstance(home, str) or not re.fullmatch(f"({model_dir.MODULE_DIR_REGEX})?", home):
            raise ModelError(
                f"{path}: module {name} has the path {abbreviate(home)}; a directory such as '1_Pooling' is needed."
            )
        steps.append((name, home))
    return steps


def _check_module_order(kinds: list[str], path: Path) -> None:
    """Check the order: a Transformer, one Pooling, then Dense and Normalize modules."""
    order = "".join(kind[0] for kind in kinds)
    if not re.fullmatch("T?(P[DN]*)?", order):
        raise ModelError(
            f"{path}: the modules {', '.join(kinds)} in this order are not supported; "
            "expected a Transformer, one Pooling, then Dense and Normalize."
        )


def _check_widths(pooling: Pooling, width: int, directory: Path) -> None:
    """Check that the input width of each dense layer is the output width of the previous step."""
    input_width = len(pooling.modes) * width
    for layer in pooling.layers:
        if isinstance(layer, Dense):
            if layer.weight.size(1) != input_width:
                raise ModelError(
                    f"{directory}: a dense layer after the pooling has input width {layer.weight.size(1)}, but its input has "
                    f"{input_width}; its files belong to another model."
                )
            input_width = layer.weight.size(0)


def _read_module(directory: Path, home: str) -> tuple[Path, dict[str, Any]]:
    """The path and content of a module's config; raises ModelError for modules that process token embeddings."""
    path = directory / home / "config.json"
    raw = model_dir.read_json(path, inside=directory) if path.exists() else {}
    for key in ("module_input_name", "module_output_name"):
        if raw.get(key) not in (None, "sentence_embedding"):
            raise ModelError(f"{path}: {key} = {abbreviate(raw[key])} is not supported; only 'sentence_embedding' is.")
    return path, raw


def _read_modes(directory: Path, home: str) -> dict[str, Any]:
    path, raw = _read_module(directory, home)
    flags = {key: value for key, value in raw.items() if key.startswith("pooling_mode_")}
    for key, value in flags.items():
        if not isinstance(value, bool) or (value and key not in POOLING_MODE_FLAGS):
            raise ModelError(
                f"{path}: {key} = {abbreviate(value)} is not supported; supported are {', '.join(POOLING_MODE_FLAGS)} = true."
            )
    pooling_mode = raw.get("pooling_mode")
    if pooling_mode is None:
        modes = [mode for key, mode in POOLING_MODE_FLAGS.items() if flags.get(key)] or ["mean"]
    else:
        modes = pooling_mode if isinstance(pooling_mode, list) else [pooling_mode]
    if (
        not modes
        or len(modes) > len(POOLING_MODES)
        or not all(isinstance(mode, str) and mode in POOLING_MODES for mode in modes)
    ):
        raise ModelError(
            f"{path}: pooling_mode = {abbreviate(pooling_mode)} is not supported; supported are {', '.join(POOLING_MODES)}."
        )
    return {"modes": tuple(modes), "include_prompt": _read_flag(raw, "include_prompt", True, path)}


def _read_flag(raw: dict[str, Any], key: str, default: bool, path: Path) -> bool:
    value = raw.get(key, default)
    if not isinstance(value, bool):
        raise ModelError(f"{path}: {key} = {abbreviate(value)}; true or false is needed.")
    return value


def _read_dense(directory: Path, home: str) -> Dense:
    """Read a dense layer; raises ModelError if its tensors do not match its config."""
    path, raw = _read_module(directory, home)
    kind = raw.get("activation_function", "torch.nn.modules.activation.Tanh")
    name = kind.rpartition(".")[2] if isinstance(kind, str) and kind.startswith("torch.nn.") else None
    if name not in ACTIVATIONS:
        raise ModelError(
            f"{path}: activation_function = {abbreviate(kind)} is not supported; use {', '.join(ACTIVATIONS)} of torch.nn."
        )
    resolve_inside(directory / home, directory)
    tensors = dict(model_dir.iterate_tensors(model_dir.find_tensor_files(directory / home, inside=directory)))
    sizes = (raw.get("out_features"), raw.get("in_features"))
    expected: dict[str, tuple[Any, ...]] = {"linear.weight": sizes}
    if _read_flag(raw, "bias", True, path):
        expected["linear.bias"] = sizes[:1]
    residual = _read_flag(raw, "use_residual", False, path)
    if residual and sizes[0] != sizes[1]:
        expected["residual.weight"] = sizes
    shapes = {name: tuple(x.shape) for name, x in tensors.items()}
    if shapes != expected or not all(x.is_floating_point() for x in tensors.values()):
        raise ModelError(f"{path}: its weights must have the shapes {expected}; got {abbreviate(shapes, 300)}.")
    bias = tensors.get("linear.bias")
    return Dense(tensors["linear.weight"], bias, name, tensors.get("residual.weight", residual))


def _read_max_tokens(directory: Path) -> dict[str, Any]:
    """The maximum length in tokens, and whether texts are lowercased."""
    path = next((directory / name for name in MAX_LENGTH_FILES if (directory / name).exists()), None)
    if path is None:
        return {}
    raw = model_dir.read_json(path)
    length = raw.get("max_seq_length")
    if length is not None and (type(length) is not int or not 0 < length <= 1_000_000):
        raise ModelError(f"{path}: max_seq_length = {abbreviate(length)}; a number from 1 to 1,000,000 is needed.")
    return {"max_tokens": length, "lowercase": _read_flag(raw, "do_lower_case", False, path)}


def _read_prompts(directory: Path) -> dict[str, Any]:
    """The prompts by name, and the name of the default prompt."""
    path = directory / SENTENCE_CONFIG_FILE
    if not path.exists():
        return {}
    raw = model_dir.read_json(path)
    prompts, default, similarity = (raw.get(key) for key in ("prompts", "default_prompt_name", "similarity_fn_name"))
    pairs = list(prompts.items()) if isinstance(prompts, dict) else [("prompts", prompts)]
    strings = (default, similarity, *(text for pair in pairs for text in pair))
    if any(
        text is not None and (not isinstance(text, str) or len(text) > MAX_PROMPT_CHARACTERS) for text in strings
    ) or (isinstance(default, str) and default not in dict(pairs)):
        raise ModelError(
            f"{path}: prompts must map names to texts, default_prompt_name must be one of the names and similarity_fn_name a "
            f"string; got {abbreviate(prompts)}, {abbreviate(default)} and {abbreviate(similarity)}."
        )
    nonempty = {name: text for name, text in pairs if text}  # without empty prompts
    return {
        "prompts": tuple(nonempty.items()),
        "default_prompt": default if default in nonempty else None,
        "similarity": similarity,
    }


def write_pooling(pooling: Pooling, width: int, directory: Path) -> None:
    """Write the files for sentence-transformers; `width` is the width of the token vectors."""
    directories = ["", "1_Pooling", *(f"{i}_{type(layer).__name__}" for i, layer in enumerate(pooling.layers, 2))]
    modules = [
        {"idx": i, "name": str(i), "path": home, "type": f"sentence_transformers.models.{home[2:] or 'Transformer'}"}
        for i, home in enumerate(directories)
    ]
    _write_json(directory / "modules.json", modules)
    _write_json(directory / "1_Pooling" / "config.json", _modes_config(pooling, width))
    for layer, home in zip(pooling.layers, directories[2:], strict=True):
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
        prompt_config = {"prompts": dict(pooling.prompts), "default_prompt_name": pooling.default_prompt}
        _write_json(directory / SENTENCE_CONFIG_FILE, prompt_config | {"similarity_fn_name": pooling.similarity})


def _modes_config(pooling: Pooling, width: int) -> dict[str, Any]:
    """Flags, which every version reads, or names if the order of the modes differs from that of the flags."""
    config: dict[str, Any] = {"word_embedding_dimension": width, "include_prompt": pooling.include_prompt}
    flag_order = tuple(mode for mode in POOLING_MODES if mode in pooling.modes)
    if flag_order != pooling.modes:
        return config | {"pooling_mode": list(pooling.modes)}
    return config | {key: mode in pooling.modes for key, mode in POOLING_MODE_FLAGS.items()}


def _write_dense(layer: Dense, home: Path) -> None:
    out_features, in_features = layer.weight.shape
    module = "linear" if layer.activation == "Identity" else "activation"
    config = {"in_features": in_features, "out_features": out_features, "bias": layer.bias is not None}
    config["activation_function"] = f"torch.nn.modules.{module}.{layer.activation}"
    _write_json(home / "config.json", config | ({} if layer.residual is False else {"use_residual": True}))
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
