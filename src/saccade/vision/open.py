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
MOST = 20_000_000  # pixels of a picture
SIDE = 1 << 14  # pixels on a side
SLIM = 100  # how many times longer than wide
BYTES = 1 << 28  # of one file: twenty million pixels of four times sixteen bits, and some

MOVING = "of an animated picture the first frame is read"
GLASS = "what is transparent in a picture is read as white"
AGAIN = "fetch it again or remove it"
KNOWN = f"save it as one of {', '.join(FORMATS)}"


class BadPicture(DataError):
    """What is wrong with a picture, and what to do about it."""

    def __init__(self, what: str, cure: str, name: object = ""):
        super().__init__(what, file=name or "a picture", cure=cure)


class Unpacked(NamedTuple):
    """A picture in mode L or RGB, and what was done to it that its owner should know."""

    image: Image.Image
    notes: tuple[str, ...]


def unpack(picture: str | os.PathLike[str] | bytes, *, side: int | None = None) -> Unpacked:
    """A file, or its bytes, as pixels; where no more than `side` x `side` of them are needed, a large JPEG is read smaller."""
    name = "" if isinstance(picture, bytes) else os.fspath(picture)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(_file(picture), formats=FORMATS) as opened:
                _refuse_size(*opened.size)
                if side is not None:
                    opened.draft(None, (2 * side, 2 * side))  # never smaller than that, and of a JPEG only
                opened.load()
                made, glass = _plain(_upright(opened))
                return Unpacked(made, (MOVING,) * _moves(opened) + (GLASS,) * glass)
    except BadPicture as error:
        raise BadPicture(error.what, error.cure, name) from None
    except UnidentifiedImageError:
        raise BadPicture("the file is no picture, or a damaged one", f"{KNOWN}, or {AGAIN}", name) from None
    except Image.DecompressionBombError:
        raise BadPicture(f"the picture is too large, more than {MOST:,} pixels", "make it smaller", name) from None
    except MemoryError:
        raise
    except Exception as error:  # of a damaged file, decoders raise almost anything
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise BadPicture(f"the picture is damaged or cut off ({why})", AGAIN, name) from None


def _file(picture: str | os.PathLike[str] | bytes) -> str | os.PathLike[str] | io.BytesIO:
    """What Pillow is to open: an ordinary file that has something in it, or bytes."""
    try:
        status = None if isinstance(picture, bytes) else os.stat(picture)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadPicture(f"the picture cannot be read ({why})", "check its name and its rights") from None
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise BadPicture("this is no ordinary file", "give a picture file")
    size = len(picture) if isinstance(picture, bytes) else status.st_size if status is not None else 0
    if not size:
        raise BadPicture("the picture is empty, 0 bytes", AGAIN)
    if size > BYTES:
        raise BadPicture(f"the picture is a file of {size:,} bytes, more than {BYTES:,}", "make it smaller")
    if isinstance(picture, bytes):
        return io.BytesIO(picture)
    if not os.access(picture, os.R_OK):
        raise BadPicture("the picture may not be read", "ask for permission, for example chmod u+r")
    return picture


def _refuse_size(wide: int, high: int) -> None:
    """Said by the header, before a pixel is unpacked."""
    if max(wide, high) > SIDE or wide * high > MOST:
        what = f"the picture is too large, {wide:,} x {high:,} pixels: more than {MOST:,} in all or {SIDE:,} on a side"
        raise BadPicture(what, "make it smaller")
    if max(wide, high) > SLIM * min(wide, high):
        raise BadPicture(f"the picture is {wide:,} x {high:,}, too slim to be cut square", "crop it")


def _upright(opened: Image.Image) -> Image.Image:
    """As the camera was held; a damaged note of that is no reason to lose the picture."""
    with suppress(Exception):
        return ImageOps.exif_transpose(opened)
    return opened.copy()


def _plain(image: Image.Image) -> tuple[Image.Image, bool]:
    """In mode L or RGB, and whether something was transparent."""
    if image.mode == "F":
        raise BadPicture(
            "the pixels are fractions, and nobody says which of them is white", "save it with 8 or 16 bits"
        )
    if image.mode.startswith("I"):
        return _eight_bits(image), False
    grey = image.mode in ("1", "L", "LA", "La")
    glass = False
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        clear = image.convert("RGBA")
        glass = bool(np.asarray(clear.getchannel("A")).min() < 255)
        image = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear)
    return image.convert("L" if grey else "RGB"), glass


def _eight_bits(image: Image.Image) -> Image.Image:
    """The upper eight of sixteen bits: what eight would have been, whether they were widened by zeros or by repetition."""
    deep = np.asarray(image)
    low, high = int(deep.min()), int(deep.max())
    if low < 0 or high > 65_535:
        what = f"the pixels go from {low:,} to {high:,}, beyond sixteen bits"
        raise BadPicture(what, "save it with 8 or 16 bits")
    return Image.fromarray((deep >> 8).astype(np.uint8))


def _moves(opened: Image.Image) -> bool:
    """Whether more frames follow; what is wrong with them does not matter."""
    with suppress(Exception):
        return bool(getattr(opened, "is_animated", False))
    return False
