"""Rendering of model cards: Markdown, as the Hugging Face hub shows it, and an HTML page in the style of the run report."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from saccade.audit.suite import AuditTable
from saccade.render.page import Block, CodeBlock, FactList, Heading, ImageFigure, Paragraph, Section, Table, render_page

FrontMatterValue = str | float | bool | Sequence[Any] | dict[str, Any]


@dataclass(frozen=True)
class CardImage:
    """An image of a card: its file next to the card, and the same as a data URI."""

    file: str
    title: str
    caption: str
    data_uri: str


CardBlock = str | FactList | AuditTable | CodeBlock | Heading | CardImage


@dataclass(frozen=True)
class CardSection:
    title: str
    blocks: tuple[CardBlock, ...]


@dataclass(frozen=True)
class CardBanner:
    """The first lines of a card: a headline in bold, and its explanation."""

    headline: str
    text: str


def render_markdown(title: str, banner: CardBanner, sections: Sequence[CardSection]) -> str:
    """The card as Markdown, without its front matter."""
    lines = [f"**{banner.headline}** {escape_markdown(banner.text)}", "", f"# {escape_markdown(title)}", ""]
    for section in sections:
        lines += [f"## {section.title}", ""]
        for block in section.blocks:
            lines += [_block_to_markdown(block), ""]
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
        title = escape_markdown(block.title)
        return f"![{title}]({block.file})\n\n{title}\n\n{escape_markdown(block.caption)}"
    if isinstance(block, FactList):
        return "\n".join(f"- **{name}:** {escape_markdown(value)}" for name, value in block.entries)
    head = f"**{escape_markdown(block.title)}**\n\n" if block.title else ""
    rows = [block.columns, tuple("---" for _ in block.columns), *block.rows]
    lines = (" | ".join(cell if cell == "---" else _escape_cell(cell) for cell in row) for row in rows)
    return head + "\n".join(f"| {line} |" for line in lines)


def escape_markdown(text: str) -> str:
    """Escape text for Markdown: one paragraph, with tags and emphasis marks escaped.

    >>> escape_markdown("a <b>\\n*c*")
    'a &lt;b&gt; \\\\*c\\\\*'
    """
    flat = " ".join(text.split())
    return re.sub(r"([\\`*_\[\]#])", r"\\\1", flat).replace("<", "&lt;").replace(">", "&gt;")


def _escape_cell(text: str) -> str:
    return escape_markdown(text).replace("|", "\\|") or " "


def render_html(title: str, banner: CardBanner, sections: Sequence[CardSection]) -> str:
    """The card as a self-contained HTML page."""
    page = [Section(banner.headline, [Paragraph(banner.text)])]
    page += [
        Section(section.title, [part for block in section.blocks for part in _page_blocks(block)])
        for section in sections
    ]
    return render_page(title, page)


def _page_blocks(block: CardBlock) -> list[Block]:
    if isinstance(block, str):
        return [Paragraph(block)]
    if isinstance(block, CardImage):
        return [Paragraph(block.title), ImageFigure(block.data_uri, block.title, block.caption)]
    if isinstance(block, AuditTable):
        title: list[Block] = [Paragraph(block.title, "soft")] if block.title else []
        label = block.title or "a table"
        return [*title, Table(block.columns, block.rows, label=label)] if block.rows else title
    return [block]


def render_front_matter(values: dict[str, FrontMatterValue]) -> str:
    """YAML front matter between two `---` lines. Values are written as JSON, which is valid YAML and needs no other escaping."""
    entries = (f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items())
    # YAML forbids control characters
    lines = ["".join(c if c.isprintable() else " " for c in entry) for entry in entries]
    return "\n".join(["---", *lines, "---", ""])
