"""idx files, the format of MNIST: a file of images and a file of their labels, in the same order."""

from collections.abc import Iterator
from itertools import chain, repeat

import numpy as np

from saccade.data.read.base import ReadRequest, Record
from saccade.data.read.open_text import SourceFile, read_unpacked
from saccade.errors import DataError

MAX_VALUES = 1 << 32  # of a file, by its header


def matches(source: SourceFile, request: ReadRequest | None = None) -> bool:
    return source.head[:3] == b"\0\0\x08" and source.head[3:4] in (b"\1", b"\2", b"\3", b"\4")


def is_labels(source: SourceFile) -> bool:
    return matches(source) and source.head[3] == 1


def read_idx(source: SourceFile, request: ReadRequest) -> Iterator[Record | DataError]:
    """Images without labels."""
    return read_idx_pair(source, None, request)


def read_idx_pair(images: SourceFile, labels: SourceFile | None, request: ReadRequest) -> Iterator[Record | DataError]:
    """A record for each image, with its label."""
    shape = _read_shape(images)
    role, label_roles = request.find_roles("image"), request.find_roles("label")
    if len(shape) not in (3, 4) or not role:
        what = f"idx values of shape {shape}; images of shape (count, rows, columns[, channels]) are needed"
        raise DataError(
            what, file=images.path, value=images.path.name, hint="give the file of images, with the task label"
        )
    if label_roles and labels is None:
        other = images.path.name.replace("images-idx3", "labels-idx1")
        hint = f"put the file of labels beside it, such as {other}, and give both"
        raise DataError(
            "images without labels", file=images.path, column=label_roles[0].name, value=images.path.name, hint=hint
        )
    if labels is not None and _read_shape(labels) != shape[:1]:
        what = f"{_read_shape(labels)[0]:,} labels for {shape[0]:,} images"
        raise DataError(what, file=labels.path, value=labels.path.name, hint="give the two files that belong together")
    with_labels = f" with the labels of {labels.path.name}" if labels is not None and label_roles else ""
    request.notes.append(
        f"{images.path.name}: idx, {shape[0]:,} images of {' x '.join(map(str, shape[1:]))}{with_labels}."
    )
    values = chain.from_iterable(_read_items(labels, ())) if labels is not None and label_roles else repeat(None)
    for i, (pixels, label) in enumerate(zip(chain.from_iterable(_read_items(images, shape[1:])), values, strict=False)):
        fields = {role[0].name: pixels}
        yield Record(i + 1, fields if label is None else {**fields, label_roles[0].name: int(label)})


def _read_shape(source: SourceFile) -> tuple[int, ...]:
    count = source.head[3]
    if len(source.head) < 4 + 4 * count:
        hint = "download it again; the file is truncated"
        raise DataError("the idx header is incomplete", file=source.path, value=source.head[:20], hint=hint)
    shape = tuple(int(size) for size in np.frombuffer(source.head, ">u4", count, 4))
    total = 1
    for size in shape:
        total *= size
    if not 0 < total <= MAX_VALUES:
        hint = "download it again; the header is damaged"
        raise DataError(f"the idx header claims {total:,} values", file=source.path, value=shape, hint=hint)
    return shape


def _read_items(source: SourceFile, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Blocks of complete items, while the file is decompressed."""
    file_shape = _read_shape(source)
    size, left = int(np.prod(shape, dtype=np.int64)), file_shape[0]
    rest, skip = b"", 4 + 4 * len(file_shape)
    for chunk in read_unpacked(source):
        chunk, skip = chunk[skip:], max(0, skip - len(chunk))
        rest += chunk
        count = min(left, len(rest) // size)
        yield np.frombuffer(rest, np.uint8, count * size).reshape(count, *shape)
        left, rest = left - count, rest[count * size :]
        if len(rest) > size and not left:
            break
    if left or rest:
        what = f"{left:,} of {file_shape[0]:,} items are missing" if left else "more bytes than the header says"
        hint = "download it again; the file is damaged"
        raise DataError(what, file=source.path, line=file_shape[0] - left + 1, value=source.path.name, hint=hint)
