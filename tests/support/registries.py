"""The tables of saccade as they were, after a test that registers something."""

import sys
from contextlib import contextmanager

from saccade import plugins
from saccade.attention import MECHANISMS
from saccade.models.registry import FAMILIES
from saccade.parts.position import POSITIONS
from saccade.tasks.registry import TASKS


@contextmanager
def registries_as_before():
    tables = [(table, list(table)) for table in (MECHANISMS, POSITIONS, FAMILIES, TASKS, sys.path)]
    mappings = [(mapping, dict(mapping)) for mapping in (plugins.REGISTRATIONS, plugins._modules)]
    loaded = set(sys.modules)
    try:
        yield
    finally:
        for table, before in tables:
            table[:] = before
        plugin_modules = {module.__name__ for module in plugins._modules.values()} - loaded
        for mapping, before in mappings:
            mapping.clear()
            mapping.update(before)
        for name in plugin_modules:
            sys.modules.pop(name, None)
