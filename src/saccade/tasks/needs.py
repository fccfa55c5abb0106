"""What a task needs of a model, declared, and whether a family has it: decided before any data is read."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saccade.attention.table import nearest
from saccade.errors import ModelError, UsageError
from saccade.models.capabilities import Capabilities, Generates, Modality
from saccade.models.family import Family
from saccade.models.table import FAMILIES

if TYPE_CHECKING:
    from saccade.tasks.task import Task

MAX_CHOICES = 3  # families that an error proposes


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

    def met_by(self, family: Family, config: Any = None) -> bool:
        """Whether models of a family, or of one of its configs, have all of it."""
        able = family.capabilities(family.config() if config is None else config)
        if able.input not in self.inputs:
            return False
        return able.generates is self.generates if self.head is None else self.head in family.heads

    def __str__(self) -> str:
        does = " or ".join(Capabilities(modality, self.generates).describe() for modality in self.inputs)
        return f"a model that {does}" + ("" if self.head is None else f" and can have a head for {self.head!r}")


def check_fit(task: "Task", family: Family, config: Any = None) -> None:
    """Refuse a family that cannot do a task, with what each of them does and the families that can.

    >>> from saccade.models.table import family
    >>> from saccade.tasks.language import Language
    >>> check_fit(Language(), family("t5"))
    Traceback (most recent call last):
        ...
    saccade.errors.UsageError: language needs a model that continues a text; t5 reads a text and writes a target text. Choose \
transformer, rnn or gpt2.
    """
    if task.needs.met_by(family, config):
        return
    able = family.capabilities(family.config() if config is None else config)
    lacks = f"{family.name} {able.describe()}"
    head = task.needs.head
    if head is not None and able.input in task.needs.inputs:
        lacks += f", and has {'a head for ' + ', '.join(family.heads) if family.heads else 'no heads'}"
    raise UsageError(f"{task.title} needs {task.needs}; {lacks}. {_advice(task)}")


def fitting_families(task: "Task") -> list[Family]:
    """The families that can do a task, the one that it takes by itself first."""
    able = [family for family in FAMILIES if task.needs.met_by(family)]
    return sorted(able, key=lambda family: family.name != task.usual())


def find_family(name: str, task: "Task") -> Family:
    """The family of a name; where it cannot do a task, one that can and answers to that name as well.

    `transformer` is an encoder-decoder, a decoder alone for a language model, and an encoder alone for labels.
    """
    exact = [family for family in FAMILIES if name in (family.name, family.fixed.get("model_type"))]
    able = [family for family in [*exact, *_short(name)] if task.needs.met_by(family)]
    found = [*able, *exact, *_short(name)]
    if not found:
        names = list(dict.fromkeys(alias for family in FAMILIES for alias in (family.name, *family.short_names)))
        raise ModelError(f"There is no family {name!r}; {nearest(name, names)}")
    return found[0]


def _short(name: str) -> list[Family]:
    return [family for family in FAMILIES if name in family.short_names]


def _advice(task: "Task") -> str:
    names = list(dict.fromkeys((*family.short_names, family.name)[0] for family in fitting_families(task)))[
        :MAX_CHOICES
    ]
    *most, last = names
    return f"Choose {', '.join(most)} or {last}." if most else f"Choose {last}."
