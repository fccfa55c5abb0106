"""Safe loading of image files: EXIF orientation applied, grayscale or RGB, of limited size; other files raise an error.

The number of pixels is read from the header before anything is decompressed. Only the decoders of the listed formats ever run,
whatever a file claims to be, and Pillow's warnings are suppressed.
"""

import io
import os
import stat
import warnings
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from saccade.errors import DataError

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
MAX_PIXELS = 20_000_000  # pixels of one image
MAX_SIDE_PIXELS = 1 << 14  # pixels of its longer side
MAX_ASPECT_RATIO = 100  # longer side / shorter side
MAX_FILE_BYTES = 1 << 28  # of one file: twenty million pixels with four channels of 16 bits, and some more

ANIMATED_NOTE = "only the first frame of an animated image is read"
TRANSPARENCY_NOTE = "transparent pixels of an image are read as white"
REFETCH_HINT = "download it again or remove it"
FORMAT_HINT = f"save it as one of {', '.join(FORMATS)}"


class ImageError(DataError):
    """An image that cannot be read: the problem, and what to do about it."""

    def __init__(self, problem: str, hint: str, file: object = ""):
        super().__init__(problem, file=file or "an image", hint=hint)


class LoadedImage(NamedTuple):
    """An image in mode L or RGB, and notes for the user about what was changed on reading."""

    image: Image.Image
    notes: tuple[str, ...]


def load_image(source: str | os.PathLike[str] | bytes, *, target_side: int | None = None) -> LoadedImage:
    """Load an image from a file or its bytes.

    If no more than `target_side` x `target_side` pixels are needed, a large JPEG is decoded at a reduced size.
    """
    name = "" if isinstance(source, bytes) else os.fspath(source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(_check_file(source), formats=FORMATS) as opened:
                _check_size(*opened.size)
                if target_side is not None:
                    # decodes a JPEG smaller, but never smaller than this; no effect on other formats
                    opened.draft(None, (2 * target_side, 2 * target_side))
                opened.load()
                image, transparent = _to_gray_or_rgb(_apply_orientation(opened))
                notes = (ANIMATED_NOTE,) * _is_animated(opened) + (TRANSPARENCY_NOTE,) * transparent
                return LoadedImage(image, notes)
    except ImageError as error:
        raise ImageError(error.problem, error.hint, name) from None
    except UnidentifiedImageError:
        raise ImageError(
            "the file is not an image, or it is damaged", f"{FORMAT_HINT}, or {REFETCH_HINT}", name
        ) from None
    except Image.DecompressionBombError:
        raise ImageError(f"the image is too large, more than {MAX_PIXELS:,} pixels", "make it smaller", name) from None
    except MemoryError:
        raise
    except Exception as error:  # decoders raise almost any exception for a damaged file
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ImageError(f"the image is damaged or truncated ({reason})", REFETCH_HINT, name) from None


def _check_file(source: str | os.PathLike[str] | bytes) -> str | os.PathLike[str] | io.BytesIO:
    """Return what Pillow shall open: the path of a non-empty regular file, or a buffer of the bytes."""
    try:
        status = None if isinstance(source, bytes) else os.stat(source)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ImageError(f"the image cannot be read ({reason})", "check its path and permissions") from None
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise ImageError("this is not a regular file", "give the path of an image file")
    size = len(source) if isinstance(source, bytes) else status.st_size if status is not None else 0
    if not size:
        raise ImageError("the image file is empty (0 bytes)", REFETCH_HINT)
    if size > MAX_FILE_BYTES:
        raise ImageError(f"the image file has {size:,} bytes, more than {MAX_FILE_BYTES:,}", "make it smaller")
    if isinstance(source, bytes):
        return io.BytesIO(source)
    if not os.access(source, os.R_OK):
        raise ImageError("no permission to read the image", "change its permissions, for example with chmod u+r")
    return source


def _check_size(width: int, height: int) -> None:
    """Raise an error for an image that is too large or too narrow, by its header, before a pixel is decompressed."""
    if max(width, height) > MAX_SIDE_PIXELS or width * height > MAX_PIXELS:
        problem = (
            f"the image is too large, {width:,} x {height:,} pixels: more than {MAX_PIXELS:,} in total "
            f"or {MAX_SIDE_PIXELS:,} on a side"
        )
        raise ImageError(problem, "make it smaller")
    if max(width, height) > MAX_ASPECT_RATIO * min(width, height):
        raise ImageError(f"the image is {width:,} x {height:,}, too narrow to be cropped to a square", "crop it")


def _apply_orientation(opened: Image.Image) -> Image.Image:
    """Apply the EXIF orientation; if it is damaged, the image stays as stored."""
    with suppress(Exception):
        return ImageOps.exif_transpose(opened)
    return opened.copy()


def _to_gray_or_rgb(image: Image.Image) -> tuple[Image.Image, bool]:
    """Convert to mode L or RGB on a white background; also returns whether any pixel was transparent."""
    if image.mode == "F":
        raise ImageError(
            "the pixels are floating-point numbers of unknown range", "save it with 8 or 16 bits per channel"
        )
    if image.mode.startswith("I"):
        return _to_eight_bits(image), False
    is_gray = image.mode in ("1", "L", "LA", "La")
    transparent = False
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        transparent = bool(np.asarray(rgba.getchannel("A")).min() < 255)
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    return image.convert("L" if is_gray else "RGB"), transparent


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """Keep the upper 8 of 16 bits, which restores 8-bit values whether they were widened by zeros or by repetition."""
    values = np.asarray(image)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 65_535:
        problem = f"the pixel values range from {low:,} to {high:,}, beyond 16 bits"
        raise ImageError(problem, "save it with 8 or 16 bits per channel")
    return Image.fromarray((values >> 8).astype(np.uint8))


def _is_animated(opened: Image.Image) -> bool:
    """Whether the file has more than one frame; errors in later frames are ignored."""
    with suppress(Exception):
        return bool(getattr(opened, "is_animated", False))
    return False
