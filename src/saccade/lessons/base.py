"""A lesson: words, a formula, the code behind it, a few controls, and a function that computes what they ask for.

Nothing here knows of a page: a lesson describes itself and its pictures as JSON, so that one generic page draws them all.
"""

import inspect
import math
import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from saccade.errors import UsageError
from saccade.suggest import suggest

MAX_TEXT_CHARACTERS = 2000  # characters of a text
SIGNIFICANT_DIGITS = 6  # that count: more than any screen shows


@dataclass(frozen=True)
class Control:
    """What the reader can set: a slider, a choice or a text. Its value is always text, as a page sends it.

    A range whose `step` is a whole number takes whole numbers only.
    """

    name: str
    label: str
    kind: Literal["range", "choice", "text"]
    default: str
    low: float = 0
    high: float = 1
    step: float = 0.01
    choices: tuple[str, ...] = ()

    def check(self, value: str) -> None:
        """Refuse what this control cannot be set to."""
        if self.kind == "choice" and value not in self.choices:
            raise UsageError(f"{self.name!r} cannot be {value!r}; {suggest(value, list(self.choices))}")
        if self.kind == "text" and len(value) > MAX_TEXT_CHARACTERS:
            raise UsageError(f"{self.name!r} has {len(value):,} characters; give at most {MAX_TEXT_CHARACTERS:,}.")
        if self.kind == "range":
            self._check_number(value)

    def _check_number(self, value: str) -> None:
        whole = float(self.step).is_integer()
        needed = f"a {'whole ' if whole else ''}number from {self.low:g} to {self.high:g}"
        try:
            number = float(value)
        except ValueError:
            raise UsageError(f"{self.name!r} is {needed}; got {value!r}.") from None
        if not self.low <= number <= self.high or (whole and not number.is_integer()):
            raise UsageError(f"{self.name!r} is {needed}; got {value}.")


@dataclass(frozen=True)
class Heatmap:
    """A heat map: a row of numbers for each name of `rows`. Maps that are compared share the end of their scale, `vmax`."""

    title: str
    values: list[list[float]]
    rows: list[str]
    columns: list[str]
    vmax: float | None = None  # where the colours end; None: at the largest value


@dataclass(frozen=True)
class LineChart:
    """Lines by name, each a list of points, and loose dots."""

    title: str
    x: str
    y: str
    lines: dict[str, list[tuple[float, float]]]
    dots: list[tuple[float, float]] = field(default_factory=list)
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class BarChart:
    """A bar for each name. Without `max_value` the longest bar fills the width, however small its value is."""

    title: str
    names: list[str]
    values: list[float]
    max_value: float | None = None  # the value of a bar of full width; None: the largest value


@dataclass(frozen=True)
class Table:
    """Rows of words under heads."""

    title: str
    headers: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Image:
    """A picture in its own colours: red, green and blue from 0 to 255 for each pixel of each row."""

    title: str
    pixels: list[list[list[int]]]


Figure = Heatmap | LineChart | BarChart | Table | Image


@dataclass(frozen=True)
class LessonResult:
    """What one setting of the controls shows: a sentence or two, made from the numbers, and the pictures."""

    summary: str
    figures: list[Figure]
    offered_demo: str = ""  # the demo that trains what is missing
    formula: str = ""  # the formula of what was chosen, where the lesson's own is that of another choice
    control_limits: dict[str, float] = field(
        default_factory=dict
    )  # how far a control can be set here, if less than it could be


@dataclass(frozen=True)
class Lesson:
    """One lesson; `draw` is given a value for every control, already checked."""

    name: str
    title: str
    description: str
    formula: str
    code: tuple[Callable[..., Any], ...]
    controls: tuple[Control, ...]
    compute: Callable[[dict[str, str]], LessonResult]

    def describe(self) -> dict[str, Any]:
        """All but the pictures, ready for JSON; the code as its source."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "formula": self.formula,
            "code": [_describe_source(one) for one in self.code],
            "controls": [to_json_value(asdict(control)) for control in self.controls],
        }

    def run(self, settings: dict[str, str]) -> dict[str, Any]:
        """What these settings show, ready for JSON; whatever is not given has its default."""
        controls = {control.name: control for control in self.controls}
        for name, value in settings.items():
            if name not in controls:
                raise UsageError(f"The lesson {self.name!r} has no control {name!r}; {suggest(name, list(controls))}")
            controls[name].check(value)
        found = self.compute({name: settings.get(name, control.default) for name, control in controls.items()})
        figures = [{"kind": type(one).__name__.lower(), **asdict(one)} for one in found.figures]
        return {
            "summary": found.summary,
            "figures": to_json_value(figures),
            "offered_demo": found.offered_demo,
            "formula": found.formula or self.formula,
            "control_limits": to_json_value(found.control_limits),
        }


def to_json_value(value: Any) -> Any:
    """The same with lists for tuples, six digits for a number, and None for what is no number.

    >>> to_json_value({"a": (1, 1 / 3, float("inf"))})
    {'a': [1, 0.333333, None]}
    """
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: to_json_value(one) for key, one in value.items()}
    return [to_json_value(one) for one in value] if isinstance(value, list | tuple) else value


SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_significant(value: float, digits: int = 2) -> str:
    """A number as a sentence has it: no exponent where none is needed, and a power of ten where one is.

    >>> format_significant(0.163), format_significant(3120.0), format_significant(0.000112), format_significant(4.6e9), format_significant(0.0)
    ('0.16', '3,100', '1.1·10⁻⁴', '4.6·10⁹', '0')
    """
    if not value:
        return "0"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    if -4 < int(exponent) < 6:
        return f"{float(f'{value:.{digits}g}'):,.{max(0, digits - 1 - int(exponent))}f}"
    return f"{mantissa}·10{str(int(exponent)).translate(SUPERSCRIPTS)}"


def pluralize(number: int, noun: str) -> str:
    """A number with what is counted.

    >>> pluralize(1, "word"), pluralize(1200, "word")
    ('1 word', '1,200 words')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _describe_source(one: Callable[..., Any]) -> dict[str, str]:
    return {"name": f"{one.__module__}.{one.__qualname__}", "source": textwrap.dedent(inspect.getsource(one))}
