"""Checks of a stored model before it is used: config sizes, token and segment ids, memory, and NaN or infinite weights."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args

from torch import Tensor

from saccade.errors import ModelError
from saccade.models.model import Model
from saccade.system import available_memory
from saccade.text.loading.safe_files import abbreviate

MAX_SIZES = {
    "width": 16_384,
    "ffn_width": 131_072,
    "layers": 512,
    "heads": 1_024,
    "vocab": 2_000_000,
    "max_positions": 1_000_000,
    "image_height": 65_536,
    "image_width": 65_536,
    "patch_size": 4_096,
    "channels": 4_096,
    "mels": 4_096,
    "stride": 4_096,
    "embedding_width": 16_384,
    "decoder_layers": 512,
    "decoder_heads": 1_024,
    "decoder_ffn_width": 131_072,
    "kv_heads": 1_024,
    "head_width": 16_384,
    "sliding_window": 1_000_000_000,
    "full_attention_every": 1_024,
    "attention_scale_width": 16_384,
    "target_vocab": 2_000_000,
    "segments": 2_000_000,
    "relative_buckets": 65_536,
    "max_relative_distance": 1_000_000,
    "original_max_positions": 1_000_000_000,
    "block_size": 65_536,
    "random_blocks": 65_536,
    "rank": 1_000_000,
    "hash_buckets": 65_536,
    "hash_rounds": 1_024,
    "max_bucket_distance": 65_536,
    "stages": 16,
    "blocks_per_stage": 512,
    "se_reduction": 16_384,
    "image_size": 65_536,
    "cell_size": 4_096,
    "codebook_size": 2_000_000,
    "code_width": 16_384,
}


def check_fields(config: Any, where: str) -> None:
    """Raise an error for a config value of the wrong type, or for a size below 1 or above that of any real model."""
    for item in fields(config):
        value, default = getattr(config, item.name), item.default
        assert default is not MISSING, f"{item.name} needs a default"
        if value is None and default is None:
            continue
        default_type = next(iter(get_args(item.type))) if default is None else type(default)
        types = (int, float) if default_type is float else default_type
        maximum = 1 if item.name.endswith("dropout") else MAX_SIZES.get(item.name, 2_147_483_648)
        valid = isinstance(value, types) and (isinstance(default, bool) or not isinstance(value, bool))
        if isinstance(value, int | float) and not isinstance(value, bool):
            valid = valid and (item.name in MAX_SIZES) <= value <= maximum  # False for NaN; the minimum of a size is 1
        if not valid:
            minimum = int(item.name in MAX_SIZES)
            expected = (
                f"a number from {minimum} to {maximum:,}" if default_type in (int, float) else default_type.__name__
            )
            shown = item.name.replace("_", "-") if where.startswith("--") else item.name
            raise ModelError(f"{where}{shown} = {abbreviate(value)}; {expected} is needed.")


def check_decoder_start(config: Any, path: Path) -> None:
    """Raise an error if the decoder start token is not in the target vocabulary."""
    sizes = {item.name: getattr(config, item.name) for item in fields(config)}
    vocab, start_id = sizes.get("target_vocab") or sizes.get("vocab"), sizes.get("decoder_start_id")
    if start_id is not None and vocab is not None and not 0 <= start_id < vocab:
        raise ModelError(
            f"{path}: decoder_start_id = {start_id:,} is not in the vocabulary of {vocab:,} tokens; an id from 0 to "
            f"{vocab - 1:,} is needed."
        )


def check_memory(model: Model, bytes_per_parameter: int, directory: Path) -> None:
    """Raise MemoryError with the needed and the free memory if the weights do not fit, before they are read."""
    needed = bytes_per_parameter * sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())
    free = available_memory()
    if free is not None and needed > free:
        raise MemoryError(
            f"{directory}: the weights need {needed / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free"
        )


def check_finite(weights: Mapping[str, Tensor], directory: Path) -> None:
    """Raise an error if a weight is NaN or infinite, since the predictions of such a model mean nothing."""
    # a sum takes one pass and no copy; only tensors whose sum is not finite, perhaps by overflow, are checked in full
    suspects = [name for name, x in weights.items() if x.is_floating_point() and not x.sum().isfinite()]
    bad = {name: int((~weights[name].isfinite()).sum()) for name in suspects}
    bad = {name: count for name, count in bad.items() if count}
    if bad:
        listed = ", ".join(f"{name} ({count:,} of {weights[name].numel():,})" for name, count in list(bad.items())[:5])
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise ModelError(
            f"{directory}: weights that are not finite numbers (NaN or infinite): {listed}{more}. "
            "Training diverged or the file is damaged; use an earlier checkpoint, or download the file again."
        )


def copy_weights(model: Model) -> Model:
    """Copy the weights into memory, in place; `load` leaves float32 weights memory-mapped from the file.

    If a mapped file is truncated while in use, the process dies (SIGBUS); if it is overwritten, the model changes.
    """
    copies: dict[Any, Tensor] = {}  # tied weights, which share storage, stay tied
    for x in (*model.parameters(), *model.buffers()):
        storage_key = x.data_ptr(), x.shape, x.stride()
        if storage_key not in copies:
            copies[storage_key] = x.data.clone()
        x.data = copies[storage_key]
    model.extra_tensors = {name: x.clone() for name, x in model.extra_tensors.items()}
    return model


def check_segments(model: Model, directory: Path) -> None:
    """Raise an error if the tokenizer produces a segment id (token type id) that the model has no embedding for."""
    segments = _segment_count(model)
    if segments is None or model.tokenizer is None:
        return
    highest = max(_highest_segment(model, "a"), _highest_segment(model, "a", "a") if segments > 1 else 0)
    if highest >= segments:
        raise ModelError(
            f"{directory}: the tokenizer produces segment id (token type id) {highest}, but the model has {segments} segment "
            "embeddings, counted from 0; the tokenizer is another model's."
        )


def _segment_count(model: Model) -> int | None:
    return next((getattr(model.config, item.name) for item in fields(model.config) if item.name == "segments"), None)


def _highest_segment(model: Model, *texts: str) -> int:
    return max(model.tokenizer.encode(*texts).segment_ids, default=0)
