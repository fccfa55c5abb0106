"""A run's answers, read back from the table that its report shows them in: rows of text under heads."""

from html.parser import HTMLParser
from typing import Any

MAX_ROWS = 50  # rows


class _AnswerTableParser(HTMLParser):
    """The first table of the kind `cards`; whatever else a page holds is passed over."""

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
    """The heads and rows of a report's table of answers.

    >>> parse_samples('<table class="cards"><tr><th>text</th></tr><tr><td><bdi>a &lt; b</bdi></td></tr></table>')
    {'headers': ['text'], 'rows': [['a < b']]}
    """
    reader = _AnswerTableParser()
    reader.feed(report)
    reader.close()
    return {
        "headers": reader.headers,
        "rows": [row for row in reader.rows if len(row) == len(reader.headers)][:MAX_ROWS],
    }
