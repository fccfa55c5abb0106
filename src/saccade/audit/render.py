"""Sections of a card in two forms: Markdown, as the hub shows it, and an HTML page in the style of the run report."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from saccade.audit.suite import Grid
from saccade.explain.page import figure, page, pairs, prose, table
from saccade.explain.svg import escape

Value = str | float | bool | Sequence[Any] | dict[str, Any]


@dataclass(frozen=True)
class Facts:
    """Names and what they stand for."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Head:
    """The title of what follows within a section."""

    text: str


@dataclass(frozen=True)
class Code:
    """Lines to be copied as they are."""

    text: str


@dataclass(frozen=True)
class Picture:
    """A picture in a file beside the card, what it shows, and the same as an address that needs no file."""

    file: str
    title: str
    caption: str
    address: str


Part = str | Facts | Grid | Code | Head | Picture


@dataclass(frozen=True)
class Section:
    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Opening:
    """What a card begins with: a few words that stand out, and what there is to say of them."""

    head: str
    text: str


def markdown(title: str, opening: Opening, sections: Sequence[Section]) -> str:
    """The card as Markdown, without its front matter."""
    lines = [f"**{opening.head}** {plain(opening.text)}", "", f"# {plain(title)}", ""]
    for section in sections:
        lines += [f"## {section.title}", ""]
        for part in section.parts:
            lines += [_marked(part), ""]
    return "\n".join(lines).rstrip() + "\n"


def _marked(part: Part) -> str:
    if isinstance(part, str):
        return plain(part)
    if isinstance(part, Code):
        fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", part.text))])
        return f"{fence}\n{part.text.rstrip()}\n{fence}"
    if isinstance(part, Head):
        return f"### {plain(part.text)}"
    if isinstance(part, Picture):
        return f"![{plain(part.title)}]({part.file})\n\n{plain(part.title)}\n\n{plain(part.caption)}"
    if isinstance(part, Facts):
        return "\n".join(f"- **{name}:** {plain(value)}" for name, value in part.pairs)
    head = f"**{plain(part.title)}**\n\n" if part.title else ""
    rows = [part.heads, tuple("---" for _ in part.heads), *part.rows]
    lines = (" | ".join(cell if cell == "---" else _cell(cell) for cell in row) for row in rows)
    return head + "\n".join(f"| {line} |" for line in lines)


def plain(text: str) -> str:
    """Text that stays text in Markdown: one paragraph, without tags and without emphasis that nobody meant.

    >>> plain("a <b>\\n*c*")
    'a &lt;b&gt; \\\\*c\\\\*'
    """
    flat = " ".join(text.split())
    return re.sub(r"([\\`*_\[\]#])", r"\\\1", flat).replace("<", "&lt;").replace(">", "&gt;")


def _cell(text: str) -> str:
    return plain(text).replace("|", "\\|") or " "


def html(title: str, opening: Opening, sections: Sequence[Section]) -> str:
    """The same as a page that needs nothing else."""
    made = [(section.title, "\n".join(map(_drawn, section.parts))) for section in sections]
    return page(title, [(opening.head, prose(opening.text)), *made])


def _drawn(part: Part) -> str:
    if isinstance(part, str):
        return prose(part)
    if isinstance(part, Code):
        return f'<pre class="scroll" tabindex="0">{escape(part.text)}</pre>'
    if isinstance(part, Head):
        return f"<h3>{escape(part.text)}</h3>"
    if isinstance(part, Facts):
        return pairs(part.pairs)
    if isinstance(part, Picture):
        drawn = f'<img src="{part.address}" alt="{escape(part.title)}">'
        return prose(part.title) + figure(drawn, name=part.title, caption=part.caption)
    head = prose(part.title, kind="soft") if part.title else ""
    return head + figure(table(part.heads, part.rows), name=part.title or "a table") if part.rows else head


def front_matter(values: dict[str, Value]) -> str:
    """YAML between two rules. Every value is written as JSON, which is YAML too, so that nothing needs to be escaped twice."""
    told = (f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items())
    lines = ["".join(c if c.isprintable() else " " for c in line) for line in told]  # YAML takes no others
    return "\n".join(["---", *lines, "---", ""])
