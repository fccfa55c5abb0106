"""What every drawing for a page shares: text made harmless and readable, and the frame of an SVG."""

import html
import unicodedata

VISIBLE_WHITESPACE = {" ": "␣", "\n": "↵", "\t": "⇥", "\u00a0": "⍽", "\u3000": "□"}
INVISIBLE_CHARACTERS = frozenset("\u00ad\u061c\u200b\u200e\u200f\u2060\ufeff") | {
    chr(code) for block in (range(0x202A, 0x202F), range(0x2066, 0x206A), range(0xFFF9, 0xFFFC)) for code in block
}
CHARACTER_WIDTH = 0.61  # the width of a character by the size of its letters, on average, in the fonts of `TYPE`
BIDI_ISOLATES = "\u2068\u2069"  # keep writing from the right to itself; `readable` sets them in pairs
FONT_CSS = "font-family:ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace"


def escape(text: str) -> str:
    """Text that is text wherever it stands in a page: markup, control characters and reversed writing are made visible.

    >>> escape("<b>&\\x00\\u202e")
    '&lt;b&gt;&amp;␀⟨202E⟩'
    """
    if text.isprintable():  # as nearly all text is
        return html.escape(text)
    return html.escape("".join(c if c in BIDI_ISOLATES else _make_visible(c) for c in text.replace("\r\n", "\n")))


def format_token(token: str, width: int) -> str:
    """A token as a person can read it, at most `width` columns wide; what it stands for is said, not drawn.

    >>> format_token(" the\\n", 12), format_token("extraordinarily", 8), format_token("", 8)
    ('␣the↵', 'extraor…', '∅')
    """
    return format_label("".join(VISIBLE_WHITESPACE.get(c, c) for c in token[: 8 * width]) or "∅", width)


def format_label(text: str, width: int) -> str:
    """A name on one line of at most `width` columns that leaves what stands beside it in place."""
    seen = shorten("".join(_make_visible(c) for c in text[: 8 * width].replace("\n", " ")), width)
    # written from the right, it would draw the number beside it over to its other side
    right = any(unicodedata.bidirectional(c) in ("R", "AL", "AN") for c in seen)
    return seen.join(BIDI_ISOLATES) if right else seen


def _make_visible(character: str) -> str:
    code = ord(character)
    if code < 32 and character not in "\n\t":
        return chr(0x2400 + code)  # Unicode has a picture for each of them
    lone = 0xD800 <= code < 0xE000 or code & 0xFFFE == 0xFFFE or 0xFDD0 <= code < 0xFDF0
    if (
        lone
        or 127 <= code < 160
        or character in INVISIBLE_CHARACTERS
        or unicodedata.category(character) in ("Zl", "Zp")
    ):
        return f"⟨{code:04X}⟩"
    return character


def shorten(text: str, width: int) -> str:
    """The text, or as much of its beginning as fits into `width` columns with an ellipsis.

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
    """How many columns of a terminal the text takes: two for a Chinese character, none for an accent."""
    return sum(
        0 if unicodedata.category(c) in ("Mn", "Me", "Cf") else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def text_width(text: str, size: float) -> float:
    """About how many pixels the text takes in letters of this size."""
    return display_width(text) * size * CHARACTER_WIDTH


def format_number(value: float) -> str:
    """A number as short as it can be read.

    >>> [format_number(x) for x in (0, 0.25, 50_000, 2_500_000, 0.00003, -1e-12)]
    ['0', '0.25', '50,000', '2.5M', '3e-5', '-1e-12']
    """
    if abs(value) >= 1e6 and abs(value) < 1e9:
        return f"{value / 1e6:.6g}M"
    text = f"{value:,.6g}" if abs(value) < 1e6 else f"{value:.6g}"
    return text.replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def render_text(x: float, y: float, text: str, *, css_class: str = "", attributes: str = "") -> str:
    """A line of text at a place; `kind` is its class, `more` other attributes, both written by us."""
    named = f' class="{css_class}"' if css_class else ""
    return f'<text x="{format_coordinate(x)}" y="{format_coordinate(y)}"{named}{attributes}>{escape(text)}</text>'


def format_coordinate(value: float) -> str:
    """A place to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def render_svg_document(
    body: list[str], *, css_class: str, title: str, description: str, width: float, height: float, style: str
) -> str:
    """A whole SVG: it stands alone as a file or within a page, and says to those who cannot see it what it shows."""
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{css_class}" role="img" {size}>\n'
        f"<title>{escape(title)}</title>\n<desc>{escape(description)}</desc>\n<style>{style}</style>\n"
        + "\n".join(body)
        + "\n</svg>\n"
    )
