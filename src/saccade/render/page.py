"""HTML reports: pages of sections and blocks, rendered by Jinja2 templates into one file that makes no requests.

Training reports, model cards, attention maps and the pages of the server are all lists of `Section`; `render_page` puts them into
templates/report.html, which extends templates/base.html. Templates escape every value (autoescape), and control characters and
invisible characters are made visible first, so a block takes plain text. Only SVG that this package has drawn is inserted as is.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import jinja2
from markupsafe import Markup

from saccade.render.svg import make_visible, shorten

MAX_CELL_COLUMNS = 600  # columns of a text in a table
MAX_TITLE_COLUMNS = 200
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of text; the class `soft` is for notes."""

    kind: ClassVar[str] = "paragraph"
    text: str
    css_class: str = ""


@dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    kind: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True)
class CodeBlock:
    """Preformatted text, such as a command to copy."""

    kind: ClassVar[str] = "code"
    text: str


@dataclass(frozen=True)
class ScoreList:
    """Scores in large type, one per line."""

    kind: ClassVar[str] = "score_list"
    scores: Sequence[str]


@dataclass(frozen=True)
class FactList:
    """Names and values, as a definition list."""

    kind: ClassVar[str] = "fact_list"
    entries: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Table:
    """A table of text. Columns of numbers are right-aligned; the class `cards` stacks the cells of a row on a narrow screen."""

    kind: ClassVar[str] = "table"
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    css_class: str = ""
    label: str = ""  # accessible name of the box in which a wide table scrolls; "" adds no box

    @property
    def columns(self) -> list[tuple[str, bool]]:
        """The header of each column, and whether all its cells are numbers."""
        return [(name, all(_is_number(row[i]) for row in self.rows)) for i, name in enumerate(self.headers)]


@dataclass(frozen=True)
class Figure:
    """An SVG drawing in a box that scrolls, also by keyboard, where it is wider than the page."""

    kind: ClassVar[str] = "figure"
    svg: Markup
    name: str
    caption: str = ""


@dataclass(frozen=True)
class ImageFigure:
    """A PNG image as a data URL."""

    kind: ClassVar[str] = "image"
    data_url: str
    name: str
    caption: str = ""


@dataclass(frozen=True)
class ChartGrid:
    """Line charts in two columns where the page is wide enough."""

    kind: ClassVar[str] = "chart_grid"
    charts: Sequence[Markup]


@dataclass(frozen=True)
class Thumbnail:
    """A small image in a gallery, with a caption below and its name as tooltip."""

    data_url: str
    name: str
    caption: str
    size: tuple[int, int] | None = None  # width and height in CSS pixels; None: those of the image
    smooth: bool = False  # whether the browser interpolates between pixels


@dataclass(frozen=True)
class Gallery:
    """Thumbnails in rows."""

    kind: ClassVar[str] = "gallery"
    thumbnails: Sequence[Thumbnail]


Block = Paragraph | Heading | CodeBlock | ScoreList | FactList | Table | Figure | ImageFigure | ChartGrid | Gallery


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it."""

    title: str
    blocks: Sequence[Block]


@cache
def load_templates() -> jinja2.Environment:
    """The Jinja2 environment of all pages: values are escaped, and an undefined name is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("saccade.render"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_make_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"shorten": shorten, "shorten_cell": _shorten_cell}
    return environment


def _make_printable(value: Any) -> Any:
    """Text with its control characters made visible; markup from a template or a chart is unchanged."""
    return make_visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _shorten_cell(text: str) -> str:
    return shorten(text[: 2 * MAX_CELL_COLUMNS], MAX_CELL_COLUMNS)


def render_page(title: str, sections: Sequence[Section]) -> str:
    """A complete HTML document; sections without blocks are left out."""
    return (
        load_templates()
        .get_template("report.html")
        .render(
            title=shorten(title, MAX_TITLE_COLUMNS),
            sections=[section for section in sections if section.blocks],
            content_security_policy=CONTENT_SECURITY_POLICY,
        )
    )


def render_notebook_cell(blocks: Sequence[Block]) -> str:
    """Blocks as an HTML fragment with its own style, for the output of a notebook cell."""
    return load_templates().get_template("notebook.html").render(content=blocks)


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "").removesuffix("%").strip() or "0")
    except ValueError:
        return text in ("–", "n/a")
    return True


def write_page(path: Path, text: str) -> None:
    """Write a file atomically: whoever reads it at the same time gets the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
