"""Picture files, opened safely: upright, in grey or in colour, and of a size that can be held; all else is refused by name.

The number of pixels is read from the header before anything is unpacked. Decoders for other formats than those listed never
run, whatever a file calls itself, and Pillow's warnings do not get out.
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
MAX_PIXELS = 20_000_000  # pixels of a picture
MAX_SIDE_PIXELS = 1 << 14  # pixels on a side
MAX_ASPECT_RATIO = 100  # how many times longer than wide
MAX_FILE_BYTES = 1 << 28  # of one file: twenty million pixels of four times sixteen bits, and some

ANIMATED_NOTE = "of an animated picture the first frame is read"
TRANSPARENCY_NOTE = "what is transparent in a picture is read as white"
REFETCH_HINT = "fetch it again or remove it"
FORMAT_HINT = f"save it as one of {', '.join(FORMATS)}"


class ImageError(DataError):
    """What is wrong with a picture, and what to do about it."""

    def __init__(self, problem: str, hint: str, file: object = ""):
        super().__init__(problem, file=file or "a picture", hint=hint)


class LoadedImage(NamedTuple):
    """A picture in mode L or RGB, and what was done to it that its owner should know."""

    image: Image.Image
    notes: tuple[str, ...]


def load_image(source: str | os.PathLike[str] | bytes, *, target_side: int | None = None) -> LoadedImage:
    """A file, or its bytes, as pixels; where no more than `target_side` x `target_side` of them are needed, a large JPEG
    is read smaller.
    """
    name = "" if isinstance(source, bytes) else os.fspath(source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(_check_file(source), formats=FORMATS) as opened:
                _check_size(*opened.size)
                if target_side is not None:
                    opened.draft(
                        None, (2 * target_side, 2 * target_side)
                    )  # never smaller than that, and of a JPEG only
                opened.load()
                made, glass = _to_grey_or_rgb(_apply_orientation(opened))
                return LoadedImage(made, (ANIMATED_NOTE,) * _is_animated(opened) + (TRANSPARENCY_NOTE,) * glass)
    except ImageError as error:
        raise ImageError(error.problem, error.hint, name) from None
    except UnidentifiedImageError:
        raise ImageError(
            "the file is no picture, or a damaged one", f"{FORMAT_HINT}, or {REFETCH_HINT}", name
        ) from None
    except Image.DecompressionBombError:
        raise ImageError(
            f"the picture is too large, more than {MAX_PIXELS:,} pixels", "make it smaller", name
        ) from None
    except MemoryError:
        raise
    except Exception as error:  # of a damaged file, decoders raise almost anything
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ImageError(f"the picture is damaged or cut off ({why})", REFETCH_HINT, name) from None


def _check_file(source: str | os.PathLike[str] | bytes) -> str | os.PathLike[str] | io.BytesIO:
    """What Pillow is to open: an ordinary file that has something in it, or bytes."""
    try:
        status = None if isinstance(source, bytes) else os.stat(source)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ImageError(f"the picture cannot be read ({why})", "check its name and its rights") from None
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise ImageError("this is no ordinary file", "give a picture file")
    size = len(source) if isinstance(source, bytes) else status.st_size if status is not None else 0
    if not size:
        raise ImageError("the picture is empty, 0 bytes", REFETCH_HINT)
    if size > MAX_FILE_BYTES:
        raise ImageError(f"the picture is a file of {size:,} bytes, more than {MAX_FILE_BYTES:,}", "make it smaller")
    if isinstance(source, bytes):
        return io.BytesIO(source)
    if not os.access(source, os.R_OK):
        raise ImageError("the picture may not be read", "ask for permission, for example chmod u+r")
    return source


def _check_size(width: int, height: int) -> None:
    """Said by the header, before a pixel is unpacked."""
    if max(width, height) > MAX_SIDE_PIXELS or width * height > MAX_PIXELS:
        what = (
            f"the picture is too large, {width:,} x {height:,} pixels: more than {MAX_PIXELS:,} in all "
            f"or {MAX_SIDE_PIXELS:,} on a side"
        )
        raise ImageError(what, "make it smaller")
    if max(width, height) > MAX_ASPECT_RATIO * min(width, height):
        raise ImageError(f"the picture is {width:,} x {height:,}, too slim to be cut square", "crop it")


def _apply_orientation(opened: Image.Image) -> Image.Image:
    """As the camera was held; a damaged note of that is no reason to lose the picture."""
    with suppress(Exception):
        return ImageOps.exif_transpose(opened)
    return opened.copy()


def _to_grey_or_rgb(image: Image.Image) -> tuple[Image.Image, bool]:
    """In mode L or RGB, and whether something was transparent."""
    if image.mode == "F":
        raise ImageError(
            "the pixels are fractions, and nobody says which of them is white", "save it with 8 or 16 bits"
        )
    if image.mode.startswith("I"):
        return _to_eight_bits(image), False
    grey = image.mode in ("1", "L", "LA", "La")
    glass = False
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        clear = image.convert("RGBA")
        glass = bool(np.asarray(clear.getchannel("A")).min() < 255)
        image = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear)
    return image.convert("L" if grey else "RGB"), glass


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """The upper eight of sixteen bits: what eight would have been, whether they were widened by zeros or by repetition."""
    deep = np.asarray(image)
    low, high = int(deep.min()), int(deep.max())
    if low < 0 or high > 65_535:
        what = f"the pixels go from {low:,} to {high:,}, beyond sixteen bits"
        raise ImageError(what, "save it with 8 or 16 bits")
    return Image.fromarray((deep >> 8).astype(np.uint8))


def _is_animated(opened: Image.Image) -> bool:
    """Whether more frames follow; what is wrong with them does not matter."""
    with suppress(Exception):
        return bool(getattr(opened, "is_animated", False))
    return False
