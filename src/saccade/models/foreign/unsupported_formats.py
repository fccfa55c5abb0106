"""Recognizes unsupported model formats (GGUF, ONNX, TensorFlow, adapters, quantized) and says how to convert them."""

import json
from pathlib import Path

from saccade.text.loading.safe_files import abbreviate, read_json, resolve_inside

GGUF_MAGIC = b"GGUF"
PEFT_CLASSES = {  # of the peft package, by the task type of an adapter
    "CAUSAL_LM": "AutoPeftModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoPeftModelForSeq2SeqLM",
    "SEQ_CLS": "AutoPeftModelForSequenceClassification",
    "TOKEN_CLS": "AutoPeftModelForTokenClassification",
    "QUESTION_ANS": "AutoPeftModelForQuestionAnswering",
    "FEATURE_EXTRACTION": "AutoPeftModelForFeatureExtraction",
}
SAFETENSORS_NEEDED = "A directory with config.json and model.safetensors is needed"


def describe_file(path: Path) -> str | None:
    """An error message for a file in a known unsupported format; None for others."""
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
        return f"{path}: TensorFlow Lite models are not supported. {SAFETENSORS_NEEDED}: use the model it was converted from."
    if path.suffix == ".safetensors":
        return f"{path}: contains tensors without a config. {SAFETENSORS_NEEDED}; pass the directory of the file."
    return None


def describe_directory(directory: Path) -> str | None:
    """An error message for a directory without readable weights, by the files in it; None if its format is unknown."""
    names = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    if "adapter_config.json" in names:
        return _describe_adapter(directory)
    if "model.bin" in names and any("vocabulary" in name for name in names):
        return (
            f"{directory}: CTranslate2 models are not supported. {SAFETENSORS_NEEDED}: use the model that it was converted "
            "from. A Marian model can also be imported from Marian's own .bin file."
        )
    files = [path for pattern in ("*.gguf", "*.onnx", "onnx/*.onnx") for path in sorted(directory.glob(pattern))]
    if files:
        return _describe_gguf(files[0]) if files[0].suffix == ".gguf" else _describe_onnx(files[0])
    for name, kind in (("tf_model.h5", "TensorFlow"), ("flax_model.msgpack", "Flax")):
        if name in names:
            return (
                f"{directory / name}: {kind} weights are not supported. {SAFETENSORS_NEEDED}: transformers before version 5 "
                f"writes it, AutoModel.from_pretrained({str(directory)!r}, from_{name[: name.index('_')]}=True)"
                ".save_pretrained(NEW)."
            )
    return None


def _describe_gguf(path: Path) -> str:
    return (
        f"{path}: GGUF files (llama.cpp) are not supported. {SAFETENSORS_NEEDED}: use the model that the file was converted "
        f"from, or convert it with transformers, AutoModelForCausalLM.from_pretrained({str(path.parent)!r}, "
        f"gguf_file={path.name!r}).save_pretrained(NEW)."
    )


def _describe_onnx(path: Path) -> str:
    return (
        f"{path}: ONNX graphs are not supported. {SAFETENSORS_NEEDED}: use the model that it was exported from; on the hub it "
        "is usually in the same repository, or in the base model named on the model card."
    )


def _describe_adapter(directory: Path) -> str:
    """The message for a LoRA or another peft adapter, with the name of its base model."""
    path = directory / "adapter_config.json"
    resolve_inside(path, directory)
    raw = read_json(path)
    kind, base, task = (raw.get(key) for key in ("peft_type", "base_model_name_or_path", "task_type"))
    kind = "LoRA" if kind in ("LORA", None) else abbreviate(kind)
    reader = PEFT_CLASSES.get(task if isinstance(task, str) else "", "AutoPeftModel")
    return (
        f"{directory}: a {kind} adapter for {abbreviate(base) if base else 'a base model'}, not a complete model. Merge it into "
        f"its base model first: peft.{reader}.from_pretrained({str(directory)!r}).merge_and_unload().save_pretrained(NEW)."
    )


def describe_quantization(raw: dict) -> str | None:
    """An error message for quantized weights, by the `quantization_config` of a config.json; None if there is none."""
    quantization = raw.get("quantization_config")
    if not isinstance(quantization, dict):
        return None
    method = abbreviate(quantization.get("quant_method", json.dumps(quantization)[:40]))
    return (
        f"quantized weights ({method}) are not supported; use the original model, or dequantize it with transformers: "
        "model.dequantize().save_pretrained(NEW)."
    )
