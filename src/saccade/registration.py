"""`saccade.register`: add a mechanism, a position scheme, a family or a task to the tables that every command reads.

class Tempered(Mechanism):
    ...

saccade.register(mechanism=MechanismEntry("tempered", lambda width, heads, length: Tempered(heads), "softmax(q·k / t)"))
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass
from inspect import isclass
from typing import Any

from saccade.errors import UsageError
from saccade.plugins import REGISTRATIONS, Registration, name_of_plugin
from saccade.suggest import suggest

ENTRY_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class _Table:
    """A table of entries: the kind of its entries, and where a new entry is inserted."""

    kind: str
    entries: list[Any]
    index: int | None = None  # of a new entry; None: at the end


def register(*, mechanism: Any = None, position: Any = None, family: Any = None, task: Any = None) -> None:
    """Register a `MechanismEntry`, a `PositionEntry`, a `Family` or a class of `Task`; several of them in one call.

    A name that is in use is refused with the place where it was registered first. The module that registered an entry may
    register it again, so that a cell of a notebook can be run twice; the new entry then replaces the old one.
    """
    frame = sys._getframe(1)
    module, file = frame.f_globals.get("__name__", ""), frame.f_code.co_filename
    values = {"mechanism": mechanism, "position": position, "family": family, "task": task}
    if all(value is None for value in values.values()):
        raise UsageError("saccade.register needs an entry: mechanism=, position=, family= or task=.")
    for kind, entry in values.items():
        if entry is not None:
            names = _CHECKS[kind](entry)
            place = f"{file}:{frame.f_lineno}"
            registration = Registration(kind, names[0], name_of_plugin(module, file), module, place)
            _insert(_find_table(kind), entry, names, registration)


def _find_table(kind: str) -> _Table:
    """The table for entries of a kind, imported only when it is needed."""
    if kind == "mechanism":
        from saccade.attention.registry import MECHANISMS

        return _Table(kind, MECHANISMS)
    if kind == "position":
        from saccade.parts.position import POSITIONS

        return _Table(kind, POSITIONS)
    if kind == "family":
        from saccade.models.registry import FAMILIES

        return _Table(kind, FAMILIES)
    from saccade.tasks.registry import TASKS

    return _Table(kind, TASKS, index=0)  # when the task of a file is inferred, that of a plugin is tried first


def _insert(table: _Table, entry: Any, names: Sequence[str], registration: Registration) -> None:
    """Insert an entry into its table, or replace the one that the same module registered before."""
    key = (registration.kind, registration.name)
    for index, other in enumerate(table.entries):
        shared = set(names) & {other.name, *getattr(other, "aliases", ())}
        if not shared:
            continue
        first = REGISTRATIONS.get((registration.kind, other.name))
        is_again = first is not None and (other is entry or first.module == registration.module)
        if first is None or not (is_again and other.name == registration.name):
            owner = f"registered already, at {first.location}" if first else "one of saccade's own"
            raise UsageError(f"The {table.kind} {min(shared)!r} is {owner}; choose another name.")
        table.entries[index] = entry
        REGISTRATIONS[key] = first if other is entry else registration
        return
    table.entries.insert(len(table.entries) if table.index is None else table.index, entry)
    REGISTRATIONS[key] = registration


def _check_name(kind: str, name: Any) -> str:
    if not isinstance(name, str) or not ENTRY_NAME.fullmatch(name):
        raise UsageError(
            f"The name of a {kind} is {name!r}; write lower-case letters, digits and underscores, such as my_{kind}."
        )
    return name


def _check_type(kind: str, entry: Any, expected: type, example: str) -> None:
    if not isinstance(entry, expected):
        got = f"the class {entry.__name__}" if isclass(entry) else f"a value of type {type(entry).__name__}"
        raise UsageError(f"register({kind}=...) needs a {expected.__name__}; got {got}. Write {example}.")


def _check_mechanism(entry: Any) -> tuple[str, ...]:
    from saccade.attention.registry import FEATURES, MechanismEntry

    example = 'MechanismEntry("my_name", lambda width, heads, length: MyMechanism(width), formula="softmax(...)")'
    _check_type("mechanism", entry, MechanismEntry, example)
    _check_make("mechanism", entry)
    for feature in entry.supports:
        if feature not in FEATURES:
            raise UsageError(
                f"The mechanism {entry.name!r} supports {feature!r}, which is no feature; {suggest(feature, list(FEATURES))}"
            )
    return (_check_name("mechanism", entry.name),)


def _check_position(entry: Any) -> tuple[str, ...]:
    from saccade.parts.position import PositionEntry

    example = 'PositionEntry("my_name", lambda width, heads, length: MyPosition(width), "added to the embeddings")'
    _check_type("position", entry, PositionEntry, example)
    _check_make("position", entry)
    return (_check_name("position", entry.name),)


def _check_make(kind: str, entry: Any) -> None:
    if not callable(entry.make):
        raise UsageError(
            f"`make` of the {kind} {entry.name!r} is {entry.make!r}; a function of width, heads and length is needed."
        )


def _check_family(entry: Any) -> tuple[str, ...]:
    from saccade.models.family import Family

    _check_type("family", entry, Family, 'Family("my_name", "one line", Config, build=MyModel, capabilities=...)')
    if not (isclass(entry.config_class) and is_dataclass(entry.config_class)):
        raise UsageError(f"config_class of the family {entry.name!r} is {entry.config_class!r}; a dataclass is needed.")
    return (_check_name("family", entry.name),)


def _check_task(entry: Any) -> tuple[str, ...]:
    from saccade.tasks.base import Task

    if not (isclass(entry) and issubclass(entry, Task)):
        got = f"the class {entry.__name__}" if isclass(entry) else f"a value of type {type(entry).__name__}"
        raise UsageError(f"register(task=...) needs a subclass of saccade.tasks.base.Task; got {got}.")
    for attribute in ("name", "Config", "needs"):
        if not hasattr(entry, attribute):
            raise UsageError(f"The task {entry.__name__} does not define {attribute!r}, which every task declares.")
    if not is_dataclass(entry.Config):
        raise UsageError(f"Config of the task {entry.name!r} is {entry.Config!r}; a dataclass of settings is needed.")
    return (_check_name("task", entry.name), *entry.aliases)


_CHECKS = {"mechanism": _check_mechanism, "position": _check_position, "family": _check_family, "task": _check_task}
