"""What belongs together before it is read: a file alone, two aligned files, pictures with their labels, a folder."""

import re
from collections.abc import Sequence
from pathlib import Path

from saccade.data.read import idx
from saccade.data.read.folder import class_folders, metadata_of
from saccade.data.read.formats import is_plain
from saccade.data.read.record import Ask
from saccade.data.read.source import Source, open_source
from saccade.errors import DataError

Unit = tuple[Path, ...]
PLAIN = re.compile(r"(\.txt)?(\.gz)?$", re.IGNORECASE)


def units(paths: Sequence[Path], ask: Ask, *, given: bool = True) -> list[Unit]:
    """Group the files of one split; `given` says that the order is the caller's, who names the source first."""
    if all(path.is_dir() for path in paths):
        return [(metadata_of(path) or path,) for path in paths]
    if ask.has("image") and any(idx.looks(open_source(path)) for path in paths if path.is_file()):
        return _pictures(paths)
    if len(ask.of("text", "line")) == 2 == len(ask.roles):
        return _aligned(paths, ask, given)
    return [(path,) for path in paths]


def _pictures(paths: Sequence[Path]) -> list[Unit]:
    """Pictures with the labels of the same name; labels left alone are refused by the reader."""
    sources = [open_source(path) for path in paths]
    labels = {_without(source): source.path for source in sources if idx.is_labels(source)}
    images = [source for source in sources if not idx.is_labels(source)]
    if len(images) == len(labels) == 1:
        return [(images[0].path, *labels.values())]
    found = [
        (image.path, labels.pop(_without(image))) if _without(image) in labels else (image.path,) for image in images
    ]
    return found + [(path,) for path in labels.values()]


def _without(source: Source) -> str:
    """A name without what tells pictures from labels.

    >>> _without(Source(Path("t10k-images-idx3-ubyte.gz"), b"", True))
    't10k-ubyte'
    """
    return re.sub(r"[-_.]?(images?|labels?|idx\d|gz)\b", "", source.path.name.lower())


def side(path: Path) -> tuple[str, str]:
    """What two aligned files share, and what tells them apart.

    >>> side(Path("data/train.en.gz")), side(Path("data/train.de.txt"))
    (('data/train', 'en'), ('data/train', 'de'))
    """
    bare = PLAIN.sub("", path.name)
    stem, dot, end = bare.rpartition(".")
    return (str(path.parent / stem), end.lower()) if dot else (str(path.parent), bare.lower())


def _aligned(paths: Sequence[Path], ask: Ask, given: bool) -> list[Unit]:
    """Files of one stem in pairs; and two plain files, whatever their names."""
    plain = [path for path in paths if path.is_file() and is_plain(open_source(path))]
    groups: dict[str, list[Path]] = {}
    for path in plain:
        groups.setdefault(side(path)[0], []).append(path)
    if len(plain) == len(paths) == 2:
        groups = {"": plain}
    found: list[Unit] = []
    for group in groups.values():
        found.append(_ordered(group, ask, given) if len(group) > 1 else (group[0],))
    return found + [(path,) for path in paths if path not in plain]


def _ordered(group: list[Path], ask: Ask, given: bool) -> Unit:
    """The source and then the target: as --columns says, as given, or by the languages that the roles know."""
    sides = {side(path)[1]: path for path in group}
    roles = ask.of("text", "line")
    named = [ask.columns.get(role.name, "").lower() for role in roles]
    if all(name in sides for name in named):
        return tuple(sides[name] for name in named)
    if len(group) > 2:
        names = ", ".join(path.name for path in group)
        ends = list(sides)[:2]
        cure = f"give two of them, or --columns {roles[0].name}={ends[0]},{roles[1].name}={ends[1]}"
        raise DataError(
            f"{len(group)} aligned files where two are needed: {names}", file=group[0], value=names, cure=cure
        )
    first, second = group
    if not given and side(first)[1] not in roles[0].known and side(second)[1] in roles[0].known:
        first, second = second, first
    return first, second


def is_folder_of_classes(path: Path) -> bool:
    return path.is_dir() and len(class_folders(path)) > 0
