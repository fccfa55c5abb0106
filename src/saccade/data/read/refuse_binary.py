"""Reject binary files by their magic numbers, so that a spreadsheet or an archive is not read as text."""

from pathlib import Path

from saccade.errors import DataError

EXPORT_HINT = "open it in its program and save it as CSV in UTF-8"
UNPACK_HINT = "extract it and give the files inside"
IMAGE_HINT = "put images into one folder per class, or list their paths in a CSV file"
MAGIC_NUMBERS: list[tuple[bytes, str, str]] = [  # first bytes, name of the format, hint
    (b"PK\x03\x04", "a zip archive", UNPACK_HINT),
    (b"PK\x05\x06", "an empty zip archive", UNPACK_HINT),
    (b"\xd0\xcf\x11\xe0", "an old Office file (.xls, .doc)", EXPORT_HINT),
    (b"%PDF-", "a PDF", "copy its text out, for example with pdftotext"),
    (b"\x89PNG", "a PNG image", IMAGE_HINT),
    (b"\xff\xd8\xff", "a JPEG image", IMAGE_HINT),
    (b"GIF8", "a GIF image", IMAGE_HINT),
    (b"II*\0", "a TIFF image", IMAGE_HINT),
    (b"MM\0*", "a TIFF image", IMAGE_HINT),
    (b"SIMPLE  =", "a FITS image", IMAGE_HINT),
    (b"RIFF", "a WebP image or a WAV audio file", IMAGE_HINT),
    (b"7z\xbc\xaf", "a 7z archive", UNPACK_HINT),
    (b"BZh91AY&SY", "a bzip2 file", "decompress it with bunzip2; gzip files are read directly"),
    (b"\xfd7zXZ", "an xz file", "decompress it with unxz; gzip files are read directly"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "decompress it with unzstd; gzip files are read directly"),
    (b"\x1f\x8b", "gzip inside gzip", "decompress it once with gunzip"),
    (b"Rar!", "a RAR archive", UNPACK_HINT),
    (b"SQLite format 3", "an SQLite database", "export the table as CSV: sqlite3 -csv -header FILE 'select ...'"),
    (b"\x93NUMPY", "a NumPy array", "write it as CSV with numpy.savetxt"),
    (b"\x89HDF", "an HDF5 file", "export it as CSV or Parquet"),
    (b"\x7fELF", "an executable program", "give a data file"),
    (b"{\\rtf", "a rich text document", "save it as plain text in UTF-8"),
    (b"version https://git-lfs", "a Git LFS pointer, not the data", "fetch the data with git lfs pull"),
    (b"<!doctype html", "a web page", "download the file itself, not the page that shows it"),
    (b"<html", "a web page", "download the file itself, not the page that shows it"),
]
UTF_16_BOMS = (b"\xff\xfe", b"\xfe\xff")


def refuse_binary(path: Path, head: bytes) -> None:
    """Raise DataError for a file that is not UTF-8 text; `head` is the beginning of the file, decompressed."""
    for magic, what, hint in MAGIC_NUMBERS:
        if head[: len(magic)].lower() == magic.lower():
            if magic == b"PK\x03\x04" and (b"xl/" in head or b"[Content_Types]" in head):
                what, hint = "a spreadsheet or another Office document (a zip archive)", EXPORT_HINT
            raise DataError(f"this is {what}, not a text file", file=path, value=head[:16], hint=hint)
    if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        hint = "write the data as JSON lines; pickles are never opened because loading one can run code"
        raise DataError("this is a pickle", file=path, value=head[:16], hint=hint)
    zeros = head.count(0)
    if head[:2] in UTF_16_BOMS or zeros > 0.3 * len(head) >= 3:
        order = "UTF-16BE" if head[:2] == b"\xfe\xff" or head[:1] == b"\0" else "UTF-16LE"
        what = (
            "this looks like UTF-16 text"
            if head[:2] in UTF_16_BOMS or _has_alternating_zeros(head)
            else "this is a binary file"
        )
        hint = f"convert it to UTF-8: iconv -f {order} -t UTF-8 {path.name} > new.txt"
        raise DataError(what, file=path, line=1, value=head[:16], hint=hint if "UTF-16" in what else "give a text file")
    control = sum(head.count(code) for code in (*range(1, 9), *range(14, 32)))
    if control + zeros > (0.3 if _is_utf8(head) else 0.1) * len(head) and len(head) >= 64:
        raise DataError("this is a binary file", file=path, value=head[:16], hint="give a text file in UTF-8")


def _has_alternating_zeros(head: bytes) -> bool:
    even, odd = head[::2].count(0), head[1::2].count(0)
    return min(even, odd) < 0.2 * max(even, odd, 1)


def _is_utf8(head: bytes) -> bool:
    """Whether the head is valid UTF-8, except for a character that may be truncated at its end."""
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4
    return True
