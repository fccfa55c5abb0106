"""Plugins: modules of the user that register mechanisms, position schemes, families and tasks with `saccade.register`.

A plugin is code, so it is loaded only if a person asks for it: by --plugin, by the environment variable SACCADE_PLUGINS, or by
installing a package with an entry point of the group saccade.plugins. A run records the names of the plugins that it uses, so
that an error can name them; opening a run never loads one.
"""

import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

from saccade.errors import ModelError, SaccadeError, UsageError

PLUGINS_VARIABLE = "SACCADE_PLUGINS"  # plugins separated by commas, as in PYTEST_PLUGINS
ENTRY_POINT_GROUP = "saccade.plugins"
PLUGIN_NAME = re.compile(
    r"\w[\w .+-]{0,99}"
)  # of a file or a module: no directory, and no comma, which separates plugins
PLUGINS_KEY = "saccade_plugins"  # in the config.json of a model: the plugins that it uses
TRUST_NOTE = "A plugin is code, so load only one that you trust"


@dataclass(frozen=True)
class Registration:
    """An entry that was registered from outside of the package: its kind, its name, and who registered it."""

    kind: str  # mechanism, position, family or task
    name: str
    plugin: str  # name of the file or module, as runs record it; empty if it was registered in a notebook
    module: str  # name of the module that called `register`
    location: str  # file and line of that call


REGISTRATIONS: dict[tuple[str, str], Registration] = {}  # (kind, name) -> its registration
_modules: dict[str, ModuleType] = {}  # every loaded plugin, by its path or the name of its module
_loading: list[str] = []  # names of the plugins that are being loaded


def load_plugins(names: Sequence[str] = ()) -> None:
    """Load plugins by name, those of SACCADE_PLUGINS, and the entry points of installed packages; each is loaded once."""
    if _loading:  # a plugin that uses saccade while it is loaded
        return
    for name in dict.fromkeys([*requested_plugins(), *names]):
        load_plugin(name)
    for entry_point in entry_points(group=ENTRY_POINT_GROUP):
        _load_entry_point(entry_point)


def requested_plugins() -> list[str]:
    """The plugins that the environment variable SACCADE_PLUGINS names."""
    return [name.strip() for name in os.environ.get(PLUGINS_VARIABLE, "").split(",") if name.strip()]


@contextmanager
def request_plugins(names: Sequence[str]) -> Iterator[None]:
    """Add plugins to SACCADE_PLUGINS, so that child processes load them too; the old value is restored at the end."""
    before = os.environ.get(PLUGINS_VARIABLE)
    if names:
        os.environ[PLUGINS_VARIABLE] = ",".join(dict.fromkeys([*requested_plugins(), *names]))
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(PLUGINS_VARIABLE, None)
        else:
            os.environ[PLUGINS_VARIABLE] = before


def load_plugin(name: str) -> ModuleType:
    """Import a plugin: the path of a Python file or of a package directory, or the name of an importable module."""
    is_path = name.endswith(".py") or os.sep in name
    key = str(Path(name).resolve()) if is_path else name
    if key not in _modules:
        recorded_name = Path(key).name if is_path else name
        if not PLUGIN_NAME.fullmatch(recorded_name) or "," in name:
            raise UsageError(
                f"The plugin {name!r} has a name that a run cannot record; use letters, digits, dots, dashes and underscores."
            )
        with _report_failure(name, recorded_name):
            _modules[key] = _import_file(Path(key), name) if is_path else _import_by_name(name)
    return _modules[key]


def _load_entry_point(entry_point: EntryPoint) -> None:
    key, package = f"{ENTRY_POINT_GROUP}:{entry_point.value}", entry_point.dist
    if key not in _modules:
        source = f"{entry_point.value} of the installed package {package.name if package else 'unknown'}"
        with _report_failure(source, entry_point.module):
            _modules[key] = import_module(entry_point.module)


def _import_by_name(name: str) -> ModuleType:
    """Import a module; the current directory comes last in the search path."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise UsageError(
                f"there is no module {error.name!r} in {os.getcwd()}, and none is installed; give the path of a file "
                "(my_plugin.py) or the name of a module that can be imported."
            ) from None
        raise


def _import_file(path: Path, name: str) -> ModuleType:
    """Import a file or a package directory, or find it among the modules that have been imported already."""
    file = path / "__init__.py" if path.is_dir() else path
    if not file.is_file():
        raise UsageError(f"there is no file {file}." if path.is_dir() else f"there is no file {name}.")
    for module in list(sys.modules.values()):
        if (
            (loaded := getattr(module, "__file__", None))
            and loaded.endswith(file.name)
            and Path(loaded).resolve() == file
        ):
            return module
    module_name = _choose_module_name(path.stem.replace(".", "_"))
    spec = spec_from_file_location(module_name, file, submodule_search_locations=[str(path)] if path.is_dir() else None)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[module_name] = module_from_spec(spec)  # dataclasses and tyro look the module up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module


def _choose_module_name(stem: str) -> str:
    """The name of the file as a module name, or a variation of it that no other module has."""
    names = (stem if number == 0 else f"saccade_plugin_{stem}_{number}" for number in count())
    return next(name for name in names if name not in sys.modules and find_spec(name) is None)


@contextmanager
def _report_failure(source: str, recorded_name: str) -> Iterator[None]:
    """Load a plugin under the name that runs record; any error becomes a UsageError with its file and line."""
    _loading.append(recorded_name)
    try:
        yield
    except (Exception, SystemExit) as error:
        raise UsageError(f"The plugin {source} cannot be loaded: {_describe_failure(error)}") from error
    finally:
        _loading.pop()


def _describe_failure(error: BaseException) -> str:
    """An error with the file and the line of the plugin where it occurred."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__} at {error.filename}:{error.lineno}: {error.msg}."
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_machinery(frame.filename)]
    location = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    if isinstance(error, SaccadeError):
        return f"{location}: {error}" if location else str(error)
    return f"{type(error).__name__} at {location or 'an unknown line'}: {error}"


def _is_machinery(filename: str) -> bool:
    """Whether a file is part of saccade or of Python's import system, so that an error in a plugin is not its own."""
    return filename.startswith("<frozen") or Path(filename).is_relative_to(Path(__file__).parent)


def find_plugin_frame(error: BaseException) -> str:
    """The last file and line of a loaded plugin in the traceback of an error; "" if it did not pass through one."""
    files = {getattr(module, "__file__", None) for module in _modules.values()}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def name_of_plugin(module: str, file: str) -> str:
    """The name that runs record for what this module registers; "" for a notebook."""
    if _loading:
        return _loading[-1]
    if module != "__main__":
        return module
    return Path(file).name if Path(file).suffix == ".py" and Path(file).is_file() else ""


def is_from_plugin(kind: str, name: str) -> bool:
    """Whether an entry of this kind was registered from outside of the package."""
    return (kind, name) in REGISTRATIONS


def describe_registrations() -> str:
    """What plugins have registered, in one line; "" for nothing.

    >>> describe_registrations()
    ''
    """
    parts = [
        f"the {item.kind} {item.name}{f' ({item.plugin})' if item.plugin else ''}" for item in REGISTRATIONS.values()
    ]
    return f"From plugins: {', '.join(parts)}." if parts else ""


def find_used_plugins(*, config: Any = None, family: str = "", task: str = "") -> dict[str, dict[str, list[str]]]:
    """The plugins that a model or a run uses: plugin -> kind -> names. `mechanism` and `position` are fields of the config."""
    fields = {} if config is None else asdict(config)
    used = {"mechanism": fields.get("mechanism"), "position": fields.get("position"), "family": family, "task": task}
    plugins: dict[str, dict[str, list[str]]] = {}
    for item in (item for item in REGISTRATIONS.values() if used[item.kind] == item.name):
        plugins.setdefault(item.plugin or "notebook", {}).setdefault(item.kind, []).append(item.name)
    return plugins


def check_plugins(recorded: Any, where: str | Path) -> None:
    """Raise a ModelError that names the plugin if a run or a model uses an entry of a plugin that is not loaded."""
    for plugin, kind, name in _parse_recorded(recorded, where):
        if (kind, name) in REGISTRATIONS:
            continue
        uses = f"{where} uses the {kind} {name!r}"
        if plugin == "notebook":
            raise ModelError(f"{uses}, which was registered with saccade.register; register it again.")
        raise ModelError(
            f"{uses} of the plugin {plugin}, which is not loaded; pass --plugin {plugin} (in Python, import it or call "
            f"saccade.plugins.load_plugin). {TRUST_NOTE}."
        )


def _parse_recorded(recorded: Any, where: str | Path) -> Iterator[tuple[str, str, str]]:
    """The (plugin, kind, name) of a recorded table; a name with a directory is refused, as no run has one."""
    try:
        table: Mapping[str, Mapping[str, Sequence[str]]] = recorded
        triples = [(p, kind, name) for p, kinds in table.items() for kind, names in kinds.items() for name in names]
        is_valid = all(isinstance(word, str) and PLUGIN_NAME.fullmatch(word) for triple in triples for word in triple)
    except (AttributeError, TypeError):
        triples, is_valid = [], False
    if not is_valid:
        raise ModelError(f"{where}: its table of plugins is damaged; names of plugins with lists of names are needed.")
    yield from triples
