"""Text and the document around inline SVG: escaping, labels that fit, readable tokens and formatted numbers."""

import html
import unicodedata

from markupsafe import Markup

VISIBLE_WHITESPACE = {" ": "␣", "\n": "↵", "\t": "⇥", "\u00a0": "⍽", "\u3000": "□"}
INVISIBLE_CHARACTERS = frozenset("\u00ad\u061c\u200b\u200e\u200f\u2060\ufeff") | {
    chr(code) for block in (range(0x202A, 0x202F), range(0x2066, 0x206A), range(0xFFF9, 0xFFFC)) for code in block
}
CHARACTER_WIDTH = 0.61  # mean width of a character relative to the font size, in the fonts of `FONT_CSS`
BIDI_ISOLATES = "\u2068\u2069"  # isolate right-to-left text; `format_label` sets them in pairs
FONT_CSS = "font-family:ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace"


def escape(text: str) -> str:
    """Text escaped for HTML and SVG, elements and attributes alike, with control and invisible characters made visible.

    >>> escape("<b>&\\x00\\u202e")
    '&lt;b&gt;&amp;␀⟨202E⟩'
    """
    return html.escape(make_visible(text))


def make_visible(text: str) -> str:
    """Text whose control characters, direction overrides and other invisible characters are replaced by visible ones."""
    if text.isprintable():  # as nearly all text is
        return text
    return "".join(c if c in BIDI_ISOLATES else _make_visible(c) for c in text.replace("\r\n", "\n"))


def format_token(token: str, width: int) -> str:
    """A token as a readable label of at most `width` columns, with visible whitespace.

    >>> format_token(" the\\n", 12), format_token("extraordinarily", 8), format_token("", 8)
    ('␣the↵', 'extraor…', '∅')
    """
    return format_label("".join(VISIBLE_WHITESPACE.get(c, c) for c in token[: 8 * width]) or "∅", width)


def format_label(text: str, width: int) -> str:
    """A label on one line of at most `width` columns that does not change the direction of the text around it."""
    label = shorten("".join(_make_visible(c) for c in text[: 8 * width].replace("\n", " ")), width)
    # without isolation, a number after right-to-left text would move to its other side
    is_right_to_left = any(unicodedata.bidirectional(c) in ("R", "AL", "AN") for c in label)
    return label.join(BIDI_ISOLATES) if is_right_to_left else label


def _make_visible(character: str) -> str:
    code = ord(character)
    if code < 32 and character not in "\n\t":
        return chr(0x2400 + code)  # the Unicode symbol for this control character
    is_invalid = 0xD800 <= code < 0xE000 or code & 0xFFFE == 0xFFFE or 0xFDD0 <= code < 0xFDF0
    if (
        is_invalid
        or 127 <= code < 160
        or character in INVISIBLE_CHARACTERS
        or unicodedata.category(character) in ("Zl", "Zp")
    ):
        return f"⟨{code:04X}⟩"
    return character


def shorten(text: str, width: int) -> str:
    """The text, truncated with an ellipsis where it is wider than `width` columns.

    >>> shorten("注意力机制", 7)
    '注意力…'
    """
    if display_width(text) <= width:
        return text
    kept, used = [], 0
    for character in text:
        used += display_width(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept) + "…"


def display_width(text: str) -> int:
    """The number of terminal columns of a text: two for a Chinese character, none for a combining accent."""
    return sum(
        0 if unicodedata.category(c) in ("Mn", "Me", "Cf") else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def text_width(text: str, size: float) -> float:
    """The approximate width of a text in pixels at a font size."""
    return display_width(text) * size * CHARACTER_WIDTH


def format_number(value: float) -> str:
    """A number with at most six significant digits, for the ticks of an axis.

    >>> [format_number(x) for x in (0, 0.25, 50_000, 2_500_000, 0.00003, -1e-12)]
    ['0', '0.25', '50,000', '2.5M', '3e-5', '-1e-12']
    """
    if abs(value) >= 1e6 and abs(value) < 1e9:
        return f"{value / 1e6:.6g}M"
    text = f"{value:,.6g}" if abs(value) < 1e6 else f"{value:.6g}"
    return text.replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def render_text(x: float, y: float, text: str, *, css_class: str = "", rotation: int = 0) -> str:
    """A line of escaped text, rotated clockwise by `rotation` degrees around its start; `css_class` is inserted as it is."""
    css = f' class="{css_class}"' if css_class else ""
    if rotation:
        transform = f"translate({format_coordinate(x)} {format_coordinate(y)}) rotate({rotation})"
        return f'<g transform="{transform}">{render_text(0, 0, text, css_class=css_class)}</g>'
    return f'<text x="{format_coordinate(x)}" y="{format_coordinate(y)}"{css}>{escape(text)}</text>'


def format_coordinate(value: float) -> str:
    """A coordinate with one decimal, which is a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def render_svg_document(
    body: list[str], *, css_class: str, title: str, description: str, width: float, height: float, style: str
) -> Markup:
    """A complete SVG document, for a file or for a page, with a title and a description for screen readers."""
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return Markup(
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{css_class}" role="img" {size}>\n'
        f"<title>{escape(title)}</title>\n<desc>{escape(description)}</desc>\n<style>{style}</style>\n"
        + "\n".join(body)
        + "\n</svg>\n"
    )
