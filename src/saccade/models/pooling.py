"""How one vector is made of a text, as directories of sentence vectors say it."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from saccade.models import files
from saccade.text.files import parse, shown

MODULES = ("Transformer", "Pooling", "Normalize")
MODES = ("pooling_mode_cls_token", "pooling_mode_mean_tokens")


@dataclass(frozen=True)
class Pooling:
    """The mean of a text's tokens or the first of them, at length one or as it is."""

    first: bool = False
    unit: bool = False


def read_pooling(directory: Path) -> Pooling:
    """What a directory of sentence vectors says of its pooling; the mean where it says nothing."""
    config, modules = directory / "1_Pooling" / "config.json", directory / "modules.json"
    kinds = _modules(modules) if modules.exists() else []
    raw = files.read_json(config, inside=directory) if config.exists() else {}
    modes = {key: value for key, value in raw.items() if key.startswith("pooling_mode_")}
    for key, value in modes.items():
        if not isinstance(value, bool) or (value and key not in MODES):
            raise ValueError(f"{config}: {key} = {shown(value)} is not built here; {' or '.join(MODES)} = true is.")
    if all(modes.get(key) for key in MODES):
        raise ValueError(f"{config}: {' and '.join(MODES)} are both true; one pooling_mode is built.")
    return Pooling(first=modes.get(MODES[0], False), unit="Normalize" in kinds)


def _modules(path: Path) -> list[str]:
    """The steps that modules.json names, in their order: names from a list, never code, and in directories of this one."""
    found = parse(files.read_text(path), str(path))
    if not isinstance(found, list) or len(found) > 10:
        size = f"{len(found):,} entries" if isinstance(found, list) else type(found).__name__
        raise ValueError(f"{path}: a list of up to 10 modules is needed; found {size}.")
    kinds = []
    for entry in found:
        kind, home = (entry.get(key) for key in ("type", "path")) if isinstance(entry, dict) else (None, None)
        name = kind.rpartition(".")[2] if isinstance(kind, str) and kind.startswith("sentence_transformers.") else None
        if name not in MODULES:
            raise ValueError(f"{path}: the module {shown(kind)} is not built here; {', '.join(MODULES)} are.")
        if not isinstance(home, str) or not re.fullmatch(r"(\d+_[A-Za-z]+)?", home):
            raise ValueError(
                f"{path}: the module {name} is in {shown(home)}; a directory such as '1_Pooling' is needed."
            )
        kinds.append(name)
    return kinds


def write_pooling(pooling: Pooling, directory: Path) -> None:
    """The same, as sentence-transformers writes it."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if pooling.unit else [])]
    homes = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": homes[i], "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (directory / "modules.json").write_text(json.dumps(modules, indent=2) + "\n", encoding="utf-8")
    (directory / "1_Pooling").mkdir()
    said = {"pooling_mode_cls_token": pooling.first, "pooling_mode_mean_tokens": not pooling.first}
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
