"""Which language a text is in, told by its script and its small words; and what a tokenizer needs for each language.

>>> [detect_language(text) for text in ("The cat sat on the mat.", "Die Katze saß auf der Matte.", "Кошка", "ok")]
['en', 'de', 'ru', '']
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

WORD_PATTERN = re.compile(r"(?<!['’])\b[^\W\d_]+(?:['’][^\W\d_]+)?")  # the s of a lone 's is no word
KANA_SCRIPTS = ("HIRAGANA", "KATAKANA")
MIN_WORD_WEIGHT, MIN_LEAD_RATIO = (
    1.0,
    1.3,
)  # what the small words of a language must weigh in a text, and how many times the next language's
UNSPACED_LANGUAGES = ("zh", "ja")  # words are not set apart, so that there are none to count
MAX_CHARACTERS_READ = 2_000  # characters that are looked at


@dataclass(frozen=True)
class Language:
    code: str
    name: str
    sample_text: str
    stopwords: frozenset[str] = frozenset()
    script: str = ""
    distinguishing_letters: str = ""  # by which it is told from another language of the same script


@dataclass(frozen=True)
class TokenizerCoverage:
    """What a tokenizer needs for the same text in one language: tokens, tokens a word, and how many times what English needs."""

    language: Language
    token_count: int
    tokens_per_word: float | None
    ratio_to_english: float
    unknown_fraction: float  # the share of tokens that stand for nothing


@cache
def load_languages() -> dict[str, Language]:
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


def get_stopwords(code: str) -> frozenset[str]:
    """The words of a language that say little by themselves."""
    found = load_languages().get(code)
    return frozenset() if found is None else found.stopwords


def detect_language(text: str) -> str:
    """The code of the language of a text; "" where that cannot be told."""
    text = text[:MAX_CHARACTERS_READ]
    script = _detect_script(text)
    if script != "LATIN":
        found = [one for one in load_languages().values() if one.script and one.script == script]
        return next(
            (one.code for one in found if set(one.distinguishing_letters) & set(text.lower())),
            found[0].code if found else "",
        )
    words = [word.lower().replace("’", "'") for word in WORD_PATTERN.findall(text)]
    weights: Counter[str] = Counter()
    for word in words:
        known = _index_stopwords().get(word, ())
        weights.update(dict.fromkeys(known, 1 / max(1, len(known))))  # a word of many languages says little
    (best, most), (_, second) = [*weights.most_common(2), ("", 0.0), ("", 0.0)][:2]
    return best if most >= MIN_WORD_WEIGHT and most >= MIN_LEAD_RATIO * second else ""


@cache
def _index_stopwords() -> dict[str, tuple[str, ...]]:
    """The languages in which a small word is one."""
    words = {word for one in load_languages().values() for word in one.stopwords}
    return {word: tuple(code for code, one in load_languages().items() if word in one.stopwords) for word in words}


def _detect_script(text: str) -> str:
    """The script of most of its letters; any kana makes a text Japanese."""
    counts = Counter(unicodedata.name(letter, "").split(" ")[0] for letter in text if letter.isalpha())
    if any(counts[kana] for kana in KANA_SCRIPTS):
        return KANA_SCRIPTS[0]
    return counts.most_common(1)[0][0].split("-")[0] if counts else ""


def count_languages(texts: Iterable[str]) -> dict[str, int]:
    """How many texts are in which language, the most frequent first."""
    return dict(Counter(map(detect_language, texts)).most_common())


def measure_tokenizer_coverage(tokenizer: Tokenizer) -> list[TokenizerCoverage]:
    """What a tokenizer needs for each language, the worst served last."""
    english = max(1, len(tokenizer.encode(load_languages()["en"].sample_text, add_special_tokens=False).ids))
    made = []
    for one in load_languages().values():
        ids = tokenizer.encode(one.sample_text, add_special_tokens=False).ids
        words = len(one.sample_text.split())
        per_word = None if one.code in UNSPACED_LANGUAGES else len(ids) / words
        unknown = sum(id == tokenizer.unk_id for id in ids) / max(1, len(ids))
        made.append(TokenizerCoverage(one, len(ids), per_word, len(ids) / english, unknown))
    # few tokens are no service where they stand for nothing
    return sorted(made, key=lambda one: (max(one.unknown_fraction, 0.1), one.ratio_to_english))
