"""Fonts for the text of a figure: one of this machine for every script that the usual font lacks, or a warning that says which.

matplotlib draws with the fonts it is told of and puts a box where they have no glyph. Here the fonts of the system are searched,
those that were installed since matplotlib made its list too, so a sentence in Chinese is drawn wherever any font can draw it.
"""

import unicodedata
from collections.abc import Iterable
from functools import cache

from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

DEFAULT_FONT = "DejaVu Sans"  # comes with matplotlib
PREFERRED_FONTS = (  # sans-serif fonts with Chinese, Japanese, Korean and Indian letters, as systems name them
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Droid Sans Fallback",
    "Noto Sans Devanagari",
    "Noto Sans Bengali",
    "Noto Sans Thai",
    "PingFang SC",
    "Hiragino Sans",
    "Arial Unicode MS",
    "Unifont",
)
CJK_NAME_PREFIXES = (
    "CJK",
    "HANGUL",
    "HIRAGANA",
    "KATAKANA",
    "BOPOMOFO",
    "FULLWIDTH",
    "IDEOGRAPHIC",
)  # how Unicode's names begin
FONT_PACKAGES = {
    True: "fonts-noto-cjk",
    False: "fonts-noto-core",
}  # of Debian and Ubuntu, for those and for all other letters
MAX_CHARACTERS_SHOWN = 5  # missing characters that are named


class FontWarning(UserWarning):
    """Some characters of a figure are drawn as boxes, since no font of this machine has them."""


def choose_fonts(figure: Figure) -> str:
    """Set fonts that can draw every text of a figure; returns a warning where some characters stay boxes, else nothing."""
    texts = figure.findobj(Text)
    families, missing = find_covering_fonts("".join(text.get_text() for text in texts))  # type: ignore[attr-defined]
    for text in texts:
        text.set_fontfamily(families)  # type: ignore[attr-defined]
    return format_missing_glyphs(missing)


def find_covering_fonts(text: str) -> tuple[list[str], list[str]]:
    """The font families that together draw a text, the usual one first, and the characters that none of them has.

    >>> find_covering_fonts("Zeit fließt √2 → 3")
    (['DejaVu Sans'], [])
    """
    known = load_glyphs(font_manager.findfont(DEFAULT_FONT))
    needed = {c for c in text if c.isprintable() and not c.isspace() and ord(c) not in known}
    families = [DEFAULT_FONT]
    for family, path in list_system_fonts() if needed else ():
        drawn = {c for c in needed if ord(c) in load_glyphs(path)}
        if drawn:
            families.append(family)
            needed -= drawn
        if not needed:
            break
    return families, sorted(needed)


@cache
def list_system_fonts() -> tuple[tuple[str, str], ...]:
    """Family and file of every upright font of normal weight on this machine, the preferred ones first."""
    manager = font_manager.fontManager
    known = {entry.fname for entry in manager.ttflist}
    for path in font_manager.findSystemFonts():
        if path not in known:  # installed after matplotlib made its list
            try:
                manager.addfont(path)
            except (OSError, RuntimeError):  # not a font that can be read
                continue
    plain = {e.name: e.fname for e in manager.ttflist if e.style == "normal" and e.weight in (400, "normal", "regular")}
    for name in (DEFAULT_FONT, *(name for name in plain if "lastresort" in name.lower().replace(" ", ""))):
        plain.pop(name, None)  # the last resort has a box for every character
    first = [name for name in PREFERRED_FONTS if name in plain]
    return tuple((name, plain[name]) for name in [*first, *sorted(set(plain) - set(first))])


@cache
def load_glyphs(path: str) -> frozenset[int]:
    """The characters that a font file can draw, by their numbers."""
    try:
        return frozenset(FT2Font(path).get_charmap())
    except (OSError, RuntimeError):  # such as a font of coloured bitmaps
        return frozenset()


def format_missing_glyphs(missing: Iterable[str]) -> str:
    """What is missing, and the package that brings it.

    >>> format_missing_glyphs("年日").split("; ")[0]
    'No font on this machine has 年 日'
    """
    missing = list(missing)
    if not missing:
        return ""
    left = len(missing) - MAX_CHARACTERS_SHOWN
    more = f" and {left:,} other character{'s' if left > 1 else ''}" if left > 0 else ""
    packages = sorted({FONT_PACKAGES[unicodedata.name(c, "").startswith(CJK_NAME_PREFIXES)] for c in missing})
    named = f"the package{'s' if len(packages) > 1 else ''} {' and '.join(packages)}"
    return (
        f"No font on this machine has {' '.join(missing[:MAX_CHARACTERS_SHOWN])}{more}; boxes are drawn instead. Install a font that has "
        f"them, such as {named} on Debian or Ubuntu, and draw again."
    )
