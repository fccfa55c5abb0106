"""Formats of other programs that are not read here, told by their content: their names, and the way to something that is read."""

import json
from pathlib import Path

from saccade.text.loading.safe_files import abbreviate, read_json, resolve_inside

GGUF_MAGIC = b"GGUF"
PEFT_CLASSES = {  # of the package peft, by the task that an adapter is for
    "CAUSAL_LM": "AutoPeftModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoPeftModelForSeq2SeqLM",
    "SEQ_CLS": "AutoPeftModelForSequenceClassification",
    "TOKEN_CLS": "AutoPeftModelForTokenClassification",
    "QUESTION_ANS": "AutoPeftModelForQuestionAnswering",
    "FEATURE_EXTRACTION": "AutoPeftModelForFeatureExtraction",
}
SAFETENSORS_NEEDED = "A directory with config.json and model.safetensors is needed"


def describe_file(path: Path) -> str | None:
    """What a single file is, if it is of a format that is known and not read."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
    except OSError:
        return None
    if start.startswith(GGUF_MAGIC):
        return _describe_gguf(path)
    if path.suffix == ".onnx":
        return _describe_onnx(path)
    if start[4:8] == b"TFL3":
        return f"{path}: is a TensorFlow Lite model. {SAFETENSORS_NEEDED}: take the model that it was converted from."
    if path.suffix == ".safetensors":
        return (
            f"{path}: holds tensors without a config. {SAFETENSORS_NEEDED}; give the directory that the file lies in."
        )
    return None


def describe_directory(directory: Path) -> str | None:
    """What a directory without readable weights is, by the files that are in it."""
    names = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    if "adapter_config.json" in names:
        return _describe_adapter(directory)
    if "model.bin" in names and any("vocabulary" in name for name in names):
        return (
            f"{directory}: is a model of CTranslate2, whose format is not read here. {SAFETENSORS_NEEDED}: take the one that it "
            "was converted from. A Marian model can also be imported as the .bin file that Marian wrote itself."
        )
    found = [path for pattern in ("*.gguf", "*.onnx", "onnx/*.onnx") for path in sorted(directory.glob(pattern))]
    if found:
        return _describe_gguf(found[0]) if found[0].suffix == ".gguf" else _describe_onnx(found[0])
    for name, kind in (("tf_model.h5", "TensorFlow"), ("flax_model.msgpack", "Flax")):
        if name in names:
            return (
                f"{directory / name}: are weights of {kind}, which are not read here. {SAFETENSORS_NEEDED}: transformers before "
                f"version 5 writes it, AutoModel.from_pretrained({str(directory)!r}, from_{name[: name.index('_')]}=True)"
                ".save_pretrained(NEW)."
            )
    return None


def _describe_gguf(path: Path) -> str:
    return (
        f"{path}: is a GGUF file (llama.cpp), which is not read here. {SAFETENSORS_NEEDED}: take the model that the file was "
        f"made from, or write it with transformers, AutoModelForCausalLM.from_pretrained({str(path.parent)!r}, "
        f"gguf_file={path.name!r}).save_pretrained(NEW)."
    )


def _describe_onnx(path: Path) -> str:
    return (
        f"{path}: is an ONNX graph, which is not read here. {SAFETENSORS_NEEDED}: take the model that it was exported from; on "
        "the hub it is mostly the same repository, or the one that its card calls the base model."
    )


def _describe_adapter(directory: Path) -> str:
    """A LoRA or another adapter of the package peft; only the name of its base is taken from its config."""
    path = directory / "adapter_config.json"
    resolve_inside(path, directory)
    raw = read_json(path)
    kind, base, task = (raw.get(key) for key in ("peft_type", "base_model_name_or_path", "task_type"))
    kind = "LoRA" if kind in ("LORA", None) else abbreviate(kind)
    reader = PEFT_CLASSES.get(task if isinstance(task, str) else "", "AutoPeftModel")
    return (
        f"{directory}: is a {kind} adapter for {abbreviate(base) if base else 'a base model'}, not a whole model. Merge it into "
        f"its base first: peft.{reader}.from_pretrained({str(directory)!r}).merge_and_unload().save_pretrained(NEW)."
    )


def describe_quantization(raw: dict) -> str | None:
    """What a config.json says of weights that are stored in fewer bits, in a layout of another package."""
    found = raw.get("quantization_config")
    if not isinstance(found, dict):
        return None
    method = abbreviate(found.get("quant_method", json.dumps(found)[:40]))
    return (
        f"the weights are quantized ({method}), in a layout that is not read here; take the model that they were made from, or "
        "write plain ones with transformers: model.dequantize().save_pretrained(NEW)."
    )
