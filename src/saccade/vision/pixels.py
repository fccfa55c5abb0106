"""Pictures to pixels: a file, its bytes or an array become bytes of one shape, (channels, rows, columns).

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
MAX_PIXEL_BYTES = 1 << 30  # bytes of pixels that a data set may have in memory

ImageSource = str | os.PathLike[str] | bytes | np.ndarray
ImageShape = tuple[int | None, int | None, int | None]  # channels, rows, columns; None is left as it is


def load_pixels(source: ImageSource, shape: ImageShape | None = None) -> np.ndarray:
    """A picture as uint8 (channels, rows, columns): as it is, or in a `shape`, of which None is left as it is.

    A picture of another shape than asked for is scaled to cover it, and what stands out at two sides is cut.
    """
    channels, rows, columns = shape or (None, None, None)
    if channels is not None and channels not in MODES:
        raise ValueError(f"A picture has 1, 3 or 4 channels; {channels} were asked for.")
    if isinstance(source, np.ndarray):
        array = _check_array(source)
        if all(want in (None, is_) for want, is_ in zip((rows, columns, channels), array.shape, strict=True)):
            return _to_channels_first(array)
        made = Image.fromarray(array[..., 0] if array.shape[2] == 1 else array)
    else:
        made = load_image(source, target_side=max(rows, columns) if rows and columns else None).image
    mode = MODES[channels or len(made.getbands())]
    made = made if made.mode == mode else made.convert(mode)
    size = (columns or made.width, rows or made.height)
    if made.size != size:
        made = ImageOps.fit(made, size, Image.Resampling.BICUBIC)
    return _to_channels_first(np.asarray(made).reshape(size[1], size[0], -1))


def _check_array(array: np.ndarray) -> np.ndarray:
    """Bytes (rows, columns, channels), from those or from (rows, columns)."""
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in MODES):
        raise ValueError(
            "Pixels are uint8, (rows, columns) or (rows, columns, channels), of which there are 1, 3 or 4; "
            f"got {array.dtype} {array.shape}."
        )
    return array if array.ndim == 3 else array[..., None]


def _to_channels_first(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array.transpose(2, 0, 1))


@dataclass(frozen=True)
class LazyImage:
    """A picture that is read each time its pixels are asked for, with `numpy.asarray`."""

    source: ImageSource
    shape: tuple[int, int, int]
    ndim: ClassVar[int] = 3

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return load_pixels(self.source, self.shape).astype(dtype or np.uint8, copy=False)


def lazy_pixels(
    sources: Sequence[ImageSource], shape: ImageShape, *, max_bytes: int = MAX_PIXEL_BYTES
) -> list[np.ndarray] | list[LazyImage]:
    """The pixels of all pictures; of more than `most` bytes of them, the promise to read them when they are asked for."""
    channels, rows, columns = shape
    if channels and rows and columns and len(sources) * channels * rows * columns > max_bytes:
        return [LazyImage(picture, (channels, rows, columns)) for picture in sources]
    return [load_pixels(picture, shape) for picture in sources]
