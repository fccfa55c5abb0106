"""Which language a text is in, told by its script and its small words; and what a tokenizer needs for each language.

>>> language_of("The cat sat on the mat."), language_of("Die Katze saß auf der Matte."), language_of("Кошка"), language_of("ok")
('en', 'de', 'ru', '')
"""

import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from saccade.text.tokenizer import Tokenizer

WORD = re.compile(r"(?<!['’])\b[^\W\d_]+(?:['’][^\W\d_]+)?")  # the s of a lone 's is no word
KANA = ("HIRAGANA", "KATAKANA")
LEAST, AHEAD = (
    1.0,
    1.3,
)  # what the small words of a language must weigh in a text, and how many times the next language's
UNSPACED = ("zh", "ja")  # words are not set apart, so that there are none to count
READ = 2_000  # characters that are looked at


@dataclass(frozen=True)
class Language:
    code: str
    name: str
    text: str
    words: frozenset[str] = frozenset()
    script: str = ""
    letters: str = ""  # by which it is told from another language of the same script


@dataclass(frozen=True)
class Served:
    """What a tokenizer needs for the same text in one language: tokens, tokens a word, and how many times what English needs."""

    language: Language
    tokens: int
    per_word: float | None
    times: float
    unknown: float  # the share of tokens that stand for nothing


@cache
def languages() -> dict[str, Language]:
    """The languages that are known, by code."""
    raw = tomllib.loads((files("saccade.text") / "languages.toml").read_text(encoding="utf-8"))
    return {
        code: Language(
            code,
            one["name"],
            one["text"],
            frozenset(one.get("words", "").split()),
            one.get("script", ""),
            one.get("letters", ""),
        )
        for code, one in raw.items()
    }


def small_words(code: str) -> frozenset[str]:
    """The words of a language that say little by themselves."""
    found = languages().get(code)
    return frozenset() if found is None else found.words


def language_of(text: str) -> str:
    """The code of the language of a text; "" where that cannot be told."""
    text = text[:READ]
    script = _script(text)
    if script != "LATIN":
        found = [one for one in languages().values() if one.script and one.script == script]
        return next((one.code for one in found if set(one.letters) & set(text.lower())), found[0].code if found else "")
    words = [word.lower().replace("’", "'") for word in WORD.findall(text)]
    weights: Counter[str] = Counter()
    for word in words:
        known = _users().get(word, ())
        weights.update(dict.fromkeys(known, 1 / max(1, len(known))))  # a word of many languages says little
    (best, most), (_, second) = [*weights.most_common(2), ("", 0.0), ("", 0.0)][:2]
    return best if most >= LEAST and most >= AHEAD * second else ""


@cache
def _users() -> dict[str, tuple[str, ...]]:
    """The languages in which a small word is one."""
    words = {word for one in languages().values() for word in one.words}
    return {word: tuple(code for code, one in languages().items() if word in one.words) for word in words}


def _script(text: str) -> str:
    """The script of most of its letters; any kana makes a text Japanese."""
    counts = Counter(unicodedata.name(letter, "").split(" ")[0] for letter in text if letter.isalpha())
    if any(counts[kana] for kana in KANA):
        return KANA[0]
    return counts.most_common(1)[0][0].split("-")[0] if counts else ""


def shares(texts: Iterable[str]) -> dict[str, int]:
    """How many texts are in which language, the most frequent first."""
    return dict(Counter(map(language_of, texts)).most_common())


def served(tokenizer: Tokenizer) -> list[Served]:
    """What a tokenizer needs for each language, the worst served last."""
    english = max(1, len(tokenizer.encode(languages()["en"].text, special=False).ids))
    made = []
    for one in languages().values():
        ids = tokenizer.encode(one.text, special=False).ids
        words = len(one.text.split())
        per_word = None if one.code in UNSPACED else len(ids) / words
        unknown = sum(id == tokenizer.unknown for id in ids) / max(1, len(ids))
        made.append(Served(one, len(ids), per_word, len(ids) / english, unknown))
    # few tokens are no service where they stand for nothing
    return sorted(made, key=lambda one: (max(one.unknown, 0.1), one.times))
