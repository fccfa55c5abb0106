"""What has to be true of a stored model before it is used: ids that have a vector, weights that are numbers and fit in memory."""

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
    "block_type": 65_536,
    "random_blocks": 65_536,
    "rank": 1_000_000,
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
    """Refuse a config with a value of the wrong type, or with a size that is below 1 or that no real model has."""
    for item in fields(config):
        value, usual = getattr(config, item.name), item.default
        assert usual is not MISSING, f"{item.name} needs a usual value"
        if value is None and usual is None:
            continue
        usual_kind = next(iter(get_args(item.type))) if usual is None else type(usual)
        kinds = (int, float) if usual_kind is float else usual_kind
        cap = 1 if item.name.endswith("dropout") else MAX_SIZES.get(item.name, 2_147_483_648)
        right = isinstance(value, kinds) and (isinstance(usual, bool) or not isinstance(value, bool))
        if isinstance(value, int | float) and not isinstance(value, bool):
            right = right and (item.name in MAX_SIZES) <= value <= cap  # false for NaN too; 1 is the least of sizes
        if not right:
            least = int(item.name in MAX_SIZES)
            wanted = f"a number from {least} to {cap:,}" if usual_kind in (int, float) else usual_kind.__name__
            shown = item.name.replace("_", "-") if where.startswith("--") else item.name
            raise ModelError(f"{where}{shown} = {abbreviate(value)} where {wanted} is needed.")


def check_decoder_start(config: Any, path: Path) -> None:
    """The token that every target begins with is one of the target's vocabulary."""
    sizes = {item.name: getattr(config, item.name) for item in fields(config)}
    vocab, begin = sizes.get("target_vocab") or sizes.get("vocab"), sizes.get("decoder_start_id")
    if begin is not None and vocab is not None and not 0 <= begin < vocab:
        raise ModelError(
            f"{path}: decoder_start_id = {begin:,} is no token of a vocabulary of {vocab:,}; ids go up to {vocab - 1:,}."
        )


def check_memory(model: Model, bytes_per_parameter: int, directory: Path) -> None:
    """Raise MemoryError, which says how much is needed and how much there is, before the weights are read.

    `bytes_per_parameter` is the number of bytes of one parameter.
    """
    needed = bytes_per_parameter * sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())
    free = available_memory()
    if free is not None and needed > free:
        raise MemoryError(
            f"{directory}: the weights need {needed / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free"
        )


def check_finite(weights: Mapping[str, Tensor], directory: Path) -> None:
    """No weight is NaN or infinite: whatever such a model answers means nothing."""
    # a sum is one pass without a copy; one that overflows is looked into
    odd = [name for name, x in weights.items() if x.is_floating_point() and not x.sum().isfinite()]
    bad = {name: int((~weights[name].isfinite()).sum()) for name in odd}
    bad = {name: count for name, count in bad.items() if count}
    if bad:
        listed = ", ".join(f"{name} ({count:,} of {weights[name].numel():,})" for name, count in list(bad.items())[:5])
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise ModelError(
            f"{directory}: weights that are not finite numbers (NaN or infinite): {listed}{more}. "
            "The training diverged or the file is damaged; use an earlier checkpoint, or fetch the file again."
        )


def copy_weights(model: Model) -> Model:
    """The same model with weights in memory of its own; `load` maps those of float32 from the file.

    A mapped file that is cut short while it is in use ends the process (SIGBUS), and one that is overwritten changes the model.
    """
    copies: dict[Any, Tensor] = {}  # weights that are the same place in the file stay one
    for x in (*model.parameters(), *model.buffers()):
        place = x.data_ptr(), x.shape, x.stride()
        if place not in copies:
            copies[place] = x.data.clone()
        x.data = copies[place]
    model.extra_tensors = {name: x.clone() for name, x in model.extra_tensors.items()}
    return model


def check_segments(model: Model, directory: Path) -> None:
    """The tokenizer gives no segment, or token type, that the model has no vector for; of two texts, where it has several."""
    segments = _segment_count(model)
    if segments is None or model.tokenizer is None:
        return
    highest = max(_highest_segment(model, "a"), _highest_segment(model, "a", "a") if segments > 1 else 0)
    if highest >= segments:
        raise ModelError(
            f"{directory}: the tokenizer gives the segment (token type) {highest}, and the model has vectors for {segments}, "
            "counted from 0; the tokenizer is another model's."
        )


def _segment_count(model: Model) -> int | None:
    return next((getattr(model.config, item.name) for item in fields(model.config) if item.name == "segments"), None)


def _highest_segment(model: Model, *texts: str) -> int:
    return max(model.tokenizer.encode(*texts).segment_ids, default=0)
