"""The declared needs of a task (`Needs`), and the check that a model family meets them, made before any data is read."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saccade.errors import ModelError, UsageError
from saccade.models.capabilities import Capabilities, Generates, Modality
from saccade.models.family import Family
from saccade.models.registry import FAMILIES
from saccade.suggest import suggest

if TYPE_CHECKING:
    from saccade.tasks.base import Task

MAX_FAMILIES_SUGGESTED = 3  # families suggested by an error


@dataclass(frozen=True)
class Needs:
    """The input modality, the kind of generation and the head that a task needs of a model.

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
        """Whether models of a family, or of one config of it, meet these needs."""
        capabilities = family.capabilities(family.config_class() if config is None else config)
        if capabilities.input not in self.inputs:
            return False
        return capabilities.generates is self.generates if self.head is None else self.head in family.heads

    def __str__(self) -> str:
        ability = " or ".join(Capabilities(modality, self.generates).describe() for modality in self.inputs)
        return f"a model that {ability}" + ("" if self.head is None else f" and can have a head for {self.head!r}")


def check_fit(task: "Task", family: Family, config: Any = None) -> None:
    """Raise an error for a family that does not fit a task: what the task needs, what the family does, and which families fit.

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
    capabilities = family.capabilities(family.config_class() if config is None else config)
    lacks = f"{family.name} {capabilities.describe()}"
    head = task.needs.head
    if head is not None and capabilities.input in task.needs.inputs:
        lacks += f", and has {'a head for ' + ', '.join(family.heads) if family.heads else 'no heads'}"
    raise UsageError(f"{task.title} needs {task.needs}; {lacks}. {_suggest_families(task)}")


def list_compatible_families(task: "Task") -> list[Family]:
    """The families that fit a task, its default family first."""
    compatible = [family for family in FAMILIES if task.needs.is_satisfied_by(family)]
    return sorted(compatible, key=lambda family: family.name != task.default_family())


def find_family(name: str, task: "Task") -> Family:
    """The family with this name; if it does not fit the task, a family that fits and has this name as its short name.

    `transformer` is an encoder-decoder, a decoder-only model for language modeling, and an encoder-only model for labels.
    """
    exact = [family for family in FAMILIES if name in (family.name, family.required_values.get("model_type"))]
    compatible = [family for family in [*exact, *_families_by_short_name(name)] if task.needs.is_satisfied_by(family)]
    candidates = [*compatible, *exact, *_families_by_short_name(name)]
    if not candidates:
        names = list(dict.fromkeys(alias for family in FAMILIES for alias in (family.name, *family.short_names)))
        raise ModelError(f"There is no family {name!r}; {suggest(name, names)}")
    return candidates[0]


def _families_by_short_name(name: str) -> list[Family]:
    return [family for family in FAMILIES if name in family.short_names]


def _suggest_families(task: "Task") -> str:
    names = list(dict.fromkeys((*family.short_names, family.name)[0] for family in list_compatible_families(task)))
    *most, last = names[:MAX_FAMILIES_SUGGESTED]
    return f"Choose {', '.join(most)} or {last}." if most else f"Choose {last}."
