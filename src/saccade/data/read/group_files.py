"""Group the files that are read together: a single file, two aligned files, idx images with their labels, or a folder."""

import re
from collections.abc import Sequence
from pathlib import Path

from saccade.data.read import idx
from saccade.data.read.base import ReadRequest
from saccade.data.read.class_folders import find_metadata
from saccade.data.read.formats import is_plain_text
from saccade.data.read.open_text import SourceFile, open_source
from saccade.errors import DataError

FileGroup = tuple[Path, ...]
TEXT_SUFFIX = re.compile(r"(\.txt)?(\.gz)?$", re.IGNORECASE)


def group_files(paths: Sequence[Path], request: ReadRequest, *, ordered_by_user: bool = True) -> list[FileGroup]:
    """Group the files of one split; if they are `ordered_by_user`, the first of two aligned files is the source."""
    if all(path.is_dir() for path in paths):
        return [(find_metadata(path) or path,) for path in paths]
    if request.has_kind("image") and any(idx.matches(open_source(path)) for path in paths if path.is_file()):
        return _pair_idx_files(paths)
    if len(request.find_roles("text", "line")) == 2 == len(request.roles):
        return _pair_aligned_files(paths, request, ordered_by_user)
    return [(path,) for path in paths]


def _pair_idx_files(paths: Sequence[Path]) -> list[FileGroup]:
    """Pair idx images with the labels of the same name; labels without images are rejected by the reader."""
    sources = [open_source(path) for path in paths]
    labels = {_strip_idx_kind(source): source.path for source in sources if idx.is_labels(source)}
    images = [source for source in sources if not idx.is_labels(source)]
    if len(images) == len(labels) == 1:
        return [(images[0].path, *labels.values())]
    groups = [
        (image.path, labels.pop(_strip_idx_kind(image))) if _strip_idx_kind(image) in labels else (image.path,)
        for image in images
    ]
    return groups + [(path,) for path in labels.values()]


def _strip_idx_kind(source: SourceFile) -> str:
    """The name of an idx file without the part that tells images from labels.

    >>> _strip_idx_kind(SourceFile(Path("t10k-images-idx3-ubyte.gz"), b"", True))
    't10k-ubyte'
    """
    return re.sub(r"[-_.]?(images?|labels?|idx\d|gz)\b", "", source.path.name.lower())


def split_aligned_name(path: Path) -> tuple[str, str]:
    """Split the name of an aligned file into its stem, which both files share, and its language.

    >>> split_aligned_name(Path("data/train.en.gz")), split_aligned_name(Path("data/train.de.txt"))
    (('data/train', 'en'), ('data/train', 'de'))
    """
    bare = TEXT_SUFFIX.sub("", path.name)
    stem, dot, end = bare.rpartition(".")
    return (str(path.parent / stem), end.lower()) if dot else (str(path.parent), bare.lower())


def _pair_aligned_files(paths: Sequence[Path], request: ReadRequest, ordered_by_user: bool) -> list[FileGroup]:
    """Pair plain text files with the same stem; two plain text files alone are a pair whatever their names."""
    plain = [path for path in paths if path.is_file() and is_plain_text(open_source(path))]
    groups: dict[str, list[Path]] = {}
    for path in plain:
        groups.setdefault(split_aligned_name(path)[0], []).append(path)
    if len(plain) == len(paths) == 2:
        groups = {"": plain}
    pairs = [
        _order_pair(group, request, ordered_by_user) if len(group) > 1 else (group[0],) for group in groups.values()
    ]
    return pairs + [(path,) for path in paths if path not in plain]


def _order_pair(group: list[Path], request: ReadRequest, ordered_by_user: bool) -> FileGroup:
    """The source and the target: as named by --columns, in the order of the user, or by the languages that roles know."""
    by_language = {split_aligned_name(path)[1]: path for path in group}
    roles = request.find_roles("text", "line")
    languages = [request.columns.get(role.name, "").lower() for role in roles]
    if all(language in by_language for language in languages):
        return tuple(by_language[language] for language in languages)
    if len(group) > 2:
        names = ", ".join(path.name for path in group)
        first, second = list(by_language)[:2]
        hint = f"give two of them, or --columns {roles[0].name}={first},{roles[1].name}={second}"
        raise DataError(f"expected two aligned files, got {len(group)}: {names}", file=group[0], value=names, hint=hint)
    first, second = group
    if (
        not ordered_by_user
        and split_aligned_name(first)[1] not in roles[0].column_names
        and split_aligned_name(second)[1] in roles[0].column_names
    ):
        first, second = second, first
    return first, second
