"""What belongs together before it is read: a file alone, two aligned files, pictures with their labels, a folder."""

import re
from collections.abc import Sequence
from pathlib import Path

from saccade.data.read import idx
from saccade.data.read.base import ReadRequest
from saccade.data.read.folder import find_metadata, list_class_folders
from saccade.data.read.formats import is_plain_text
from saccade.data.read.open_text import SourceFile, open_source
from saccade.errors import DataError

FileGroup = tuple[Path, ...]
TEXT_SUFFIX = re.compile(r"(\.txt)?(\.gz)?$", re.IGNORECASE)


def group_files(paths: Sequence[Path], request: ReadRequest, *, ordered_by_user: bool = True) -> list[FileGroup]:
    """Group the files of one split; `given` says that the order is the caller's, who names the source first."""
    if all(path.is_dir() for path in paths):
        return [(find_metadata(path) or path,) for path in paths]
    if request.has_kind("image") and any(idx.matches(open_source(path)) for path in paths if path.is_file()):
        return _pair_idx_files(paths)
    if len(request.find_roles("text", "line")) == 2 == len(request.roles):
        return _pair_aligned_files(paths, request, ordered_by_user)
    return [(path,) for path in paths]


def _pair_idx_files(paths: Sequence[Path]) -> list[FileGroup]:
    """Pictures with the labels of the same name; labels left alone are refused by the reader."""
    sources = [open_source(path) for path in paths]
    labels = {_strip_idx_kind(source): source.path for source in sources if idx.is_labels(source)}
    images = [source for source in sources if not idx.is_labels(source)]
    if len(images) == len(labels) == 1:
        return [(images[0].path, *labels.values())]
    found = [
        (image.path, labels.pop(_strip_idx_kind(image))) if _strip_idx_kind(image) in labels else (image.path,)
        for image in images
    ]
    return found + [(path,) for path in labels.values()]


def _strip_idx_kind(source: SourceFile) -> str:
    """A name without what tells pictures from labels.

    >>> _strip_idx_kind(SourceFile(Path("t10k-images-idx3-ubyte.gz"), b"", True))
    't10k-ubyte'
    """
    return re.sub(r"[-_.]?(images?|labels?|idx\d|gz)\b", "", source.path.name.lower())


def split_aligned_name(path: Path) -> tuple[str, str]:
    """What two aligned files share, and what tells them apart.

    >>> split_aligned_name(Path("data/train.en.gz")), split_aligned_name(Path("data/train.de.txt"))
    (('data/train', 'en'), ('data/train', 'de'))
    """
    bare = TEXT_SUFFIX.sub("", path.name)
    stem, dot, end = bare.rpartition(".")
    return (str(path.parent / stem), end.lower()) if dot else (str(path.parent), bare.lower())


def _pair_aligned_files(paths: Sequence[Path], request: ReadRequest, ordered_by_user: bool) -> list[FileGroup]:
    """Files of one stem in pairs; and two plain files, whatever their names."""
    plain = [path for path in paths if path.is_file() and is_plain_text(open_source(path))]
    groups: dict[str, list[Path]] = {}
    for path in plain:
        groups.setdefault(split_aligned_name(path)[0], []).append(path)
    if len(plain) == len(paths) == 2:
        groups = {"": plain}
    found: list[FileGroup] = []
    for group in groups.values():
        found.append(_order_pair(group, request, ordered_by_user) if len(group) > 1 else (group[0],))
    return found + [(path,) for path in paths if path not in plain]


def _order_pair(group: list[Path], request: ReadRequest, ordered_by_user: bool) -> FileGroup:
    """The source and then the target: as --columns says, as given, or by the languages that the roles know."""
    sides = {split_aligned_name(path)[1]: path for path in group}
    roles = request.find_roles("text", "line")
    named = [request.columns.get(role.name, "").lower() for role in roles]
    if all(name in sides for name in named):
        return tuple(sides[name] for name in named)
    if len(group) > 2:
        names = ", ".join(path.name for path in group)
        ends = list(sides)[:2]
        hint = f"give two of them, or --columns {roles[0].name}={ends[0]},{roles[1].name}={ends[1]}"
        raise DataError(
            f"{len(group)} aligned files where two are needed: {names}", file=group[0], value=names, hint=hint
        )
    first, second = group
    if (
        not ordered_by_user
        and split_aligned_name(first)[1] not in roles[0].column_names
        and split_aligned_name(second)[1] in roles[0].column_names
    ):
        first, second = second, first
    return first, second


def has_class_folders(path: Path) -> bool:
    return path.is_dir() and len(list_class_folders(path)) > 0
