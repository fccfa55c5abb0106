"""The idx files of MNIST and its kin: a file of pixels and a file of labels, in the same order."""

from collections.abc import Iterator
from itertools import chain, repeat

import numpy as np

from saccade.data.read.record import Ask, Record
from saccade.data.read.source import Source, contents
from saccade.errors import DataError

LARGEST = 1 << 32  # values


def looks(source: Source, ask: Ask | None = None) -> bool:
    return source.head[:3] == b"\0\0\x08" and source.head[3:4] in (b"\1", b"\2", b"\3", b"\4")


def is_labels(source: Source) -> bool:
    return looks(source) and source.head[3] == 1


def idx(source: Source, ask: Ask) -> Iterator[Record | DataError]:
    """Pixels alone, for those who want to name what they show."""
    return pair(source, None, ask)


def pair(images: Source, labels: Source | None, ask: Ask) -> Iterator[Record | DataError]:
    """A record for each picture, with its label."""
    shape = _shape(images)
    role, asked = ask.of("image"), ask.of("label")
    if len(shape) not in (3, 4) or not role:
        what = f"idx values of shape {shape}; pictures are needed, (count, rows, columns) or with channels last"
        raise DataError(
            what, file=images.path, value=images.path.name, cure="give the file of images, with the task label"
        )
    if asked and labels is None:
        other = images.path.name.replace("images-idx3", "labels-idx1")
        cure = f"put the file of labels beside it, such as {other}, and give both"
        raise DataError(
            "pictures without labels", file=images.path, column=asked[0].name, value=images.path.name, cure=cure
        )
    if labels is not None and _shape(labels) != shape[:1]:
        what = f"{_shape(labels)[0]:,} labels for {shape[0]:,} pictures"
        raise DataError(what, file=labels.path, value=labels.path.name, cure="give the two files that belong together")
    with_labels = f" with the labels of {labels.path.name}" if labels is not None and asked else ""
    ask.said.append(
        f"{images.path.name}: idx, {shape[0]:,} pictures of {' x '.join(map(str, shape[1:]))}{with_labels}."
    )
    named = chain.from_iterable(_items(labels, ())) if labels is not None and asked else repeat(None)
    for i, (pixels, label) in enumerate(zip(chain.from_iterable(_items(images, shape[1:])), named, strict=False)):
        fields = {role[0].name: pixels}
        yield Record(i + 1, fields if label is None else {**fields, asked[0].name: int(label)})


def _shape(source: Source) -> tuple[int, ...]:
    count = source.head[3]
    if len(source.head) < 4 + 4 * count:
        cure = "fetch it again; the file is cut off"
        raise DataError("an idx header that ends early", file=source.path, value=source.head[:20], cure=cure)
    shape = tuple(int(size) for size in np.frombuffer(source.head, ">u4", count, 4))
    total = 1
    for size in shape:
        total *= size
    if not 0 < total <= LARGEST:
        cure = "fetch it again; the header is damaged"
        raise DataError(f"an idx header that claims {total:,} values", file=source.path, value=shape, cure=cure)
    return shape


def _items(source: Source, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Blocks of whole items, as the file is unpacked."""
    whole = _shape(source)
    size, left = int(np.prod(shape, dtype=np.int64)), whole[0]
    rest, skip = b"", 4 + 4 * len(whole)
    for chunk in contents(source):
        chunk, skip = chunk[skip:], max(0, skip - len(chunk))
        rest += chunk
        count = min(left, len(rest) // size)
        yield np.frombuffer(rest, np.uint8, count * size).reshape(count, *shape)
        left, rest = left - count, rest[count * size :]
        if len(rest) > size and not left:
            break
    if left or rest:
        what = f"{left:,} of {whole[0]:,} items are missing" if left else "more bytes than the header says"
        cure = "fetch it again; the file is damaged"
        raise DataError(what, file=source.path, line=whole[0] - left + 1, value=source.path.name, cure=cure)
