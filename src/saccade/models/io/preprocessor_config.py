"""preprocessor_config.json: the image preprocessing with which `transformers` gives a model the same input."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from saccade.models.io import model_dir

PREPROCESSOR_CONFIG_FILE = "preprocessor_config.json"
IMAGE_MEAN_AND_STD = 0.5  # mean and standard deviation by which pixels from 0 to 1 are normalized
BICUBIC = 3  # its number in Pillow


def make_preprocessor_config(config: Any) -> dict[str, Any]:
    """The preprocessing settings of an image model; empty for other models.

    Images are resized to cover the image size, then center-cropped. For an image size that is not square the format cannot
    express this, and `transformers` stretches the images.
    """
    sizes = asdict(config)
    if not {"channels", "image_height"} <= sizes.keys():
        return {}
    rows, columns = sizes["image_height"], sizes.get("image_width") or sizes["image_height"]
    size = {"height": rows, "width": columns}
    resizing: dict[str, Any] = {"image_processor_type": "ViTImageProcessor", "size": size}
    if rows == columns:
        resizing = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": rows}}
        resizing |= {"do_center_crop": True, "crop_size": size}
    mean_and_std = [IMAGE_MEAN_AND_STD] * sizes["channels"]
    normalization = {
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": mean_and_std,
        "image_std": mean_and_std,
    }
    return resizing | normalization | {"do_resize": True, "resample": BICUBIC, "do_convert_rgb": sizes["channels"] == 3}


def describe_preprocessor(directory: Path) -> list[str]:
    """Notes on preprocessing settings of a published directory that saccade ignores."""
    path = directory / PREPROCESSOR_CONFIG_FILE
    config = model_dir.read_json(path) if path.exists() else {}
    ignored = [
        f"{key} = {config[key]}"
        for key in ("image_mean", "image_std")
        if key in config and not _is_default_normalization(config[key])
    ]
    if not ignored:
        return []
    return [f"ignored    {', '.join(ignored)} in {PREPROCESSOR_CONFIG_FILE}: saccade normalizes with 0.5 and 0.5"]


def _is_default_normalization(value: Any) -> bool:
    return all(number == IMAGE_MEAN_AND_STD for number in (value if isinstance(value, list) else [value]))
