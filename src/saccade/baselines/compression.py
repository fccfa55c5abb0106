"""Compression as a language model: the bits that gzip needs for each byte of a text."""

import zlib

GZIP_LEVEL = 9  # the best compression
GZIP_WINDOW_BITS = 31  # the largest window of 32 KB, and the header of a gzip file


def gzip_bits_per_byte(text: bytes, context: bytes = b"") -> float:
    """The bits per byte of `gzip -9`; with a context, what the text adds to the file of the context.

    >>> gzip_bits_per_byte(b"no" * 1000) < 0.2
    True
    """
    if not text:
        raise ValueError("Bits per byte of an empty text are not defined.")
    added = _gzip_size(context + text) - (_gzip_size(context) if context else 0)
    return 8 * added / len(text)


def _gzip_size(data: bytes) -> int:
    compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_WINDOW_BITS)
    return len(compressor.compress(data)) + len(compressor.flush())
