"""Pages of sections and blocks: every block has a template, text is escaped in all of them, and drawings are inserted once."""

import re
from dataclasses import fields
from html.parser import HTMLParser
from typing import get_args

import pytest
from jinja2 import UndefinedError

from hostile.markup import hostile
from saccade.render.heatmap import render_vector_heatmap
from saccade.render.page import (
    Block,
    ChartGrid,
    CodeBlock,
    FactList,
    Figure,
    Gallery,
    Heading,
    ImageFigure,
    Paragraph,
    ScoreList,
    Section,
    Table,
    Thumbnail,
    load_templates,
    render_notebook_cell,
    render_page,
)


def blocks(text):
    """A block of every kind, with a text wherever it takes one."""
    svg = render_vector_heatmap([[1.0]], [text], [text], title=text)
    return [
        Paragraph(text),
        Paragraph(text, "soft"),
        Heading(text),
        CodeBlock(text),
        ScoreList([text]),
        FactList([(text, text)]),
        Table((text, "n"), [(text, "1")], css_class="cards", label=text),
        Figure(svg, text, text),
        ImageFigure("data:image/png;base64,", text, text),
        ChartGrid([svg]),
        Gallery([Thumbnail("data:,", text, text, (9, 7)), Thumbnail("data:,", text, text, smooth=True)]),
    ]


class Elements(HTMLParser):
    """The tags of a page with the names of their attributes."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text = [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, [name for name, _ in attrs]))

    def handle_data(self, data):
        self.text.append(data)


def test_every_kind_of_block_is_rendered():
    assert {type(block) for block in blocks("x")} == set(get_args(Block))
    assert all(fields(kind) for kind in get_args(Block))
    page = render_page("t", [Section("s", blocks("x"))])
    assert "&lt;svg" not in page
    assert page.count("<svg") == 2
    assert page.count("x") > 20


@pytest.mark.parametrize("render", [lambda made: render_page("t", [Section("s", made)]), render_notebook_cell])
def test_text_stays_text_in_every_block(render):
    harmless = Elements(render(blocks("w")))
    for text in hostile():
        page = render(blocks(text))
        assert Elements(page).tags == harmless.tags, text
        assert not re.search("[\x00-\x08\x0e-\x1f\u202e\ud800]", page)


def test_titles_and_headings_stay_text():
    harmless = Elements(render_page("w", [Section("w", [Paragraph("w")])]))
    for text in hostile():
        assert Elements(render_page(text, [Section(text, [Paragraph("w")])])).tags == harmless.tags


def test_sections_without_blocks_are_left_out():
    page = render_page("t", [Section("empty", []), Section("full", [Paragraph("p")])])
    assert re.findall("<h2>(.*?)</h2>", page) == ["full"]


def test_a_name_that_a_template_does_not_know_is_an_error():
    with pytest.raises(UndefinedError):
        load_templates().from_string("{{ unknown }}").render()


def test_a_table_knows_its_columns_of_numbers():
    table = Table(("name", "count", "share"), [("a", "1,200", "5%"), ("b", "–", "n/a")])
    assert table.columns == [("name", False), ("count", True), ("share", True)]
