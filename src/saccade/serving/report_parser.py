"""Parser for the table of worst predictions in the HTML report of a run."""

from html.parser import HTMLParser
from typing import Any

MAX_ROWS = 50


class _AnswerTableParser(HTMLParser):
    """Collects the first table with the class `cards` and ignores the rest of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.headers: list[str] = []
        self.rows: list[list[str]] = []
        self._in_table = self._is_done = False
        self._cell: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table" and ("class", "cards") in attrs and not self._is_done:
            self._in_table = True
        elif self._in_table and tag == "tr":
            self.rows.append([])
        elif self._in_table and (tag == "th" or (tag == "td" and self.rows)):
            self._cell = []

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "table" and self._in_table:
            self._in_table, self._is_done = False, True
        elif tag in ("th", "td") and self._cell is not None:
            (self.headers if tag == "th" else self.rows[-1]).append("".join(self._cell))
            self._cell = None


def parse_samples(report: str) -> dict[str, Any]:
    """The headers and rows of the table of predictions in a report.

    >>> parse_samples('<table class="cards"><tr><th>text</th></tr><tr><td><bdi>a &lt; b</bdi></td></tr></table>')
    {'headers': ['text'], 'rows': [['a < b']]}
    """
    parser = _AnswerTableParser()
    parser.feed(report)
    parser.close()
    rows = [row for row in parser.rows if len(row) == len(parser.headers)]
    return {"headers": parser.headers, "rows": rows[:MAX_ROWS]}
