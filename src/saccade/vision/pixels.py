"""Pictures to pixels: a file or an array becomes bytes of one shape, (channels, rows, columns).

>>> import numpy as np
>>> pixels(np.zeros((28, 28), np.uint8)).shape
(1, 28, 28)
>>> pixels(np.zeros((28, 28), np.uint8), (3, 32, 32)).shape
(3, 32, 32)
"""

import os
import stat

import numpy as np
from PIL import Image, ImageOps

MOST = 20_000_000  # pixels of a picture that is opened
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM")  # what others can be renamed to is not opened
SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def pixels(
    picture: str | os.PathLike | np.ndarray, shape: tuple[int | None, int | None, int | None] | None = None
) -> np.ndarray:
    """A picture as uint8 (channels, rows, columns): as it is, or in a `shape`, of which None is left as it is.

    A picture of another shape than asked for is scaled to cover it, and what stands out at two sides is cut.
    """
    made = _array(picture) if isinstance(picture, np.ndarray) else _open(picture)
    channels, rows, columns = shape or (None, None, None)
    channels = channels or len(made.getbands())
    if channels not in MODES:
        raise ValueError(f"A picture has 1, 3 or 4 channels; {channels} were asked for.")
    if made.mode != MODES[channels]:
        made = made.convert(MODES[channels])
    size = (columns or made.width, rows or made.height)
    if made.size != size:
        made = ImageOps.fit(made, size, Image.Resampling.BICUBIC)
    array = np.asarray(made)
    return np.ascontiguousarray(array[None] if array.ndim == 2 else array.transpose(2, 0, 1))


def _array(array: np.ndarray) -> Image.Image:
    """Bytes (rows, columns) or (rows, columns, channels)."""
    if array.dtype != np.uint8 or array.ndim not in (2, 3):
        raise ValueError(
            f"Pixels are uint8, (rows, columns) or (rows, columns, channels); got {array.dtype} {array.shape}."
        )
    return Image.fromarray(array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array)


def _open(path: str | os.PathLike) -> Image.Image:
    """A file, upright, in grey or in colour; what is enormous, broken or no picture is refused by name."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ValueError(f"{path}: is no regular file.")
        with Image.open(path, formats=FORMATS) as opened:
            if opened.width * opened.height > MOST:
                raise ValueError(
                    f"{path}: has {opened.width:,} x {opened.height:,} pixels, more than {MOST:,}; scale it down first."
                )
            opened.seek(0)  # of an animation, the first picture
            upright = ImageOps.exif_transpose(opened)
            if upright.mode in (
                "I;16",
                "I",
                "F",
                "I;16B",
            ):  # sixteen bits: the upper eight are what eight would have been
                deep = np.asarray(upright.convert("I"), np.int64)
                return Image.fromarray((np.clip(deep, 0, 65_535) >> 8).astype(np.uint8))
            if upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info:
                glass = upright.convert("RGBA")  # what is transparent shows white
                return Image.alpha_composite(Image.new("RGBA", glass.size, "white"), glass).convert("RGB")
            return upright.convert("L" if upright.mode in ("1", "L") else "RGB")
    except Image.DecompressionBombError as error:
        raise ValueError(f"{path}: {error}") from None
    except (OSError, SyntaxError) as error:  # what Pillow raises for files that are no pictures, or end too early
        known = ", ".join(FORMATS)
        raise ValueError(f"{path}: cannot be read as a picture ({error}). Is it whole, and one of {known}?") from None
