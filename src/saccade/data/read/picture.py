"""Pictures named in a table or lying in a folder: inside it, whole at first sight, and of a size that can be held."""

from pathlib import Path
from typing import Protocol

from saccade.data.item import DataError

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "PPM", "TIFF")
SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
SIDE = 1 << 14  # pixels
AREA = 1 << 26  # pixels: 8192 x 8192
SLIM = 100  # how many times longer than wide


class Spot(Protocol):
    """Where the picture is named, so that an error can say so."""

    def bad(self, what: str, value: object, cure: str) -> DataError: ...


def inside(folder: Path, name: str, spot: Spot) -> Path:
    """The path of a picture that stays in the folder, links followed."""
    path = folder / name
    cure = "write a path that stays in the folder of this file, and put the picture there"
    try:
        if Path(name).is_absolute() or not path.resolve().is_relative_to(folder.resolve()):
            raise spot.bad("the path of the picture leads out of the folder", name, cure)
        if not path.is_file():
            raise spot.bad("there is no such picture", name, f"put it into {folder}, or correct its name")
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise spot.bad("the path of the picture cannot be followed", name, cure) from None
    return path


def refuse_broken(path: Path, spot: Spot, value: object) -> None:
    """Read no more than a picture's header: its format and its size."""
    import warnings

    from PIL import Image, UnidentifiedImageError

    try:
        if not path.stat().st_size:
            raise spot.bad("the picture is empty, 0 bytes", value, "fetch it again or remove it")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path, formats=FORMATS) as picture:
                wide, high = picture.size
    except UnidentifiedImageError:
        known = ", ".join(FORMATS)
        raise spot.bad("the file is no picture, or a damaged one", value, f"save it as one of {known}") from None
    except Image.DecompressionBombError:
        raise spot.bad("the picture is too large to be unpacked", value, "make it smaller") from None
    except OSError as error:
        raise spot.bad(f"the picture cannot be read ({error})", value, "fetch it again or remove it") from None
    except (SyntaxError, ValueError, IndexError, TypeError, OverflowError) as error:
        if isinstance(error, DataError):
            raise
        raise spot.bad(f"the picture is damaged ({error})", value, "fetch it again or remove it") from None
    if max(wide, high) > SIDE or wide * high > AREA:
        what = f"the picture has {wide:,} x {high:,} pixels, more than {SIDE:,} on a side or {AREA:,} in all"
        raise spot.bad(what, value, "make it smaller")
    if max(wide, high) > SLIM * min(wide, high):
        raise spot.bad(f"the picture is {wide:,} x {high:,}, too slim to be cut square", value, "crop it")
