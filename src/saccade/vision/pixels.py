"""Image pixels: a file, its bytes or an array as a uint8 array of one shape, (channels, rows, columns).

>>> import numpy as np
>>> load_pixels(np.zeros((28, 28), np.uint8)).shape
(1, 28, 28)
>>> load_pixels(np.zeros((28, 28), np.uint8), (3, 32, 32)).shape
(3, 32, 32)
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from PIL import Image, ImageOps

from saccade.vision.load_image import load_image

MODES = {1: "L", 3: "RGB", 4: "RGBA"}
MAX_PIXEL_BYTES = 1 << 30  # bytes of pixels that a dataset may hold in memory

ImageSource = str | os.PathLike[str] | bytes | np.ndarray
ImageShape = tuple[int | None, int | None, int | None]  # channels, rows, columns; None keeps the image's own


def load_pixels(source: ImageSource, shape: ImageShape | None = None) -> np.ndarray:
    """Load an image as uint8 (channels, rows, columns), converted to `shape`; None in it keeps the image's own size.

    An image of another shape is resized to cover `shape`, and the rest is cropped equally from both sides.
    """
    channels, rows, columns = shape or (None, None, None)
    if channels is not None and channels not in MODES:
        raise ValueError(f"Images have 1, 3 or 4 channels; got channels={channels}.")
    if isinstance(source, np.ndarray):
        array = _check_array(source)
        if all(wanted in (None, size) for wanted, size in zip((rows, columns, channels), array.shape, strict=True)):
            return _to_channels_first(array)
        image = Image.fromarray(array[..., 0] if array.shape[2] == 1 else array)
    else:
        image = load_image(source, target_side=max(rows, columns) if rows and columns else None).image
    mode = MODES[channels or len(image.getbands())]
    image = image if image.mode == mode else image.convert(mode)
    size = (columns or image.width, rows or image.height)
    if image.size != size:
        image = ImageOps.fit(image, size, Image.Resampling.BICUBIC)
    return _to_channels_first(np.asarray(image).reshape(size[1], size[0], -1))


def _check_array(array: np.ndarray) -> np.ndarray:
    """Return uint8 pixels as (rows, columns, channels); a (rows, columns) array gets a channel axis."""
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in MODES):
        raise ValueError(
            "Pixels must be uint8 of shape (rows, columns) or (rows, columns, channels), with 1, 3 or 4 channels; "
            f"got {array.dtype} {array.shape}."
        )
    return array if array.ndim == 3 else array[..., None]


def _to_channels_first(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array.transpose(2, 0, 1))


@dataclass(frozen=True)
class LazyImage:
    """An image that is read from its source each time it is converted with `numpy.asarray`."""

    source: ImageSource
    shape: tuple[int, int, int]
    ndim: ClassVar[int] = 3

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return load_pixels(self.source, self.shape).astype(dtype or np.uint8, copy=False)


def lazy_pixels(
    sources: Sequence[ImageSource], shape: ImageShape, *, max_bytes: int = MAX_PIXEL_BYTES
) -> list[np.ndarray] | list[LazyImage]:
    """The pixels of all images; lazily loaded if together they would take more than `max_bytes`."""
    channels, rows, columns = shape
    if channels and rows and columns and len(sources) * channels * rows * columns > max_bytes:
        return [LazyImage(source, (channels, rows, columns)) for source in sources]
    return [load_pixels(source, shape) for source in sources]
