"""Font fallback for matplotlib figures: finds system fonts for scripts that the default font lacks, or warns which are missing.

matplotlib draws a box for every character that its font has no glyph for. Here all system fonts are searched, even if
they were installed after matplotlib built its font cache, so Chinese text is drawn if any installed font has its characters.
"""

import unicodedata
from collections.abc import Iterable
from functools import cache

from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

DEFAULT_FONT = "DejaVu Sans"  # comes with matplotlib
PREFERRED_FONTS = (  # sans-serif fonts with Chinese, Japanese, Korean and Indic characters, by family name
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
CJK_NAME_PREFIXES = (  # of the Unicode names of characters
    "CJK",
    "HANGUL",
    "HIRAGANA",
    "KATAKANA",
    "BOPOMOFO",
    "FULLWIDTH",
    "IDEOGRAPHIC",
)
CJK_FONT_PACKAGE, OTHER_FONT_PACKAGE = "fonts-noto-cjk", "fonts-noto-core"  # of Debian and Ubuntu
MAX_CHARACTERS_SHOWN = 5  # missing characters that a warning lists


class FontWarning(UserWarning):
    """Warning that some characters of a figure are drawn as boxes, because no font on this machine has them."""


def choose_fonts(figure: Figure) -> str:
    """Set fonts that can draw all text of a figure; returns a warning if some characters remain boxes, else an empty string."""
    texts = figure.findobj(Text)
    families, missing = find_covering_fonts("".join(text.get_text() for text in texts))  # type: ignore[attr-defined]
    for text in texts:
        text.set_fontfamily(families)  # type: ignore[attr-defined]
    return format_missing_glyphs(missing)


def find_covering_fonts(text: str) -> tuple[list[str], list[str]]:
    """The font families that together cover a text, the default font first, and the characters that no font has.

    >>> find_covering_fonts("Zeit fließt √2 → 3")
    (['DejaVu Sans'], [])
    """
    default = load_glyphs(font_manager.findfont(DEFAULT_FONT))
    missing = {c for c in text if c.isprintable() and not c.isspace() and ord(c) not in default}
    families = [DEFAULT_FONT]
    for family, path in list_system_fonts() if missing else ():
        covered = {c for c in missing if ord(c) in load_glyphs(path)}
        if covered:
            families.append(family)
            missing -= covered
        if not missing:
            break
    return families, sorted(missing)


@cache
def list_system_fonts() -> tuple[tuple[str, str], ...]:
    """Family and file of every upright font of regular weight on this machine, the preferred families first."""
    manager = font_manager.fontManager
    cached = {entry.fname for entry in manager.ttflist}
    for path in font_manager.findSystemFonts():
        if path not in cached:  # installed after matplotlib built its font cache
            try:
                manager.addfont(path)
            except (OSError, RuntimeError):  # not a readable font file
                continue
    regular = {
        e.name: e.fname for e in manager.ttflist if e.style == "normal" and e.weight in (400, "normal", "regular")
    }
    for name in (DEFAULT_FONT, *(name for name in regular if "lastresort" in name.lower().replace(" ", ""))):
        regular.pop(name, None)  # the last-resort font has a box for every character
    first = [name for name in PREFERRED_FONTS if name in regular]
    return tuple((name, regular[name]) for name in [*first, *sorted(set(regular) - set(first))])


@cache
def load_glyphs(path: str) -> frozenset[int]:
    """The code points that a font file has glyphs for."""
    try:
        return frozenset(FT2Font(path).get_charmap())
    except (OSError, RuntimeError):  # for example a font of color bitmaps
        return frozenset()


def format_missing_glyphs(missing: Iterable[str]) -> str:
    """A warning that names missing characters and the package that has them; empty if none is missing.

    >>> format_missing_glyphs("年日").split("; ")[0]
    'No font on this machine has 年 日'
    """
    missing = list(missing)
    if not missing:
        return ""
    others = len(missing) - MAX_CHARACTERS_SHOWN
    more = f" and {others:,} other character{'s' if others > 1 else ''}" if others > 0 else ""
    packages = sorted({_font_package(c) for c in missing})
    names = f"the package{'s' if len(packages) > 1 else ''} {' and '.join(packages)}"
    return (
        f"No font on this machine has {' '.join(missing[:MAX_CHARACTERS_SHOWN])}{more}; boxes are drawn instead. "
        f"Install a font that has them, such as {names} on Debian or Ubuntu, and plot again."
    )


def _font_package(character: str) -> str:
    is_cjk = unicodedata.name(character, "").startswith(CJK_NAME_PREFIXES)
    return CJK_FONT_PACKAGE if is_cjk else OTHER_FONT_PACKAGE
