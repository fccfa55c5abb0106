"""preprocessor_config.json: how `transformers` has to make pixels of a picture so that a model sees what it sees here."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from saccade.models.io import model_dir

PREPROCESSOR_CONFIG_FILE = "preprocessor_config.json"
IMAGE_MEAN_AND_STD = 0.5  # of bytes as numbers from 0 to 1: what is taken from each, and what it is then divided by
BICUBIC = 3  # as Pillow numbers it


def make_preprocessor_config(config: Any) -> dict[str, Any]:
    """The settings for a model of pictures; nothing for any other.

    A picture is scaled to cover the size and its middle is cut out. For a picture that is not square there are no words for
    that, and `transformers` stretches it.
    """
    sizes = asdict(config)
    if not {"channels", "image_height"} <= sizes.keys():
        return {}
    rows, columns = sizes["image_height"], sizes.get("image_width") or sizes["image_height"]
    shape = {"height": rows, "width": columns}
    scaled: dict[str, Any] = {"image_processor_type": "ViTImageProcessor", "size": shape}
    if rows == columns:
        scaled = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": rows}}
        scaled |= {"do_center_crop": True, "crop_size": shape}
    middle = [IMAGE_MEAN_AND_STD] * sizes["channels"]
    numbers = {
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": middle,
        "image_std": middle,
    }
    return scaled | numbers | {"do_resize": True, "resample": BICUBIC, "do_convert_rgb": sizes["channels"] == 3}


def describe_preprocessor(directory: Path) -> list[str]:
    """What a published directory says of pixels and is not done here, as remarks."""
    path = directory / PREPROCESSOR_CONFIG_FILE
    stated = model_dir.read_json(path) if path.exists() else {}
    other = [
        f"{key} = {stated[key]}"
        for key in ("image_mean", "image_std")
        if key in stated and not _is_default_normalization(stated[key])
    ]
    if not other:
        return []
    return [
        (
            f"ignored    {', '.join(other)} in {PREPROCESSOR_CONFIG_FILE}: pixels are numbers from -1 to 1 here, "
            "which is 0.5 for both"
        )
    ]


def _is_default_normalization(value: Any) -> bool:
    return all(number == IMAGE_MEAN_AND_STD for number in (value if isinstance(value, list) else [value]))
