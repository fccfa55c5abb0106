"""One HTML file that needs nothing else: its style, its tables, and a policy that forbids any request."""

import os
from collections.abc import Sequence
from pathlib import Path

from saccade.render.svg import escape, shorten

MAX_TEXT_COLUMNS = 600  # columns of a text in a table
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)
PAGE_CSS = """
:root { color-scheme: light dark; --ground: #fdfcf9; --ink: #1d2025; --soft: #5c6068; --line: #dcdad3; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ground: #16181b; --ink: #e6e3dd; --soft: #a3a5aa; --line: #3a3d42; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 64rem; padding: 2.5rem 1.25rem 4rem; background: var(--ground); color: var(--ink);
  font: 1.0625rem/1.55 Charter, "Bitstream Charter", "Sitka Text", Cambria, Georgia, serif; overflow-wrap: anywhere; }
h1 { font-size: 1.9rem; line-height: 1.2; font-weight: 600; margin: 0 0 1.5rem; }
h2 { font-size: 1.25rem; font-weight: 600; margin: 3rem 0 .75rem; padding-top: .75rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.0625rem; font-weight: 600; margin: 2.25rem 0 .5rem; }
p, figcaption { max-width: 42rem; margin: 0 0 1rem; }
figcaption, p.soft { color: var(--soft); font-size: .9375rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.5rem; margin: 0; }
dt { color: var(--soft); }
dd { margin: 0; white-space: pre-wrap; font-variant-numeric: tabular-nums lining-nums; }
.scores { list-style: none; margin: 0; padding: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums lining-nums; }
.curves { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr)); gap: 2rem; }
figure { margin: 0 0 2rem; break-inside: avoid; }
.curves figure { margin: 0; }
.curves svg { width: 100%; height: auto; max-width: 34rem; }
.scroll { overflow-x: auto; margin: 0 0 1rem; padding-bottom: .25rem; }
.scroll svg { display: block; }
.scroll table { min-width: 42rem; }
:focus-visible { outline: 2px solid var(--ink); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: .9375rem; line-height: 1.4; }
th, td { text-align: left; vertical-align: top; padding: .4rem 1rem .4rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 400; color: var(--soft); border-bottom-color: var(--soft); overflow-wrap: normal; }
td { white-space: pre-wrap; min-width: 4rem; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums lining-nums; }
@media (max-width: 40rem) {
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .6rem; }
  .cards thead { position: absolute; clip-path: inset(50%); height: 1px; overflow: hidden; }
  .cards, .cards tbody, .cards tr, .cards td { display: block; text-align: left; border: 0; padding: 0; }
  .cards tr { border-bottom: 1px solid var(--line); padding: .75rem 0; }
  .cards td::before { content: attr(data-label) ": "; color: var(--soft); }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  .scroll { overflow: visible; }
  .scroll table { min-width: 0; }
  .scroll svg { max-width: 100%; height: auto; }
  .curves { grid-template-columns: 1fr 1fr; }
  h2 { break-after: avoid; }
  tr { break-inside: avoid; }
}
"""


def render_page(title: str, sections: Sequence[tuple[str, str]]) -> str:
    """A whole page of sections, each a heading and its HTML; those that are empty are left out."""
    title = escape(shorten(title, 200))
    body = "".join(f"<section>\n<h2>{escape(head)}</h2>\n{html}\n</section>\n" for head, html in sections if html)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<link rel="icon" href="data:,">\n'
        f"<title>{title}</title>\n<style>{PAGE_CSS}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n{body}"
        "</main>\n</body>\n</html>\n"
    )


def render_paragraph(text: str, *, css_class: str = "") -> str:
    """A paragraph."""
    return f'<p class="{css_class}">{escape(text)}</p>' if css_class else f"<p>{escape(text)}</p>"


def render_figure(drawing: str, *, name: str, caption: str = "") -> str:
    """A drawing that scrolls by itself where it is wider than the page, by keyboard too."""
    said = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    name = escape(shorten(name, 120))
    return f'<figure><div class="scroll" tabindex="0" role="group" aria-label="{name}">{drawing}</div>{said}</figure>'


def render_definition_list(facts: Sequence[tuple[str, str]]) -> str:
    """Names and what they stand for."""
    lines = (f"<dt>{escape(name)}</dt><dd>{_render_cell(value)}</dd>\n" for name, value in facts)
    return f"<dl>\n{''.join(lines)}</dl>" if facts else ""


def render_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, css_class: str = "") -> str:
    """A table; columns of numbers stand on the right, and a table of the kind `cards` stands on end on a phone."""
    right = [all(_is_number(row[i]) for row in rows) for i in range(len(headers))]
    classes = [' class="number"' if number else "" for number in right]
    head = "".join(f'<th scope="col"{c}>{escape(name)}</th>' for name, c in zip(headers, classes, strict=True))
    lines = []
    for row in rows:
        fields = zip(headers, row, classes, strict=True)
        lines.append(
            "".join(f'<td{c} data-label="{escape(name)}">{_render_cell(value)}</td>' for name, value, c in fields)
        )
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return f'<table class="{css_class}">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>'


def _render_cell(text: str) -> str:
    """A text of a bounded length, in its own direction of writing."""
    short = shorten(text[: 2 * MAX_TEXT_COLUMNS], MAX_TEXT_COLUMNS)
    more = f" ({len(text):,} characters)" if len(short) < len(text) else ""
    return f"<bdi>{escape(short)}</bdi>{more}"


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "").removesuffix("%").strip() or "0")
    except ValueError:
        return text in ("–", "n/a")
    return True


def write_page(path: Path, text: str) -> None:
    """Write a file as a whole or not at all: who reads it meanwhile finds the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(beside, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
