"""What a task needs of a model, declared, and whether a family has it: decided before any data is read."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saccade.errors import ModelError, UsageError
from saccade.models.capabilities import Capabilities, Generates, Modality
from saccade.models.family import Family
from saccade.models.registry import FAMILIES
from saccade.suggest import suggest

if TYPE_CHECKING:
    from saccade.tasks.base import Task

MAX_FAMILIES_SUGGESTED = 3  # families that an error proposes


@dataclass(frozen=True)
class Needs:
    """What a model has to read and to generate, and the head that a task reads its answers off.

    >>> print(Needs(Modality.TEXT, head="label"))
    a model that encodes a text and can have a head for 'label'
    >>> print(Needs(Modality.TEXT, Generates.CONTINUATION))
    a model that continues a text
    """

    input: Modality | tuple[Modality, ...]
    generates: Generates = Generates.NOTHING
    head: str | None = None

    @property
    def inputs(self) -> tuple[Modality, ...]:
        return self.input if isinstance(self.input, tuple) else (self.input,)

    def is_satisfied_by(self, family: Family, config: Any = None) -> bool:
        """Whether models of a family, or of one of its configs, have all of it."""
        able = family.capabilities(family.config_class() if config is None else config)
        if able.input not in self.inputs:
            return False
        return able.generates is self.generates if self.head is None else self.head in family.heads

    def __str__(self) -> str:
        does = " or ".join(Capabilities(modality, self.generates).describe() for modality in self.inputs)
        return f"a model that {does}" + ("" if self.head is None else f" and can have a head for {self.head!r}")


def check_fit(task: "Task", family: Family, config: Any = None) -> None:
    """Refuse a family that cannot do a task, with what each of them does and the families that can.

    >>> from saccade.models.registry import get_family
    >>> from saccade.tasks.language import Language
    >>> check_fit(Language(), get_family("t5"))
    Traceback (most recent call last):
        ...
    saccade.errors.UsageError: language needs a model that continues a text; t5 reads a text and writes a target text. Choose \
transformer, rnn or gpt2.
    """
    if task.needs.is_satisfied_by(family, config):
        return
    able = family.capabilities(family.config_class() if config is None else config)
    lacks = f"{family.name} {able.describe()}"
    head = task.needs.head
    if head is not None and able.input in task.needs.inputs:
        lacks += f", and has {'a head for ' + ', '.join(family.heads) if family.heads else 'no heads'}"
    raise UsageError(f"{task.title} needs {task.needs}; {lacks}. {_suggest_families(task)}")


def list_compatible_families(task: "Task") -> list[Family]:
    """The families that can do a task, the one that it takes by itself first."""
    able = [family for family in FAMILIES if task.needs.is_satisfied_by(family)]
    return sorted(able, key=lambda family: family.name != task.default_family())


def find_family(name: str, task: "Task") -> Family:
    """The family of a name; where it cannot do a task, one that can and answers to that name as well.

    `transformer` is an encoder-decoder, a decoder alone for a language model, and an encoder alone for labels.
    """
    exact = [family for family in FAMILIES if name in (family.name, family.required_values.get("model_type"))]
    able = [family for family in [*exact, *_families_by_short_name(name)] if task.needs.is_satisfied_by(family)]
    found = [*able, *exact, *_families_by_short_name(name)]
    if not found:
        names = list(dict.fromkeys(alias for family in FAMILIES for alias in (family.name, *family.short_names)))
        raise ModelError(f"There is no family {name!r}; {suggest(name, names)}")
    return found[0]


def _families_by_short_name(name: str) -> list[Family]:
    return [family for family in FAMILIES if name in family.short_names]


def _suggest_families(task: "Task") -> str:
    names = list(dict.fromkeys((*family.short_names, family.name)[0] for family in list_compatible_families(task)))[
        :MAX_FAMILIES_SUGGESTED
    ]
    *most, last = names
    return f"Choose {', '.join(most)} or {last}." if most else f"Choose {last}."
