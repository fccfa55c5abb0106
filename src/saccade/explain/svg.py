"""What every drawing for a page shares: text made harmless and readable, and the frame of an SVG."""

import html
import unicodedata

SHOWN = {" ": "␣", "\n": "↵", "\t": "⇥", "\u00a0": "⍽", "\u3000": "□"}
UNSEEN = frozenset("\u00ad\u061c\u200b\u200e\u200f\u2060\ufeff") | {
    chr(code) for block in (range(0x202A, 0x202F), range(0x2066, 0x206A), range(0xFFF9, 0xFFFC)) for code in block
}
CHARACTER = 0.61  # the width of a character by the size of its letters, on average, in the fonts of `TYPE`
ISOLATES = "\u2068\u2069"  # keep writing from the right to itself; `readable` sets them in pairs
TYPE = "font-family:ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace"


def escape(text: str) -> str:
    """Text that is text wherever it stands in a page: markup, control characters and reversed writing are made visible.

    >>> escape("<b>&\\x00\\u202e")
    '&lt;b&gt;&amp;␀⟨202E⟩'
    """
    if text.isprintable():  # as nearly all text is
        return html.escape(text)
    return html.escape("".join(c if c in ISOLATES else _visible(c) for c in text.replace("\r\n", "\n")))


def readable(token: str, width: int) -> str:
    """A token as a person can read it, at most `width` columns wide; what it stands for is said, not drawn.

    >>> readable(" the\\n", 12), readable("extraordinarily", 8), readable("", 8)
    ('␣the↵', 'extraor…', '∅')
    """
    return label("".join(SHOWN.get(c, c) for c in token[: 8 * width]) or "∅", width)


def label(text: str, width: int) -> str:
    """A name on one line of at most `width` columns that leaves what stands beside it in place."""
    seen = shorten("".join(_visible(c) for c in text[: 8 * width].replace("\n", " ")), width)
    # written from the right, it would draw the number beside it over to its other side
    right = any(unicodedata.bidirectional(c) in ("R", "AL", "AN") for c in seen)
    return seen.join(ISOLATES) if right else seen


def _visible(character: str) -> str:
    code = ord(character)
    if code < 32 and character not in "\n\t":
        return chr(0x2400 + code)  # Unicode has a picture for each of them
    lone = 0xD800 <= code < 0xE000 or code & 0xFFFE == 0xFFFE or 0xFDD0 <= code < 0xFDF0
    if lone or 127 <= code < 160 or character in UNSEEN or unicodedata.category(character) in ("Zl", "Zp"):
        return f"⟨{code:04X}⟩"
    return character


def shorten(text: str, width: int) -> str:
    """The text, or as much of its beginning as fits into `width` columns with an ellipsis.

    >>> shorten("注意力机制", 7)
    '注意力…'
    """
    if columns(text) <= width:
        return text
    kept, used = [], 0
    for character in text:
        used += columns(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept) + "…"


def columns(text: str) -> int:
    """How many columns of a terminal the text takes: two for a Chinese character, none for an accent."""
    return sum(
        0 if unicodedata.category(c) in ("Mn", "Me", "Cf") else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def breadth(text: str, size: float) -> float:
    """About how many pixels the text takes in letters of this size."""
    return columns(text) * size * CHARACTER


def plain(value: float) -> str:
    """A number as short as it can be read.

    >>> [plain(x) for x in (0, 0.25, 50_000, 2_500_000, 0.00003, -1e-12)]
    ['0', '0.25', '50,000', '2.5M', '3e-5', '-1e-12']
    """
    if abs(value) >= 1e6 and abs(value) < 1e9:
        return f"{value / 1e6:.6g}M"
    text = f"{value:,.6g}" if abs(value) < 1e6 else f"{value:.6g}"
    return text.replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def write(x: float, y: float, text: str, *, kind: str = "", more: str = "") -> str:
    """A line of text at a place; `kind` is its class, `more` other attributes, both written by us."""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{place(x)}" y="{place(y)}"{named}{more}>{escape(text)}</text>'


def place(value: float) -> str:
    """A place to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def frame(body: list[str], *, kind: str, title: str, about: str, width: float, height: float, style: str) -> str:
    """A whole SVG: it stands alone as a file or within a page, and says to those who cannot see it what it shows."""
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" role="img" {size}>\n'
        f"<title>{escape(title)}</title>\n<desc>{escape(about)}</desc>\n<style>{style}</style>\n"
        + "\n".join(body)
        + "\n</svg>\n"
    )
