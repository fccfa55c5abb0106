"""Sections of a card in two forms: Markdown, as the hub shows it, and an HTML page in the style of the run report."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from saccade.audit.suite import AuditTable
from saccade.render.page import render_definition_list, render_figure, render_page, render_paragraph, render_table
from saccade.render.svg import escape

FrontMatterValue = str | float | bool | Sequence[Any] | dict[str, Any]


@dataclass(frozen=True)
class FactList:
    """Names and what they stand for."""

    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Heading:
    """The title of what follows within a section."""

    text: str


@dataclass(frozen=True)
class CodeBlock:
    """Lines to be copied as they are."""

    text: str


@dataclass(frozen=True)
class CardImage:
    """A picture in a file beside the card, what it shows, and the same as an address that needs no file."""

    file: str
    title: str
    caption: str
    data_uri: str


CardBlock = str | FactList | AuditTable | CodeBlock | Heading | CardImage


@dataclass(frozen=True)
class Section:
    title: str
    blocks: tuple[CardBlock, ...]


@dataclass(frozen=True)
class CardBanner:
    """What a card begins with: a few words that stand out, and what there is to say of them."""

    headline: str
    text: str


def render_markdown(title: str, banner: CardBanner, sections: Sequence[Section]) -> str:
    """The card as Markdown, without its front matter."""
    lines = [f"**{banner.headline}** {escape_markdown(banner.text)}", "", f"# {escape_markdown(title)}", ""]
    for section in sections:
        lines += [f"## {section.title}", ""]
        for part in section.blocks:
            lines += [_block_to_markdown(part), ""]
    return "\n".join(lines).rstrip() + "\n"


def _block_to_markdown(block: CardBlock) -> str:
    if isinstance(block, str):
        return escape_markdown(block)
    if isinstance(block, CodeBlock):
        fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", block.text))])
        return f"{fence}\n{block.text.rstrip()}\n{fence}"
    if isinstance(block, Heading):
        return f"### {escape_markdown(block.text)}"
    if isinstance(block, CardImage):
        return f"![{escape_markdown(block.title)}]({block.file})\n\n{escape_markdown(block.title)}\n\n{escape_markdown(block.caption)}"
    if isinstance(block, FactList):
        return "\n".join(f"- **{name}:** {escape_markdown(value)}" for name, value in block.entries)
    head = f"**{escape_markdown(block.title)}**\n\n" if block.title else ""
    rows = [block.columns, tuple("---" for _ in block.columns), *block.rows]
    lines = (" | ".join(cell if cell == "---" else _escape_cell(cell) for cell in row) for row in rows)
    return head + "\n".join(f"| {line} |" for line in lines)


def escape_markdown(text: str) -> str:
    """Text that stays text in Markdown: one paragraph, without tags and without emphasis that nobody meant.

    >>> escape_markdown("a <b>\\n*c*")
    'a &lt;b&gt; \\\\*c\\\\*'
    """
    flat = " ".join(text.split())
    return re.sub(r"([\\`*_\[\]#])", r"\\\1", flat).replace("<", "&lt;").replace(">", "&gt;")


def _escape_cell(text: str) -> str:
    return escape_markdown(text).replace("|", "\\|") or " "


def render_html(title: str, banner: CardBanner, sections: Sequence[Section]) -> str:
    """The same as a page that needs nothing else."""
    made = [(section.title, "\n".join(map(_block_to_html, section.blocks))) for section in sections]
    return render_page(title, [(banner.headline, render_paragraph(banner.text)), *made])


def _block_to_html(block: CardBlock) -> str:
    if isinstance(block, str):
        return render_paragraph(block)
    if isinstance(block, CodeBlock):
        return f'<pre class="scroll" tabindex="0">{escape(block.text)}</pre>'
    if isinstance(block, Heading):
        return f"<h3>{escape(block.text)}</h3>"
    if isinstance(block, FactList):
        return render_definition_list(block.entries)
    if isinstance(block, CardImage):
        drawn = f'<img src="{block.data_uri}" alt="{escape(block.title)}">'
        return render_paragraph(block.title) + render_figure(drawn, name=block.title, caption=block.caption)
    head = render_paragraph(block.title, css_class="soft") if block.title else ""
    return (
        head + render_figure(render_table(block.columns, block.rows), name=block.title or "a table")
        if block.rows
        else head
    )


def render_front_matter(values: dict[str, FrontMatterValue]) -> str:
    """YAML between two rules. Every value is written as JSON, which is YAML too, so that nothing needs to be escaped twice."""
    told = (f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items())
    lines = ["".join(c if c.isprintable() else " " for c in line) for line in told]  # YAML takes no others
    return "\n".join(["---", *lines, "---", ""])
