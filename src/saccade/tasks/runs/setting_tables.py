"""The settings of all tasks and families by name, for the error that names the table of a setting."""

from dataclasses import fields
from typing import Any

from saccade.models.registry import FAMILIES
from saccade.tasks.registry import TASKS


def find_setting_flags() -> dict[str, str]:
    """The flag of each setting of a task or a model by its name without the table: width -> --model.width."""
    tables: dict[str, list[Any]] = {
        "task": [task.Config for task in TASKS],
        "model": [family.config_class for family in FAMILIES],
    }
    return {
        item.name.replace("_", "-"): f"--{table}.{item.name.replace('_', '-')}"
        for table, classes in tables.items()
        for config_class in classes
        for item in fields(config_class)
    }
