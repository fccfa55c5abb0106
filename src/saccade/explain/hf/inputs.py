"""Inputs of a model of `transformers`: a text, two texts, an image or a mapping of arguments, as one row with named tokens."""

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor, nn

from saccade.attention.hf.modules import list_attention_modules
from saccade.decoding.config import GenerationConfig
from saccade.errors import UsageError
from saccade.explain.axis import Axis, Token, make_cell_axis, make_output_axis
from saccade.explain.hf.tokens import HFTokenizer, name_numbers
from saccade.explain.target import DEFAULT_MAX_NEW_TOKENS, MAX_PREFIX_TOKENS

GENERATION_ARGUMENTS = {  # from settings of GenerationConfig to arguments of `generate` in transformers
    "beams": "num_beams",
    "length_penalty": "length_penalty",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "max_new_tokens": "max_new_tokens",
    "min_new_tokens": "min_new_tokens",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "repetition_penalty": "repetition_penalty",
}
POSITION_TABLES = ("position_embeddings", "embed_positions", "wpe")  # modules of learned position embeddings
MAX_EXTRA_IMAGE_TOKENS = 16  # tokens before the patches of an image: class token and registers


@dataclass(frozen=True)
class HFInput:
    """The arguments of a forward pass over one row, with the axes of input and output."""

    arguments: dict[str, Tensor]
    input_axis: Axis | None = None  # None if tokens have no names, such as audio frames
    decoder_input_axis: Axis | None = None
    output_axis: Axis | None = None
    texts: tuple[str, ...] = ()
    generated_text: str = ""
    image: np.ndarray | None = None  # (rows, columns, channels), uint8
    truncated_at: int | None = None
    truncated_input_tokens: int = 0


def has_decoder_input(model: nn.Module) -> bool:
    """Whether a model is an encoder-decoder."""
    return "decoder_input_ids" in inspect.signature(model.forward).parameters


def is_decoder_only(model: nn.Module) -> bool:
    """Whether a model is decoder-only, so that its output continues its input."""
    sides = {module.side for module in list_attention_modules(model).values()}
    return "decoder" in sides and not has_decoder_input(model)


def make_hf_input(model: nn.Module, input: Any, tokenizer: Any, decoding: GenerationConfig) -> HFInput:
    """Prepare any input as one row; the decoder input is the given target, or the output that the model generates."""
    first, second = input if isinstance(input, tuple) and len(input) == 2 else (input, None)
    main = getattr(model, "main_input_name", "input_ids")
    if isinstance(input, Mapping):
        hf_input, target = _read_arguments(model, input, tokenizer), None
    elif main == "pixel_values":
        hf_input, target = _read_image(model, first, tokenizer), second
    elif main != "input_ids":
        raise UsageError(
            f"{type(model).__name__} reads {main}; give its arguments as a mapping, such as the output of its processor."
        )
    else:
        hf_input, target = _read_texts(model, first, second, tokenizer)
    if has_decoder_input(model):
        return _add_decoder_input(model, hf_input, target, tokenizer, decoding)
    if is_decoder_only(model) and decoding.max_new_tokens is not None:
        return _continue_text(model, hf_input, tokenizer, decoding)
    return hf_input


def _need_tokenizer(model: nn.Module, tokenizer: Any) -> HFTokenizer:
    if tokenizer is None:
        raise UsageError(
            f"{type(model).__name__} reads token ids, and a text needs its tokenizer: "
            "look(model, text, tokenizer=AutoTokenizer.from_pretrained(...))"
        )
    return HFTokenizer(tokenizer)


def _to_model(model: nn.Module, arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """Arguments as tensors on the device of a model, floats in its dtype."""
    parameter = next(model.parameters())
    tensors = {name: torch.as_tensor(value) for name, value in arguments.items() if value is not None}
    return {
        name: x.to(parameter.device, parameter.dtype if x.is_floating_point() else x.dtype)
        for name, x in tensors.items()
    }


def _read_texts(model: nn.Module, first: Any, second: Any, tokenizer: Any) -> tuple[HFInput, str | None]:
    """The input of one text or a pair, and the target if the second text is the target of an encoder-decoder."""
    if not isinstance(first, str) or not isinstance(second, str | None):
        raise UsageError(
            f"{type(model).__name__} reads text: a string, two strings, or its own arguments as a mapping; "
            f"got {type(first if not isinstance(first, str) else second).__name__}."
        )
    hf_tokenizer = _need_tokenizer(model, tokenizer)
    target = None
    if second is not None and has_decoder_input(model):
        target, second = second, None
    texts = (first,) if second is None else (first, second)
    decodes = is_decoder_only(model)
    if decodes:
        texts = ("".join(texts),)
    encoded, truncated = hf_tokenizer.encode(*texts, limit=max_positions(model))
    axis, texts = hf_tokenizer.make_axis(encoded, texts)
    allowed = inspect.signature(model.forward).parameters
    names = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in encoded and name in allowed]
    arguments = _to_model(model, {name: torch.tensor([list(encoded[name])]) for name in names})
    if decodes:
        axis = replace(axis, kind="decoder_input")
    continuation = (second or "") if decodes else ""
    return HFInput(arguments, axis, texts=texts, generated_text=continuation, truncated_input_tokens=truncated), target


def _read_image(model: nn.Module, image: Any, processor: Any) -> HFInput:
    if isinstance(image, str | os.PathLike):
        image = Pillow.open(image)
    if isinstance(image, Pillow.Image):
        image = np.asarray(image.convert("RGB"))
    if not isinstance(image, np.ndarray):
        raise UsageError(
            f"{type(model).__name__} reads an image: a file, an array, a Pillow image, or its own arguments as a mapping; "
            f"got {type(image).__name__}."
        )
    process: Any = getattr(processor, "image_processor", processor)
    if not callable(process):
        raise UsageError(
            f"{type(model).__name__} reads pixels, and an image needs its processor: "
            "look(model, image, tokenizer=AutoImageProcessor.from_pretrained(...))"
        )
    pixels: Any = process(images=image, return_tensors="pt")
    return _read_arguments(model, pixels, None)


def _read_arguments(model: nn.Module, inputs: Mapping[str, Any], tokenizer: Any) -> HFInput:
    """The first row of the arguments of a forward pass, without padding."""
    arguments = _to_model(model, inputs)
    if not arguments:
        raise UsageError(
            f"{type(model).__name__} got no arguments; its main argument is {getattr(model, 'main_input_name', '')}."
        )
    for mask_name in ("attention_mask", "decoder_attention_mask"):
        mask = arguments.get(mask_name)
        if mask is not None and mask.dim() == 2:
            masked = {name: x for name, x in arguments.items() if x.shape == mask.shape}
            arguments |= {name: x[:1, mask[0].bool()] for name, x in masked.items()}
    rows = max(x.size(0) for x in arguments.values() if x.dim())
    arguments = {name: x[:1] if x.dim() and x.size(0) == rows else x for name, x in arguments.items()}
    axis = None
    if "input_ids" in arguments:
        kind = "decoder_input" if is_decoder_only(model) else "input"
        axis = Axis(kind, _name_ids(tokenizer, arguments["input_ids"][0].tolist()))
    return HFInput(arguments, axis, image=_to_image(arguments.get("pixel_values")))


def _name_ids(tokenizer: Any, ids: list[int]) -> tuple[Token, ...]:
    return name_numbers(ids) if tokenizer is None else HFTokenizer(tokenizer).name_ids(ids)


def _to_image(pixels: Tensor | None) -> np.ndarray | None:
    """Pixels (1, channels, rows, columns) scaled to the full range of uint8."""
    if pixels is None or pixels.dim() != 4 or pixels.size(1) not in (1, 3):
        return None
    values = pixels[0].float().cpu()
    scaled = (values - values.min()) / (values.max() - values.min()).clamp(min=1e-9)
    return scaled.mul(255).byte().permute(1, 2, 0).numpy()


def make_patch_axis(model: nn.Module, arguments: Mapping[str, Tensor], count: int) -> Axis | None:
    """The axis of the patches of an image, after class token and registers; None if their number is not `count`."""
    pixels = arguments.get("pixel_values")
    config: Any = getattr(model, "config", None)
    configs = (config, getattr(config, "vision_config", None), getattr(config, "encoder", None))
    sizes = [getattr(config, "patch_size", None) for config in configs]
    size = next((size for size in sizes if isinstance(size, int)), None)
    if pixels is None or pixels.dim() != 4 or size is None:
        return None
    rows, columns = pixels.size(-2) // size, pixels.size(-1) // size
    extra = count - rows * columns
    if not 0 <= extra <= MAX_EXTRA_IMAGE_TOKENS:
        return None
    return make_cell_axis(rows, columns, ["[image]", *(f"[register {i}]" for i in range(1, extra))][:extra])


def max_positions(model: nn.Module) -> int | None:
    """The number of learned position embeddings of a model; None if it has none."""
    for path, module in model.named_modules():
        if isinstance(module, nn.Embedding) and path.rpartition(".")[2] in POSITION_TABLES:
            # RoBERTa numbers positions from after its padding index
            reserved = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - reserved - int(getattr(module, "offset", 0))
    return None


def _add_decoder_input(
    model: nn.Module, hf_input: HFInput, target: str | None, tokenizer: Any, decoding: GenerationConfig
) -> HFInput:
    """Add the input and the output of the decoder: from the arguments, from a target text, or generated by the model."""
    arguments = dict(hf_input.arguments)
    labels = arguments.pop("labels", None)
    if "decoder_input_ids" in arguments:
        tokens = _name_ids(tokenizer, arguments["decoder_input_ids"][0].tolist())
        return replace(
            hf_input,
            arguments=arguments,
            decoder_input_axis=Axis("decoder_input", tokens),
            output_axis=Axis("output", (*tokens[1:], Token("[next]"))),
        )
    text_index, texts, generated, ended = len(hf_input.texts), hf_input.texts, "", True
    if labels is not None:
        ids = labels[0].tolist()
        output = Axis("output", _name_ids(tokenizer, ids))
    elif target is not None:
        hf_tokenizer = _need_tokenizer(model, tokenizer)
        encoded, _ = hf_tokenizer.encode(target, is_target=True)
        ids = list(encoded["input_ids"])
        axis, targets = hf_tokenizer.make_axis(encoded, [target], text_index)
        output, texts, generated = replace(axis, kind="output"), (*texts, *targets), targets[0]
    else:
        ids, ended = _generate(model, replace(hf_input, arguments=arguments), decoding)
        output = Axis("output", name_numbers(ids))
        if tokenizer is not None:
            output, generated = make_output_axis(HFTokenizer(tokenizer), ids, text_index)
            texts = (*texts, generated)
    shifted = _shift_right(model, ids)
    names = _name_ids(tokenizer, shifted)
    input_tokens = (replace(names[0], text_index=None), *output.tokens[:-1]) if shifted[1:] == ids[:-1] else names
    return replace(
        hf_input,
        arguments=arguments | _to_model(model, {"decoder_input_ids": torch.tensor([shifted])}),
        decoder_input_axis=Axis("decoder_input", input_tokens),
        output_axis=output,
        texts=texts,
        generated_text=generated,
        truncated_at=None if ended else len(ids),
    )


def _shift_right(model: nn.Module, ids: list[int]) -> list[int]:
    """The decoder input for some labels: the start token, and all labels but the last."""
    prepare = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if prepare is not None:
        return prepare(labels=torch.tensor([ids]))[0].tolist()
    return [_start_id(model), *ids[:-1]]


def _start_id(model: nn.Module) -> int:
    configs = [getattr(model, "generation_config", None), model.config, getattr(model.config, "decoder", None)]  # type: ignore[union-attr]
    names = ("decoder_start_token_id", "bos_token_id")
    candidates = [getattr(config, name, None) for name in names for config in configs]
    start = next((id for id in candidates if isinstance(id, int)), None)
    if start is None:
        raise UsageError(
            f"{type(model).__name__} has no start token for its decoder; set model.config.decoder_start_token_id."
        )
    return start


def _continue_text(model: nn.Module, hf_input: HFInput, tokenizer: Any, decoding: GenerationConfig) -> HFInput:
    """The input and its generated continuation, as one text."""
    if set(hf_input.arguments) - {"input_ids", "attention_mask"} or hf_input.input_axis is None:
        got = ", ".join(hf_input.arguments)
        raise UsageError(f"{type(model).__name__} can only continue a text; got {got}. Leave max_new_tokens out.")
    input_ids = hf_input.arguments["input_ids"][0].tolist()
    ids, ended = _generate(model, hf_input, decoding)
    axis, text = Axis("output", name_numbers(ids)), ""
    if tokenizer is not None:
        prompt = hf_input.texts[0] if hf_input.texts else ""
        axis, text = make_output_axis(HFTokenizer(tokenizer), ids, 0, (input_ids[-MAX_PREFIX_TOKENS:], len(prompt)))
    tokens = torch.tensor([[*input_ids, *ids]])
    return replace(
        hf_input,
        arguments=_to_model(model, {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}),
        input_axis=Axis("decoder_input", (*hf_input.input_axis.tokens, *axis.tokens)),
        texts=("".join([*hf_input.texts[:1], text]),),
        generated_text=text,
        truncated_at=None if ended else len(ids),
    )


def _generate(model: nn.Module, hf_input: HFInput, decoding: GenerationConfig) -> tuple[list[int], bool]:
    """The new tokens of `model.generate`, and whether generation ended by itself."""
    generator: Any = model
    if not hasattr(model, "generate") or not generator.can_generate():
        raise UsageError(
            f"{type(model).__name__} has no output head, so it cannot generate; give two texts, input and target."
        )
    settings = _make_generation_arguments(decoding)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(decoding.seed)
        output = generator.generate(**hf_input.arguments, **settings)
    sequence: list[int] = getattr(output, "sequences", output)[0].tolist()
    if has_decoder_input(model):
        ids = sequence[1:] if sequence[:1] == [_start_id(model)] else sequence
    else:
        ids = sequence[hf_input.arguments["input_ids"].size(1) :]
    eos_ids = getattr(generator.generation_config, "eos_token_id", None)
    eos_ids = eos_ids if isinstance(eos_ids, Sequence) else [eos_ids]
    return ids, not ids or ids[-1] in eos_ids or len(ids) < settings["max_new_tokens"]


def _make_generation_arguments(decoding: GenerationConfig) -> dict[str, Any]:
    """The settings of `GenerationConfig` as arguments of `generate` in `transformers`."""
    defaults = GenerationConfig()
    settings = {field.name: getattr(decoding, field.name) for field in fields(decoding)}
    changed = {name: value for name, value in settings.items() if value != getattr(defaults, name) and name != "seed"}
    unknown = [name for name in changed if name not in GENERATION_ARGUMENTS]
    if unknown:
        known = ", ".join(GENERATION_ARGUMENTS)
        raise UsageError(f"{unknown[0]} is not supported for models of transformers; supported are {known} and seed.")
    arguments: dict[str, Any] = {GENERATION_ARGUMENTS[name]: value for name, value in changed.items()}
    arguments["do_sample"] = bool(decoding.temperature)
    if decoding.temperature:
        arguments.setdefault("top_k", decoding.top_k)
    else:
        arguments.pop("temperature", None)
    return {"max_new_tokens": DEFAULT_MAX_NEW_TOKENS} | arguments
