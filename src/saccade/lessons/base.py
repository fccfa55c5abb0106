"""Interactive lessons: a lesson has a text, a formula, source code, controls, and a function that computes its figures.

Lessons and figures are described as JSON, so that one generic page can show any of them.
"""

import inspect
import math
import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from saccade.errors import UsageError
from saccade.suggest import suggest

MAX_TEXT_CHARACTERS = 2000  # of a text control
SIGNIFICANT_DIGITS = 6  # of numbers in JSON, more than a figure can show


@dataclass(frozen=True)
class Control:
    """An input of a lesson: a slider (`range`), a choice or a text. Its value is always a string, as a page sends it.

    A slider whose `step` is a whole number takes whole numbers only.
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
        """Raise `UsageError` for a value that this control does not allow."""
        if self.kind == "choice" and value not in self.choices:
            raise UsageError(f"{self.name!r} cannot be {value!r}; {suggest(value, list(self.choices))}")
        if self.kind == "text" and len(value) > MAX_TEXT_CHARACTERS:
            raise UsageError(f"{self.name!r} has {len(value):,} characters; give at most {MAX_TEXT_CHARACTERS:,}.")
        if self.kind == "range":
            self._check_number(value)

    def _check_number(self, value: str) -> None:
        is_whole = float(self.step).is_integer()
        expected = f"a {'whole ' if is_whole else ''}number from {self.low:g} to {self.high:g}"
        try:
            number = float(value)
        except ValueError:
            raise UsageError(f"{self.name!r} must be {expected}; got {value!r}.") from None
        if not self.low <= number <= self.high or (is_whole and not number.is_integer()):
            raise UsageError(f"{self.name!r} must be {expected}; got {value}.")


@dataclass(frozen=True)
class Heatmap:
    """A heat map: one row of numbers for each name in `rows`. Heat maps that are compared share `vmax`."""

    title: str
    values: list[list[float]]
    rows: list[str]
    columns: list[str]
    vmax: float | None = None  # end of the color scale; None: the largest value


@dataclass(frozen=True)
class LineChart:
    """Named lines, each a list of points, and separate dots."""

    title: str
    x: str
    y: str
    lines: dict[str, list[tuple[float, float]]]
    dots: list[tuple[float, float]] = field(default_factory=list)
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class BarChart:
    """One bar for each name. Without `max_value` the longest bar has the full width, however small its value is."""

    title: str
    names: list[str]
    values: list[float]
    max_value: float | None = None  # value of a bar of full width; None: the largest value


@dataclass(frozen=True)
class Table:
    """Rows of text under column headers."""

    title: str
    headers: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Image:
    """An RGB image: red, green and blue from 0 to 255 for each pixel of each row."""

    title: str
    pixels: list[list[list[int]]]


Figure = Heatmap | LineChart | BarChart | Table | Image


@dataclass(frozen=True)
class LessonResult:
    """The result of a lesson for one setting of its controls: a summary with the main numbers, and figures."""

    summary: str
    figures: list[Figure]
    offered_demo: str = ""  # the demo that trains a missing model
    formula: str = ""  # the formula of the chosen setting, if it differs from that of the lesson
    control_limits: dict[str, float] = field(default_factory=dict)  # maxima of sliders, where this result allows less


@dataclass(frozen=True)
class Lesson:
    """An interactive lesson; `compute` gets a checked value for every control."""

    name: str
    title: str
    description: str
    formula: str
    code: tuple[Callable[..., Any], ...]
    controls: tuple[Control, ...]
    compute: Callable[[dict[str, str]], LessonResult]

    def describe(self) -> dict[str, Any]:
        """Everything but the figures, as JSON values."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "formula": self.formula,
            "code": [_describe_source(function) for function in self.code],
            "controls": [to_json_value(asdict(control)) for control in self.controls],
        }

    def run(self, settings: dict[str, str]) -> dict[str, Any]:
        """The result for these settings as JSON values; a control that is not given has its default."""
        controls = {control.name: control for control in self.controls}
        for name, value in settings.items():
            if name not in controls:
                raise UsageError(f"The lesson {self.name!r} has no control {name!r}; {suggest(name, list(controls))}")
            controls[name].check(value)
        result = self.compute({name: settings.get(name, control.default) for name, control in controls.items()})
        figures = [{"kind": type(figure).__name__.lower(), **asdict(figure)} for figure in result.figures]
        return {
            "summary": result.summary,
            "figures": to_json_value(figures),
            "offered_demo": result.offered_demo,
            "formula": result.formula or self.formula,
            "control_limits": to_json_value(result.control_limits),
        }


def to_json_value(value: Any) -> Any:
    """A value for JSON: tuples become lists, floats have six significant digits, and non-finite numbers are None.

    >>> to_json_value({"a": (1, 1 / 3, float("inf"))})
    {'a': [1, 0.333333, None]}
    """
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: to_json_value(item) for key, item in value.items()}
    return [to_json_value(item) for item in value] if isinstance(value, list | tuple) else value


SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_significant(value: float, digits: int = 2) -> str:
    """A number for a sentence, rounded to significant digits; very large and very small numbers have a power of ten.

    >>> [format_significant(value) for value in (0.163, 3120.0, 0.000112, 4.6e9, 0.0)]
    ['0.16', '3,100', '1.1·10⁻⁴', '4.6·10⁹', '0']
    """
    if not value:
        return "0"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    if -4 < int(exponent) < 6:
        return f"{float(f'{value:.{digits}g}'):,.{max(0, digits - 1 - int(exponent))}f}"
    return f"{mantissa}·10{str(int(exponent)).translate(SUPERSCRIPTS)}"


def pluralize(number: int, noun: str) -> str:
    """A count with its noun, in the plural unless it is one.

    >>> pluralize(1, "word"), pluralize(1200, "word")
    ('1 word', '1,200 words')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _describe_source(function: Callable[..., Any]) -> dict[str, str]:
    name = f"{function.__module__}.{function.__qualname__}"
    return {"name": name, "source": textwrap.dedent(inspect.getsource(function))}
